//! What a reconciler reads: through indexes, as other types, and only what transforms keep.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::world::{holding, run};
use crate::Transform;
use crate::{Action, Context, Controller, ReconcileError, RetryClass, Selector};
use engine::testing::config_map;

type Partial = PartialObjectMeta<ConfigMap>;

/// Everything one reconcile finds, as text.
fn look(ctx: &Context) -> Result<String, ReconcileError> {
    let name = |map: &ConfigMap| map.metadata.name.clone().unwrap_or_default();
    let red: Vec<_> =
        ctx.indexed::<ConfigMap>("colour", "red")?.iter().map(|map| name(map)).collect();
    let one = ctx.get::<ConfigMap>(Some("ns"), "a")?;
    let again = ctx.get::<ConfigMap>(Some("ns"), "a")?;
    let shared = one.as_ref().zip(again.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
    let data = one.and_then(|map| map.data.clone()).is_some();
    let partial = ctx.get_as::<ConfigMap, Partial>(Some("ns"), "b")?;
    let version = partial.and_then(|map| map.metadata.resource_version).unwrap_or_default();
    let all = ctx.list_as::<ConfigMap, Value>(None, &Selector::all())?.len();
    let unknown = ctx.indexed::<ConfigMap>("shape", "round").unwrap_err();
    assert_eq!(unknown.class(), RetryClass::Terminal);
    Ok(format!("red {red:?}, decoded once {shared}, data {data}, b@{version}, {all} in all"))
}

#[tokio::test(start_paused = true)]
async fn a_controller_reads_what_it_declared() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let seeing = Arc::clone(&seen);
    let colour = |map: &ConfigMap| {
        map.data
            .iter()
            .flatten()
            .filter(|(key, _)| *key == "colour")
            .map(|(_, v)| v.clone())
            .collect()
    };
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .index("colour", colour)
        .transform::<ConfigMap>(Transform::all_but_metadata())
        .reconciler(run(move |ctx, _| {
            let found = look(ctx).map(|found| seeing.lock().unwrap().push(found));
            std::future::ready(found.map(|()| Action::Done)).boxed()
        }));
    let (world, mut server) = holding(vec![spec], 1);
    let coloured = |name, version, colour: &str| {
        let mut map = config_map(name, version);
        map["data"]["colour"] = colour.into();
        map
    };
    let maps = [coloured("a", 3, "red"), coloured("b", 4, "blue"), coloured("c", 5, "red")];
    let list = server.asked().await.list(6, &maps);
    world.wait_entries(6).await;
    list.event("MODIFIED", &coloured("c", 7, "blue"));
    world.wait_entries(8).await;
    let seen = seen.lock().unwrap();
    let rest = "decoded once true, data false, b@4, 3 in all";
    assert_eq!(seen.first(), Some(&format!(r#"red ["a", "c"], {rest}"#)));
    assert_eq!(seen.last(), Some(&format!(r#"red ["a"], {rest}"#)));
}
