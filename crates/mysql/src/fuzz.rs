//! Whatever stands in a spec: it can be carried out, or there are the reasons why not, and no panic.

use serde_json::json;

use crate::api::{MySQLCluster, MySQLClusterSpec};
use crate::objects::{budget, first_volume, services};
use crate::wanted::{accepted, together};

fn spec(input: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<MySQLClusterSpec>(input) else { return };
    assert_eq!(serde_json::from_value::<MySQLClusterSpec>(json!(spec)).unwrap(), spec);
    let mut cluster = MySQLCluster::new("carts", spec);
    cluster.metadata.namespace = Some("web".to_owned());
    cluster.metadata.uid = Some("carts-uid".to_owned());
    match accepted(&cluster) {
        Ok(_) => {
            services(&cluster);
            budget(&cluster);
            first_volume(&cluster);
        }
        Err(problems) => assert!(!together(&problems).message.is_empty()),
    }
}

#[test]
fn specs() {
    fuzz::fuzz!("clusters", spec);
}
