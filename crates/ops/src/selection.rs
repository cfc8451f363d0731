//! What a policy selects of the fleet as it is: one that selects nothing is refused, because a name in it is wrong or
//! of something that is still to come. Pure.

use anyhow::ensure;
use fleet::{Fleet, FleetMember, FleetShard};
use sharding::api::{FleetPolicySpec, MemberSelector, ShardSelector};
use sharding::policy::{Policies, PolicyRecord};

use crate::names::Known;

/// The shards that a policy is about: those that it pauses, also by a former name of their cluster.
pub(crate) fn shards_of<'f>(spec: &FleetPolicySpec, fleet: &'f Fleet) -> Vec<&'f FleetShard> {
    let policy = Policies::read(vec![PolicyRecord::new("", spec.clone())]);
    let is_about = |FleetShard { shard, .. }: &&FleetShard| match spec.pause {
        Some(true) => fleet.has_paused(&policy, shard),
        _ => policy.are_about(shard),
    };
    fleet.shards.iter().filter(is_about).collect()
}

/// Whether a policy says something of shards, and not of members and moves alone.
pub(crate) fn is_of_shards(spec: &FleetPolicySpec) -> bool {
    spec.pause.is_some() || spec.pin.is_some() || spec.avoid.is_some() || spec.busy.is_some()
}

/// How much of the fleet a policy is about, in words.
///
/// # Errors
/// If nothing is what it names: with what there is.
pub(crate) fn selected(spec: &FleetPolicySpec, fleet: &Fleet) -> anyhow::Result<String> {
    let mut parts = Vec::new();
    let shards = shards_of(spec, fleet);
    if let Some(selector) = &spec.shards {
        check_names(selector, fleet)?;
        let none = "no shard is both in one of these clusters and of one of these groups";
        ensure!(!shards.is_empty(), none);
    }
    if is_of_shards(spec) {
        parts.push(format!("{} of {} shards", shards.len(), fleet.shards.len()));
    }
    let placed = spec.pin.iter().chain(&spec.avoid).map(|preference| &preference.select);
    for select in placed.chain(spec.members.iter().map(|rule| &rule.select)) {
        parts.push(format!("{} of {} members", members(select, fleet)?, fleet.alive().count()));
    }
    Ok(parts.join(", "))
}

/// Writes members by their identities, which a policy selects them by, where they were given by their ids.
pub(crate) fn by_identity(spec: &mut FleetPolicySpec, fleet: &Fleet) {
    let placed =
        spec.pin.iter_mut().chain(&mut spec.avoid).map(|preference| &mut preference.select);
    for select in placed.chain(spec.members.iter_mut().map(|rule| &mut rule.select)) {
        for name in &mut select.names {
            if let Some(member) = fleet.alive().find(|member| member.member.as_str() == name) {
                name.clone_from(&member.identity);
            }
        }
    }
}

fn check_names(selector: &ShardSelector, fleet: &Fleet) -> anyhow::Result<()> {
    let ShardSelector { clusters, groups, names } = selector;
    let there = || fleet.shards.iter().map(|shard| &shard.shard);
    Known::new("cluster with shards", there().map(|shard| &shard.cluster)).have(clusters)?;
    let known = Known::new("controller group", there().map(|shard| &shard.group));
    for group in groups {
        known.have(&[group]).map_err(|unknown| match with_controller(group, fleet) {
            Some(hint) => anyhow::anyhow!("no controller group {group:?} in the fleet: {hint}"),
            None => unknown.into(),
        })?;
    }
    for name in names {
        let only = ShardSelector { names: vec![name.clone()], ..ShardSelector::default() };
        let only = FleetPolicySpec { shards: Some(only), ..FleetPolicySpec::default() };
        ensure!(!shards_of(&only, fleet).is_empty(), Known::new("shard", there()).unknown(name));
    }
    Ok(())
}

/// In which group a controller is, if that is one's name.
fn with_controller(name: &str, fleet: &Fleet) -> Option<String> {
    let (group, controllers) =
        fleet.groups.iter().find(|(_, all)| all.iter().any(|one| one.as_str() == name))?;
    let others: Vec<&str> =
        controllers.iter().map(|one| one.as_str()).filter(|one| *one != name).collect();
    Some(format!(
        "the controller {name} is in the group {group}, with {}; --group {group} selects the shards of all of them",
        others.join(", ")
    ))
}

/// How many live members are selected.
pub(crate) fn count(select: &MemberSelector, fleet: &Fleet) -> usize {
    let is = |member: &&FleetMember| select.contains(&member.identity, member.zone.as_deref());
    fleet.alive().filter(is).count()
}

/// The same.
///
/// # Errors
/// If no live member is selected, or one of the names or zones is that of no live member: with those that there are.
fn members(select: &MemberSelector, fleet: &Fleet) -> anyhow::Result<usize> {
    for name in &select.names {
        let only = MemberSelector { names: vec![name.clone()], ..MemberSelector::default() };
        let known = || Known::new("live member", fleet.alive().map(|member| &member.identity));
        ensure!(count(&only, fleet) > 0, known().unknown(name));
    }
    Known::new("zone", fleet.alive().filter_map(|member| member.zone.as_ref()))
        .have(&select.zones)?;
    let none = "no member is both of one of these names and in one of these zones";
    let found = count(select, fleet);
    ensure!(found > 0 || *select == MemberSelector::default(), none);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use fleet::LeaseStanding;
    use serde_json::{Value, json};
    use sharding::api::Phase;

    use super::*;

    fn fleet() -> Fleet {
        let member = |identity: &str, zone: Option<&str>| FleetMember {
            identity: identity.to_owned(),
            zone: zone.map(str::to_owned),
            ..FleetMember::example(&format!("{identity}-abcde"))
        };
        let shard = |shard: &str| FleetShard::example(shard, None, Phase::Unowned);
        let controllers = ["etcd", "mysql", "tdset"].map(|name| name.parse().unwrap());
        Fleet {
            members: vec![
                member("replica-0", Some("eu")),
                member("replica-1", Some("us")),
                FleetMember { lease: LeaseStanding::Taken, ..member("replica-2", None) },
            ],
            shards: ["east/etcd/0/1", "east/tunnel/0/2", "east/tunnel/1/2", "west/etcd/0/1"]
                .map(shard)
                .into(),
            groups: [("etcd".parse().unwrap(), controllers.into())].into(),
            ..Fleet::default()
        }
    }

    fn said(spec: Value) -> String {
        let spec: FleetPolicySpec = serde_json::from_value(spec).unwrap();
        selected(&spec, &fleet()).unwrap_or_else(|none| none.to_string())
    }

    #[test]
    fn a_policy_says_how_much_it_selects() {
        for (spec, expect) in [
            (json!({"pause": true}), "4 of 4 shards"),
            (json!({"pause": true, "shards": {"clusters": ["east"]}}), "3 of 4 shards"),
            // The whole of what was split meanwhile.
            (json!({"pause": true, "shards": {"names": ["east/tunnel/0/1"]}}), "2 of 4 shards"),
            (
                json!({"pin": {"names": ["replica-*"]}, "shards": {"groups": ["etcd"]}}),
                "2 of 4 shards, 2 of 2 members",
            ),
            (json!({"members": {"zones": ["us"], "cordon": true}}), "1 of 2 members"),
            (json!({"members": {"capacity": 5}}), "2 of 2 members"),
            (json!({"moves": {"inFleet": 5}}), ""),
        ] {
            assert_eq!(said(spec.clone()), expect, "{spec}");
        }
        let nobody = FleetPolicySpec { pause: Some(true), ..FleetPolicySpec::default() };
        assert_eq!(selected(&nobody, &Fleet::default()).unwrap(), "0 of 0 shards", "all to come");
    }

    #[test]
    fn one_that_names_what_there_is_not_is_refused_with_what_there_is() {
        for (spec, expect) in [
            (
                json!({"pause": true, "shards": {"clusters": ["east", "wset"]}}),
                r#"no cluster with shards "wset" in the fleet: there are east, west"#,
            ),
            (
                json!({"pause": true, "shards": {"groups": ["tunel"]}}),
                r#"no controller group "tunel" in the fleet: there are etcd, tunnel"#,
            ),
            (
                json!({"pause": true, "shards": {"groups": ["tdset"]}}),
                r#"no controller group "tdset" in the fleet: the controller tdset is in the group etcd, with etcd, mysql; --group etcd selects the shards of all of them"#,
            ),
            (
                json!({"pause": true, "shards": {"clusters": ["west"], "groups": ["tunnel"]}}),
                "no shard is both in one of these clusters and of one of these groups",
            ),
            (
                json!({"pin": {"names": ["replica-9"]}, "shards": {"clusters": ["east"]}}),
                r#"no live member "replica-9" in the fleet: there are replica-0, replica-1"#,
            ),
            (
                json!({"members": {"names": ["replica-2"], "capacity": 5}}),
                r#"no live member "replica-2" in the fleet: there are replica-0, replica-1"#,
            ),
            (
                json!({"avoid": {"zones": ["eu-1"]}}),
                r#"no zone "eu-1" in the fleet: there are eu, us"#,
            ),
            (
                json!({"avoid": {"names": ["replica-0"], "zones": ["us"]}}),
                "no member is both of one of these names and in one of these zones",
            ),
        ] {
            assert_eq!(said(spec.clone()), expect, "{spec}");
        }
    }

    #[test]
    fn members_may_be_named_by_their_ids() {
        let pin = json!({"pin": {"names": ["replica-0-abcde", "replica-1"]}});
        let mut spec: FleetPolicySpec = serde_json::from_value(pin).unwrap();
        by_identity(&mut spec, &fleet());
        assert_eq!(spec.pin.unwrap().select.names, ["replica-0", "replica-1"]);
    }
}
