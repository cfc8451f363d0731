//! Whether the volumes have the size that is wanted, and what makes them grow. Pure.
//!
//! A StatefulSet's volumeClaimTemplates cannot be changed. So the volumes that exist grow first, one after
//! the other; then the StatefulSet is deleted without its Pods and made anew, so that later instances
//! get volumes of the new size. While it is away, no Pod is: they run on, and it finds them again.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use operands::spec::{Invalid, bytes};

/// What to do about the size of the volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Nothing: all is as wanted, or on its way.
    Fits,
    /// Patch this volume's request.
    Grow(String),
    /// Delete the StatefulSet of this uid, without its Pods. It is made anew afterwards.
    Remake(String),
    /// Nothing can be done until the spec is changed.
    Refused(Invalid),
}

/// Decides. `volumes` are those of the cluster's instances; `wanted` is the size in bytes, and `text` how
/// the spec has it.
pub(crate) fn growth<'a>(
    (wanted, text): (u128, &str),
    set: Option<&StatefulSet>,
    volumes: impl IntoIterator<Item = &'a PersistentVolumeClaim>,
) -> Growth {
    let mut smaller = None;
    for volume in volumes {
        match requested(volume) {
            // A size that cannot be read is not ours to judge.
            None => {}
            Some(size) if size > wanted => return refused(text, &volume.name_any()),
            Some(size) if size < wanted && volume.metadata.deletion_timestamp.is_none() => {
                smaller.get_or_insert_with(|| volume.name_any());
            }
            Some(_) => {}
        }
    }
    if let Some(volume) = smaller {
        return Growth::Grow(volume);
    }
    let Some(set) = set.filter(|set| set.metadata.deletion_timestamp.is_none()) else {
        return Growth::Fits;
    };
    let templates = set.spec.volume_claim_templates.iter().flatten();
    let is_other = templates.filter_map(requested).any(|size| size != wanted);
    match set.uid() {
        Some(uid) if is_other => Growth::Remake(uid),
        _ => Growth::Fits,
    }
}

fn requested(volume: &PersistentVolumeClaim) -> Option<u128> {
    let Quantity(text) =
        volume.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")?;
    bytes(text)
}

fn refused(text: &str, volume: &str) -> Growth {
    let message = format!(
        "spec.storage is {text}, and volume {volume} is larger: volumes do not shrink, so set its size again, \
         or restore a backup into another MySQLCluster"
    );
    Growth::Refused(Invalid { reason: "StorageShrinkRefused", message })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(name: &str, size: &str) -> PersistentVolumeClaim {
        let requests = json!({"requests": {"storage": size}});
        let object = json!({"metadata": {"name": name}, "spec": {"resources": requests}});
        serde_json::from_value(object).unwrap()
    }

    fn set(size: &str, change: Value) -> StatefulSet {
        let mut metadata = json!({"name": "db", "uid": "s1"});
        metadata.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let template = volume("data", size);
        serde_json::from_value(json!({
            "metadata": metadata,
            "spec": {"serviceName": "x", "selector": {}, "template": {},
                "volumeClaimTemplates": [template]},
        }))
        .unwrap()
    }

    #[test]
    fn volumes_grow_before_the_template_and_never_shrink() {
        let grow = |name: &str| Growth::Grow(name.to_owned());
        let remake = Growth::Remake("s1".to_owned());
        let cases: &[(&[&str], Option<&str>, Growth)] = &[
            (&[], None, Growth::Fits),
            (&["2Gi", "2048Mi"], Some("2Gi"), Growth::Fits),
            (&["2Gi", "1Gi", "1Gi"], Some("1Gi"), grow("v1")),
            (&["2Gi", "2Gi"], Some("1Gi"), remake.clone()),
            (&["2Gi", "odd"], Some("2Gi"), Growth::Fits),
            (&[], Some("3Gi"), remake),
            (&["2Gi", "2Gi"], None, Growth::Fits),
        ];
        for (sizes, template, expect) in cases {
            let volumes: Vec<_> =
                (0..).zip(*sizes).map(|(at, size)| volume(&format!("v{at}"), size)).collect();
            let set = template.map(|size| set(size, json!({})));
            let found = growth((2 << 30, "2Gi"), set.as_ref(), &volumes);
            assert_eq!(found, *expect, "{sizes:?} {template:?}");
        }
        let Growth::Refused(invalid) =
            growth((1 << 30, "1Gi"), Some(&set("2Gi", json!({}))), &[volume("v0", "2Gi")])
        else {
            panic!()
        };
        assert_eq!(invalid.reason, "StorageShrinkRefused");
        assert!(invalid.message.contains("volume v0 is larger"), "{invalid}");
    }

    #[test]
    fn what_is_being_deleted_is_left_alone() {
        let leaving = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let mut old = volume("v0", "1Gi");
        old.metadata = serde_json::from_value(json!({"name": "v0",
            "deletionTimestamp": "2026-01-01T00:00:00Z"}))
        .unwrap();
        let found = growth((2 << 30, "2Gi"), Some(&set("1Gi", leaving)), &[old]);
        assert_eq!(found, Growth::Fits);
    }
}
