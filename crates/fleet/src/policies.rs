//! What the FleetPolicies keep from happening in a fleet: which shards they pause, which they leave without a member
//! that may have them, and what may not move. Pure.

use sharding::api::{MemberSpec, MemberState, Phase};
use sharding::policy::Policies;
use sharding::world::World;

use crate::health::{Problem, counted, names};
use crate::{Fleet, FleetMember, FleetShard};

/// Notes at each shard what policies keep from it.
pub(crate) fn mark(
    policies: &Policies,
    world: &World,
    members: &[FleetMember],
    shards: &mut [FleetShard],
) {
    // Who is asked to drain gets nothing, whatever policies say.
    let open = members.iter().filter(|member| member.is_alive()).filter_map(|member| {
        let spec = &world.members().get(&member.member)?.spec;
        (!spec.drain).then(|| (spec, policies.closing(spec, member.shards)))
    });
    let open: Vec<(&MemberSpec, Option<&str>)> = open.collect();
    for shard in shards {
        let map = world.maps().get(&shard.shard.cluster);
        let paused_by = map.and_then(|map| policies.pause_in(map, &(&shard.shard).into()));
        shard.paused_by = paused_by.map(str::to_owned);
        if shard.phase == Phase::Unowned && shard.paused_by.is_none() {
            let by = policies.ruling_out(&shard.shard, &open).into_iter();
            shard.ruled_out_by = by.map(str::to_owned).collect();
        }
    }
}

impl Fleet {
    /// The shards that no member may have that lives, by what people want; those of the same policies together.
    pub(crate) fn ruled_out(&self) -> Vec<Problem> {
        let out = self.shards.iter().filter(|shard| !shard.ruled_out_by.is_empty());
        let mut out: Vec<&FleetShard> = out.collect();
        out.sort_by(|a, b| a.ruled_out_by.cmp(&b.ruled_out_by));
        let same = out.chunk_by(|a, b| a.ruled_out_by == b.ruled_out_by);
        let problem = |shards: &[&FleetShard]| {
            let policies: Vec<&str> = shards[0].ruled_out_by.iter().map(String::as_str).collect();
            let (shards, policies) = (counted(shards), names(&policies));
            let what =
                format!("{shards} that no live member may have, by the FleetPolicies {policies}");
            let fix = "start a member that may have them, or `leasehold lift` one of the policies";
            Problem::new(what, fix)
        };
        same.map(problem).collect()
    }

    /// The members that are to hand over what they have, while no shard may move.
    pub(crate) fn held_up(&self) -> Option<Problem> {
        let policy = self.halted_by.as_ref()?;
        let drains = self.alive().filter(|member| {
            member.drain && member.state == MemberState::Active && member.shards > 0
        });
        let drains: Vec<&str> = drains.map(|member| member.member.as_str()).collect();
        (!drains.is_empty()).then(|| Problem {
            what: format!(
                "{} cannot hand over what it has: by the FleetPolicy {policy}, no shard moves",
                names(&drains)
            ),
            fix: format!("leasehold lift {policy}, or let it say another number than 0"),
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
    use serde_json::{Value, json};
    use sharding::api::{Member, MemberSpec};
    use sharding::lease::member_lease_name;
    use sharding::policy::PolicyRecord;

    use crate::{Fleet, Objects, assemble};

    /// A fleet of m-0, which lives, and m-1, which does not, with two shards, under policies of these specs: p0, p1 ...
    fn fleet(specs: &[Value], phase: &str) -> Fleet {
        let mut lease = Lease::default();
        lease.metadata.name = Some(member_lease_name(&"m-0".parse().unwrap()));
        let holder_identity = Some("m-0".to_owned());
        lease.spec = Some(LeaseSpec { holder_identity, ..LeaseSpec::default() });
        let owner = if phase == "Owned" { json!("m-0") } else { Value::Null };
        let entry = |group: &str| {
            let shard = format!("{group}/0/1");
            json!({"shard": shard, "epoch": 1, "phase": phase, "owner": owner})
        };
        let map = json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "ShardMap",
            "metadata": {"name": "east"}, "spec": {"shards": [entry("g"), entry("h")]},
        });
        let member = |name: &str| Member::new(name, MemberSpec::new(name, Vec::new()));
        let policy = |(number, spec): (usize, &Value)| {
            let object = json!({"metadata": {"name": format!("p{number}")}, "spec": spec});
            PolicyRecord::of(&serde_json::from_value(object).unwrap())
        };
        assemble(&Objects {
            leases: vec![lease],
            members: vec![member("m-0"), member("m-1")],
            maps: vec![serde_json::from_value(map).unwrap()],
            policies: specs.iter().enumerate().map(policy).collect(),
            ..Objects::default()
        })
    }

    fn told(fleet: &Fleet) -> Vec<String> {
        let problems = fleet.problems(Timestamp::UNIX_EPOCH).into_iter();
        let problems = problems.map(|problem| problem.what);
        problems.filter(|what| what.contains("FleetPolic")).collect()
    }

    #[test]
    fn policies_that_leave_no_member_for_a_shard_are_named() {
        let of_g = json!({"groups": ["g"]});
        let pin = json!({"pin": {"names": ["m-1"], "required": true}, "shards": of_g});
        let avoid = json!({"avoid": {"names": ["m-0"], "required": true}, "shards": of_g});
        let gone = fleet(std::slice::from_ref(&pin), "Unowned");
        let expect = "1 shard (east/g/0/1) that no live member may have, by the FleetPolicies p0";
        assert_eq!(told(&gone), [expect], "who is pinned to lives no more");
        let both = fleet(&[pin.clone(), avoid.clone()], "Unowned");
        assert_eq!(told(&both), [format!("{expect}, p1")]);
        assert_eq!(told(&fleet(&[pin], "Owned")), [""; 0], "it has an owner yet");
        let wanted = json!({"pin": {"names": ["m-0"], "required": true}});
        let soft = json!({"pin": {"names": ["m-1"]}});
        assert_eq!(told(&fleet(&[wanted, soft], "Unowned")), [""; 0]);
        let paused = fleet(&[avoid, json!({"pause": true})], "Unowned");
        assert_eq!(told(&paused), [""; 0], "a pause is reason enough");
    }

    /// A member that is cordoned, or has as many shards as it may have, is none that could take one.
    #[test]
    fn policies_that_leave_no_place_for_a_shard_are_named() {
        let pin = json!({"pin": {"names": ["m-0"], "required": true}, "shards": {"groups": ["g"]}});
        let cordon = json!({"members": {"names": ["m-0"], "cordon": true}});
        let full = json!({"members": {"maxShards": 0}});
        let room = json!({"members": {"names": ["m-0"], "maxShards": 1}});
        let both = "2 shards (east/g/0/1, east/h/0/1) that no live member may have";
        for (policies, expect) in [
            (vec![pin.clone()], None),
            (vec![pin.clone(), cordon.clone()], Some("p1")),
            (vec![full.clone(), pin], Some("p0")),
            (vec![full.clone(), cordon], Some("p1")),
            (vec![full, room], None),
        ] {
            let found = told(&fleet(&policies, "Unowned"));
            let of = |by: &&str| format!("{both}, by the FleetPolicies {by}");
            let expect: Vec<String> = expect.iter().map(of).collect();
            assert_eq!(found, expect, "{policies:?}");
        }
    }

    #[test]
    fn a_member_that_is_drained_while_no_shard_may_move_is_told() {
        let cordon = json!({"members": {"names": ["m-0"], "cordon": true}});
        let halt = json!({"moves": {"inFleet": 0}});
        let held_up = fleet(&[cordon.clone(), halt.clone()], "Owned");
        let expect = "m-0 cannot hand over what it has: by the FleetPolicy p1, no shard moves";
        assert_eq!(told(&held_up), [expect]);
        let empty = told(&fleet(&[cordon.clone(), halt.clone()], "Unowned"));
        assert!(!empty.iter().any(|what| what.contains("hand over")), "it has nothing: {empty:?}");
        assert_eq!(told(&fleet(&[cordon], "Owned")), [""; 0]);
        let one = json!({"moves": {"inFleet": 1}});
        assert_eq!(told(&fleet(&[halt, one], "Owned")), [""; 0], "the last one counts");
    }
}
