//! Columns of volumes, claims of them, and their classes.

use serde_json::{Value, json};

use super::cells::UNSET;
use super::{Column, Row};

pub(crate) const VOLUMES: &[Column] = &[
    Column::NAME,
    Column::text("Capacity", |row| json!(row.text_or("/spec/capacity/storage", "0"))),
    Column::text("Access Modes", |row| access_modes(row.list("/spec/accessModes"))),
    Column::text("Reclaim Policy", |row| json!(row.text("/spec/persistentVolumeReclaimPolicy"))),
    Column::text("Status", phase),
    Column::text("Claim", |row| {
        let (namespace, name) = ("/spec/claimRef/namespace", "/spec/claimRef/name");
        json!(match row.at("/spec/claimRef") {
            Value::Null => String::new(),
            _ => format!("{}/{}", row.text(namespace), row.text(name)),
        })
    }),
    Column::text("StorageClass", |row| json!(row.text("/spec/storageClassName"))),
    Column::text("VolumeAttributesClass", |row| {
        json!(row.text_or("/spec/volumeAttributesClassName", UNSET))
    }),
    Column::text("Reason", |row| json!(row.text("/status/reason"))),
    Column::AGE,
    Column::wide("VolumeMode", |row| json!(row.text_or("/spec/volumeMode", UNSET))),
];

pub(crate) const CLAIMS: &[Column] = &[
    Column::NAME,
    Column::text("Status", phase),
    Column::text("Volume", |row| json!(row.text("/spec/volumeName"))),
    Column::text("Capacity", |row| {
        json!(if is_bound(row) { row.text("/status/capacity/storage") } else { "" })
    }),
    Column::text("Access Modes", |row| {
        access_modes(if is_bound(row) { row.list("/status/accessModes") } else { &[] })
    }),
    Column::text("StorageClass", |row| json!(row.text("/spec/storageClassName"))),
    Column::text("VolumeAttributesClass", |row| {
        json!(row.text_or("/spec/volumeAttributesClassName", UNSET))
    }),
    Column::AGE,
    Column::wide("VolumeMode", |row| json!(row.text_or("/spec/volumeMode", UNSET))),
];

pub(crate) const CLASSES: &[Column] = &[
    Column::NAME,
    Column::text("Provisioner", |row| json!(row.text("/provisioner"))),
    Column::text("ReclaimPolicy", |row| json!(row.text_or("/reclaimPolicy", "Delete"))),
    Column::text("VolumeBindingMode", |row| json!(row.text_or("/volumeBindingMode", "Immediate"))),
    Column::text("AllowVolumeExpansion", |row| json!(*row.at("/allowVolumeExpansion") == true)),
    Column::AGE,
];

fn phase(row: &Row<'_>) -> Value {
    let is_deleted = row.at("/metadata/deletionTimestamp").is_string();
    json!(if is_deleted { "Terminating" } else { row.text("/status/phase") })
}

/// Whether a claim has a volume.
fn is_bound(row: &Row<'_>) -> bool {
    !row.text("/spec/volumeName").is_empty()
}

/// Access modes, abbreviated.
fn access_modes(found: &[Value]) -> Value {
    const MODES: &[(&str, &str)] = &[
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| found.iter().any(|found| found == mode);
    let modes: Vec<&str> =
        MODES.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect();
    json!(modes.join(","))
}
