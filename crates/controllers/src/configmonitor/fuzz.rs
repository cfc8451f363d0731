//! Whatever stands in a spec: it names one object, or there is a short reason why not, and it selects no Pods but those
//! with its labels.

use std::collections::BTreeMap;

use serde_json::json;

use super::api::ConfigMonitorSpec;
use super::plan::{selects, watched};

/// The most bytes of a reason: two names, each character of which may be shown as an escape.
const MAX_BYTES: usize = 12 << 10;

fn spec(input: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<ConfigMonitorSpec>(input) else { return };
    assert_eq!(serde_json::from_value::<ConfigMonitorSpec>(json!(spec)).unwrap(), spec);
    if let Err(invalid) = watched(&spec) {
        let text = invalid.to_string();
        assert!(text.len() <= MAX_BYTES, "{text}");
    }
    let labels = spec.pod_selector.clone().unwrap_or_default();
    assert_eq!(selects(&spec, Some(&labels)), !labels.is_empty(), "{spec:?}");
    assert!(!selects(&spec, None) && !selects(&spec, Some(&BTreeMap::new())), "{spec:?}");
}

#[test]
fn specs() {
    fuzz::fuzz!("configmonitor", spec);
}
