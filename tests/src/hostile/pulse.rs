//! How long a change of the healthy cluster takes until it is reconciled, measured again and again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::copy::seen;
use crate::harness::wait::Stopwatch;

/// The object that is changed.
const NAME: &str = "pulse";
/// The pause between two changes.
const PAUSE: Duration = Duration::from_millis(20);

/// Changes an object of a cluster again and again, until it is dropped.
pub(super) struct Pulse {
    took: Arc<Mutex<Vec<Duration>>>,
    _task: AbortOnDropHandle<()>,
}

/// What changes took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// How many there were.
    pub changes: usize,
    /// What all but one of a hundred took at most.
    pub p99: Duration,
}

impl Pulse {
    pub(super) fn start(client: Client) -> Self {
        let took = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&took);
        let task = tokio::spawn(async move {
            let mut number = 0;
            loop {
                // Whatever fails or ends is tried again, and shows in how few changes there are.
                let _ = beat(&client, &mut number, &noted).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { took, _task: AbortOnDropHandle::new(task) }
    }

    /// How many changes have been reconciled.
    pub(super) fn changes(&self) -> usize {
        self.took.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// What those before and after the first so many took.
    pub(super) fn end(self, at: usize) -> [Option<Spread>; 2] {
        let mut before =
            std::mem::take(&mut *self.took.lock().unwrap_or_else(PoisonError::into_inner));
        let after = before.split_off(at.min(before.len()));
        [before, after].map(Spread::of)
    }
}

impl Spread {
    fn of(mut took: Vec<Duration>) -> Option<Self> {
        took.sort_unstable();
        let p99 = *took.get((took.len() * 99).div_ceil(100).checked_sub(1)?)?;
        Some(Self { changes: took.len(), p99 })
    }
}

/// Asks for a value in an object.
pub(super) async fn want(client: &Client, name: &str, value: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"wanted": value}});
    let apply = PatchParams::apply("test").force();
    api.patch(name, &apply, &Patch::Apply(object)).await?;
    Ok(())
}

async fn beat(client: &Client, number: &mut u64, took: &Mutex<Vec<Duration>>) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let mut events = api.watch(&WatchParams::default(), "0").await?.boxed();
    loop {
        *number += 1;
        let value = format!("{NAME}-{number}");
        let began = Stopwatch::start();
        want(client, NAME, &value).await?;
        let is_seen = |event: &WatchEvent<ConfigMap>| match event {
            WatchEvent::Added(map) | WatchEvent::Modified(map) => {
                map.name_any() == NAME && seen(map) == Some(value.as_str())
            }
            _ => false,
        };
        loop {
            match events.try_next().await? {
                Some(event) if is_seen(&event) => break,
                Some(_) => {}
                None => return Ok(()),
            }
        }
        took.lock().unwrap_or_else(PoisonError::into_inner).push(began.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_a_hundred_does_not_count() {
        let of = |changes: u64| {
            let took = (1..=changes).map(Duration::from_millis);
            Spread::of(took.collect()).map(|spread| spread.p99.as_millis())
        };
        assert_eq!([0, 1, 100, 500].map(of), [None, Some(1), Some(99), Some(495)]);
    }
}
