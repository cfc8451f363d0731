//! Pauses that differ between objects.

use std::time::Duration;

use kube::ResourceExt;
use model::uid_hash;

/// A pause and up to a quarter more, by the object's uid, so that objects that were created together are
/// not all looked at together.
///
/// ```
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use leasehold_sdk::{Action, spread};
/// # let object = ConfigMap::default();
/// let minute = Duration::from_secs(60);
/// let pause = spread(minute, &object);
/// assert!(pause >= minute && pause < minute + minute / 4);
/// # let _ =
/// Action::RequeueAfter(pause)
/// # ;
/// ```
pub fn spread<K: ResourceExt>(pause: Duration, object: &K) -> Duration {
    let share = uid_hash(&object.uid().unwrap_or_default()) % 256;
    pause + pause.mul_f64(share as f64 / 1_024.0)
}
