//! Whatever stands in a spec: it can be carried out, or there is a reason why not, and no panic.

use serde_json::json;

use crate::api::{EtcdCluster, EtcdClusterSpec};
use crate::objects::{Start, budget, pod, services, volume};
use crate::wanted::wanted;

fn spec(input: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<EtcdClusterSpec>(input) else { return };
    assert_eq!(serde_json::from_value::<EtcdClusterSpec>(json!(spec)).unwrap(), spec);
    let mut cluster = EtcdCluster::new("db", spec);
    cluster.metadata.namespace = Some("web".to_owned());
    cluster.metadata.uid = Some("db-uid".to_owned());
    match wanted(&cluster) {
        Ok(wanted) => {
            services(&cluster);
            budget(&cluster, &wanted);
            volume(&cluster, "db-0");
            pod(&cluster, &wanted, wanted.version, "db-0", &Start::Found);
        }
        Err(invalid) => assert!(!invalid.message.is_empty() && !invalid.reason.is_empty()),
    }
}

#[test]
fn specs() {
    fuzz::fuzz!("clusters", spec);
}
