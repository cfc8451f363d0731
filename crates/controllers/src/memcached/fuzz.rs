//! Whatever stands in a spec: it has children, or the reason why it has none, and no panic.

use serde_json::json;

use super::api::{Memcached, MemcachedSpec};
use super::desired::desired;

/// The most characters of a reason.
const MAX_CHARS: usize = 2_000;

fn spec(input: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<MemcachedSpec>(input) else { return };
    assert_eq!(serde_json::from_value::<MemcachedSpec>(json!(spec)).unwrap(), spec);
    let mut memcached = Memcached::new("cache", spec);
    memcached.metadata.namespace = Some("web".to_owned());
    memcached.metadata.uid = Some("cache-uid".to_owned());
    match desired(&memcached) {
        Ok(found) => assert_eq!(Ok(found), desired(&memcached)),
        Err(invalid) => {
            let text = invalid.to_string();
            assert!(text.chars().count() <= MAX_CHARS, "{text}");
        }
    }
}

#[test]
fn specs() {
    fuzz::fuzz!("memcached", spec);
}
