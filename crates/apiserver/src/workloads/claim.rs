//! PersistentVolumeClaims: each gets a volume of its own, at once and as large as it asks for; and the
//! volumes, which go with their claims unless their policy keeps them.

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::action::{Action, Kind, ObjectRef};
use super::object::Object;
use super::status;

/// Says who provides a volume.
const PROVISIONER: &str = "pv.kubernetes.io/provisioned-by";
/// The stand-in's own volumes have this value there.
const OURS: &str = "leasehold.dev/embedded";

/// The next writes for a claim, given the volume that is its own or that it names.
pub(crate) fn plan(claim: &Object, volume: Option<&Object>) -> Vec<Action> {
    if claim.meta().deletion_timestamp.is_some() {
        return Vec::new();
    }
    let Some(volume) = volume else {
        // A claim that names a volume waits for it, and one that has lost its own does not get another. With
        // the class "" it waits for a volume that people make.
        let waits = named(claim).is_some() || claim.spec["storageClassName"] == "";
        return (!waits).then(|| create(claim)).into_iter().collect();
    };
    let key = ObjectRef::new(Kind::Claim, claim);
    if named(claim).is_none() {
        let body = json!({"spec": {"volumeName": volume.name_any()}});
        return vec![Action::Patch { key, body }];
    }
    let told = json!({
        "phase": "Bound",
        "accessModes": claim.spec["accessModes"],
        "capacity": {"storage": claim.spec["resources"]["requests"]["storage"]},
    });
    let differs = status::differs(&claim.status, &told);
    let tell = differs.then(|| Action::PatchStatus { key, body: json!({ "status": told }) });
    tell.into_iter().collect()
}

/// The next writes for a volume, given the claim that it names.
pub(crate) fn plan_volume(volume: &Object, claim: Option<&Object>, now: Timestamp) -> Vec<Action> {
    if volume.annotations().get(PROVISIONER).is_none_or(|who| who != OURS)
        || volume.meta().deletion_timestamp.is_some()
    {
        return Vec::new();
    }
    let key = ObjectRef::new(Kind::Volume, volume);
    let bound =
        claim.and_then(ResourceExt::uid).as_deref() == volume.spec["claimRef"]["uid"].as_str();
    if !bound && volume.spec["persistentVolumeReclaimPolicy"] != "Retain" {
        return vec![Action::Delete { key, uid: volume.uid().unwrap_or_default() }];
    }
    let phase = if bound { "Bound" } else { "Released" };
    if volume.status["phase"] == phase {
        return Vec::new();
    }
    let since = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let told = json!({"phase": phase, "lastPhaseTransitionTime": since});
    vec![Action::PatchStatus { key, body: json!({ "status": told }) }]
}

/// The name of a claim's volume: the one it names, or its own.
pub(crate) fn volume_of(claim: &Object) -> String {
    named(claim).map_or_else(|| format!("pvc-{}", claim.uid().unwrap_or_default()), str::to_owned)
}

/// The claim of a volume.
pub(crate) fn claim_of(volume: &Object) -> ObjectRef {
    let text = |field: &str| volume.spec["claimRef"][field].as_str().unwrap_or_default().to_owned();
    ObjectRef { kind: Kind::Claim, namespace: text("namespace"), name: text("name") }
}

/// Why a Pod cannot have this claim yet; `None` if it can.
pub(crate) fn obstacle(name: &str, claim: Option<&Object>) -> Option<String> {
    match claim {
        None => Some(format!("persistentvolumeclaim {name:?} not found")),
        Some(claim) if claim.meta().deletion_timestamp.is_some() => {
            Some(format!("persistentvolumeclaim {name:?} is being deleted"))
        }
        Some(claim) if claim.status["phase"] != "Bound" => {
            Some("pod has unbound immediate PersistentVolumeClaims".to_owned())
        }
        Some(_) => None,
    }
}

/// The volumes of a Pod that have a claim, with its name.
pub(crate) fn claims_of(spec: &Value) -> impl Iterator<Item = (&str, &str)> {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str()?;
        Some((volume["name"].as_str().unwrap_or_default(), claim))
    })
}

fn named(claim: &Object) -> Option<&str> {
    claim.spec["volumeName"].as_str().filter(|name| !name.is_empty())
}

fn create(claim: &Object) -> Action {
    let name = volume_of(claim);
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid(),
    });
    let body = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONER: OURS}},
        "spec": {
            "capacity": {"storage": claim.spec["resources"]["requests"]["storage"]},
            "accessModes": claim.spec["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": claim.spec["storageClassName"].as_str().unwrap_or_default(),
            "volumeMode": claim.spec["volumeMode"].as_str().unwrap_or("Filesystem"),
            "claimRef": reference,
            "hostPath": {"path": format!("/var/lib/embedded/{name}")},
        },
    });
    Action::Create { kind: Kind::Volume, namespace: String::new(), body }
}
