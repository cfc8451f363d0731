//! Whatever stands in a spec: it has a plan, or the reason why it has none, and no panic.

use jiff::Timestamp;
use serde_json::json;

use super::api::{TDSet, TDSetSpec};
use super::plan::{Observed, plan};
use super::target::Target;

fn spec(input: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<TDSetSpec>(input) else { return };
    assert_eq!(serde_json::from_value::<TDSetSpec>(json!(spec)).unwrap(), spec);
    let mut set = TDSet::new("web", spec);
    set.metadata.namespace = Some("web".to_owned());
    set.metadata.uid = Some("web-uid".to_owned());
    let Ok(target) = Target::of(&set, &[]) else { return };
    for second in [0, 1_700_000_000, 1_711_846_800] {
        let now = Timestamp::from_second(second).unwrap();
        let (deployment, service, scale, autoscaler, rollout) = Default::default();
        let observed = Observed { set: &set, deployment, service, scale, autoscaler, rollout };
        if let Ok(plan) = plan(observed, &target, now) {
            assert!(plan.next.moment().is_none_or(|next| next > now));
            plan.wake(&set, now);
        }
    }
}

#[test]
fn specs() {
    fuzz::fuzz!("tdset", spec);
}
