//! The present state of a fleet, read from its home cluster. Never writes.

use std::collections::{BTreeMap, BTreeSet};

use model::{MemberId, ShardId};
use ops::HomeArgs;
use sharding::api::Shared;
use sharding::record::{MapRecord, MemberRecord};
use sharding::weight::loads_of;

use super::scenario::Scenario;
use crate::cli::home::connect;
use fleet::{Objects, assemble};

/// Reads the live members, the owners of shards, and the loads that owners report.
pub(super) async fn read(home: &HomeArgs) -> anyhow::Result<Scenario> {
    let home = connect(home).await?;
    Ok(scenario(&home.objects().await?, &home.namespace))
}

fn scenario(objects: &Objects, namespace: &str) -> Scenario {
    let fleet = assemble(objects);
    let alive: BTreeSet<&MemberId> = fleet.alive().map(|member| &member.member).collect();
    let mut owned: BTreeMap<&MemberId, Vec<&ShardId>> = BTreeMap::new();
    for shard in &fleet.shards {
        if let Some(owner) = &shard.owner {
            owned.entry(owner).or_default().push(&shard.shard);
        }
    }
    let mut members: Vec<MemberRecord> = objects
        .members
        .iter()
        .filter_map(MemberRecord::read)
        .filter(|member| alive.contains(&member.id))
        .collect();
    let mut loads = Vec::new();
    for MemberRecord { id, spec, .. } in &mut members {
        // A load that a former owner reports is outdated.
        loads.extend(loads_of(spec, owned.get(id).map_or(&[], Vec::as_slice)));
        (spec.cluster_loads, spec.rest_load) = (Shared::default(), None);
    }
    Scenario {
        title: format!("live, of namespace {namespace}"),
        namespace: Some(namespace.to_owned()),
        loads,
        maps: objects.maps.iter().filter_map(MapRecord::read).collect(),
        policies: objects.policies.clone(),
        coordinator: fleet.coordinator.clone(),
        members,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
    use serde_json::json;
    use sharding::api::{Member, MemberSpec};
    use sharding::lease::member_lease_name;

    use super::*;

    #[test]
    fn what_a_member_says_in_sum_is_shared_by_the_shards_that_it_does_not_name() {
        let id: MemberId = "m-0".parse().unwrap();
        let spec = MemberSpec {
            loads: serde_json::from_value(json!([{"shard": "c1/i/0/1", "busy": 7000}])).unwrap(),
            cluster_loads: serde_json::from_value(json!([{"cluster": "c1", "busy": 4000}]))
                .unwrap(),
            ..MemberSpec::new("replica-0", Vec::new())
        };
        let shards = ["g/0/1", "h/0/1", "i/0/1"]
            .map(|shard| json!({"shard": shard, "epoch": 1, "phase": "Owned", "owner": "m-0"}));
        let map = json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "ShardMap",
            "metadata": {"name": "c1"}, "spec": {"shards": shards},
        });
        let mut lease = Lease::default();
        lease.metadata.name = Some(member_lease_name(&id));
        let holder_identity = Some(id.to_string());
        lease.spec = Some(LeaseSpec { holder_identity, ..LeaseSpec::default() });
        let objects = Objects {
            leases: vec![lease],
            members: vec![Member::new(id.as_str(), spec)],
            maps: vec![serde_json::from_value(map).unwrap()],
            ..Objects::default()
        };
        let scenario = scenario(&objects, "ns");
        let loads = scenario.loads.iter().map(|load| (load.shard.to_string(), load.busy));
        let expect = [("c1/i/0/1", 7_000), ("c1/g/0/1", 2_000), ("c1/h/0/1", 2_000)];
        assert_eq!(loads.collect::<Vec<_>>(), expect.map(|(name, busy)| (name.to_owned(), busy)));
        assert!(scenario.members[0].spec.cluster_loads.is_empty(), "it counts once");
    }
}
