//! Whether the definitions stored in the home cluster keep what members write. Pure.
//!
//! A server drops the fields that a definition does not have, without an error. A fleet that loses a part
//! of what its members write would share its work wrongly. So a member compares what the server publishes
//! of its kinds (OpenAPI v3, which everybody may read) with the definitions of this release.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use serde_json::Value;

use crate::api::FleetPolicy;

/// What a fleet does without, so that it runs with the definitions of an earlier release: without the
/// share of the heaviest object no shard is split, without what waits of initial lists it does not count, without the report of its clusters each member counts as
/// if it had the coordinator's, or as if what it says were all that it has configured, without the named clusters a coordinator knows only the identities of its
/// own, without a member's container its death is noticed by the silence of its Lease, after a restore of home
/// members learn from each other through the coordinator's Lease only, without a member's zone no policy
/// selects it by that, without its installation the groups and clusters of a member of another one count, without sums of loads the shards that have no room weigh the same, without the controllers of a
/// group people must know its name, and without the cause of a move nobody reads later why a shard is where it is.
/// Without FleetPolicies there are none.
const DISPENSABLE: [&str; 14] = [
    "spec.groupDetails[].controllers",
    "spec.clusterLoads",
    "spec.restLoad",
    "spec.shards[].moved",
    "spec.loads[].heaviest",
    "spec.loads[].waiting",
    "spec.clusters",
    "spec.clusters.open",
    "spec.namedClusters",
    "spec.container",
    "spec.succeeds",
    "spec.history",
    "spec.zone",
    "spec.installation",
];

/// What to run.
const FIX: &str = "fix: apply those of this release: leasehold crds --for home | kubectl apply --server-side \
                   --force-conflicts -f -, or helm upgrade with crds.enabled=true";

/// What is wrong with the stored definitions, and what to run; `None` if they keep all that members
/// write. `document` is the home cluster's OpenAPI of the group and version of `wanted`.
pub(crate) fn problem(document: &Value, wanted: &[CustomResourceDefinition]) -> Option<String> {
    let mut found = Vec::new();
    for crd in wanted {
        let name = format!("{}.{}", crd.spec.names.plural, crd.spec.group);
        match model::definition::differences(document, crd, &DISPENSABLE) {
            Some(differences) => found.extend(differences.map(|one| format!("{name} {one}"))),
            None if crd.spec.names.kind == FleetPolicy::kind(&()) => {}
            None => found.push(format!("{name} is not there")),
        }
    }
    let named = model::definition::named(found)?;
    Some(format!("definitions in the home cluster are not those of this release: {named}; {FIX}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::api;

    /// What a server publishes of the definitions, after `change` to the schemas by kind.
    fn published(mut change: impl FnMut(&str, &mut Value)) -> Value {
        let mut schemas = Map::new();
        for crd in api::crds() {
            let (names, version) = (&crd.spec.names, &crd.spec.versions[0]);
            let mut schema = json!(version.schema.as_ref().unwrap().open_api_v3_schema);
            change(&names.kind, &mut schema);
            schema["x-kubernetes-group-version-kind"] =
                json!([{"group": crd.spec.group, "kind": names.kind, "version": version.name}]);
            schemas.insert(names.kind.clone(), schema);
        }
        json!({"components": {"schemas": schemas}})
    }

    fn told(change: impl Fn(&mut Value)) -> String {
        let document = published(|kind, schema| {
            if kind == "ShardMap" {
                change(&mut schema["properties"]["spec"]);
            }
        });
        problem(&document, &api::crds()).unwrap()
    }

    #[test]
    fn definitions_of_this_release_are_right() {
        assert_eq!(problem(&published(|_, _| {}), &api::crds()), None);
    }

    #[test]
    fn what_an_older_definition_drops_or_refuses_is_named_with_what_to_run() {
        let of = |text: &str| {
            format!("definitions in the home cluster are not those of this release: {text}; {FIX}")
        };
        let remove = |spec: &mut Value, of: &str, name: &str| {
            spec.pointer_mut(of).unwrap().as_object_mut().unwrap().remove(name);
        };
        assert_eq!(
            told(|spec| remove(spec, "/properties", "protocolVersion")),
            of("shardmaps.leasehold.dev does not keep spec.protocolVersion")
        );
        assert_eq!(
            told(|spec| remove(spec, "/properties/shards/items/properties", "target")),
            of("shardmaps.leasehold.dev does not keep spec.shards[].target")
        );
        assert_eq!(
            told(|spec| spec["properties"]["shards"]["items"]["properties"]["phase"]["enum"] =
                json!(["Unowned", "Owned"])),
            of("shardmaps.leasehold.dev does not take \"Draining\" as spec.shards[].phase")
        );
        assert_eq!(
            told(|spec| spec["required"] = json!(["shards", "owner"])),
            of("shardmaps.leasehold.dev requires spec.owner")
        );
        assert_eq!(
            problem(&json!({}), &api::crds()).unwrap(),
            of("shardmaps.leasehold.dev is not there, members.leasehold.dev is not there")
        );
        let empty = published(|_, schema| schema["properties"]["spec"]["properties"] = json!({}));
        let many = problem(&empty, &api::crds()).unwrap();
        assert_eq!(many.matches("does not keep").count(), 5);
        assert!(many.contains(" more; fix: apply"), "{many}");
    }

    #[test]
    fn a_fleet_does_without_what_an_earlier_release_did_not_know() {
        let mut removed = 0;
        let earlier = published(|_, schema| {
            let spec = ["clusters", "clusterLoads", "restLoad", "container", "succeeds", "zone"]
                .map(|name| ("", name));
            let parts = [
                ("/loads/items/properties", "heaviest"),
                ("/loads/items/properties", "waiting"),
                ("/shards/items/properties", "moved"),
            ];
            for (of, name) in spec.into_iter().chain(parts) {
                let properties = schema.pointer_mut(&format!("/properties/spec/properties{of}"));
                let properties = properties.and_then(Value::as_object_mut);
                removed += usize::from(properties.is_some_and(|p| p.remove(name).is_some()));
            }
        });
        assert_eq!((problem(&earlier, &api::crds()), removed), (None, 9));
    }

    #[test]
    fn a_definition_that_keeps_everything_is_right() {
        let open = |_: &str, schema: &mut Value| {
            *schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        };
        assert_eq!(problem(&published(open), &api::crds()), None);
    }
}
