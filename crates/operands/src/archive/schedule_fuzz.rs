//! Whatever stands in a schedule of backups, and whenever its server says that it was made: it has a next run, and
//! backups that have Jobs, or there is the reason why not, and no panic.

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::archive::testkind::Plan;

/// The most bytes of a reason: a value, each character of which may be shown as an escape.
const MAX_BYTES: usize = 6 << 10;

fn plan(input: &[u8]) {
    let Ok(plan) = serde_json::from_slice::<Plan>(input) else { return };
    for second in [0, 1_772_366_430] {
        let now = Timestamp::from_second(second).unwrap();
        let Decision { create, status, next, .. } = decide(&plan, &[], None, now);
        assert!(next.is_none_or(|next| next > now), "{next:?}");
        let obstacle = status.and_then(|status| status.obstacle).unwrap_or_default();
        assert!(obstacle.len() <= MAX_BYTES, "{obstacle}");
        if let Some(backup) = create {
            backup.store(&ConfigMap::default(), "9", "key", "image").unwrap();
        }
    }
}

#[test]
fn schedules() {
    ::fuzz::fuzz!("schedules", plan);
}
