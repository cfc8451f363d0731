//! A home cluster that has the definitions of the last release: a fleet runs there without what they drop.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};

use super::*;

/// Where the definitions of the last release are.
const DEFINITIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/real/kind/crds-0.1.0");

/// The most often that a Member is written until a fleet of one has its work.
const MAX_WRITES: i64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_runs_with_the_definitions_of_the_last_release() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, east) = (server("home").await, server("east").await);
    let definitions = ["members", "shardmaps"].map(|name| -> CustomResourceDefinition {
        let text = fs::read_to_string(format!("{DEFINITIONS}/{name}.yaml")).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    });
    let home = home_with(dir.path(), &home_server, definitions.into()).await;
    let only = Replica::start("only", &home, &sources(dir.path(), &[&east]));
    want(&east.client(), "one").await;
    until("the value is copied", async || converged(&east.client(), "one").await).await;

    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("leasehold.dev", "v1alpha1", "Member"));
    let members: Api<DynamicObject> = Api::namespaced_with(home_server.client(), NAMESPACE, &kind);
    let members = members.list(&Default::default()).await.unwrap().items;
    let [member] = &members[..] else { panic!("{members:?}") };
    assert!(member.metadata.generation.unwrap() <= MAX_WRITES, "{member:?}");
    assert_eq!(only.leave().await, Departure::HandedOver);
}
