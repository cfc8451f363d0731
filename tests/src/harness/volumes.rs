//! Storage for the Pods of a node: a StorageClass whose volumes are folders of this machine.
//!
//! It does what the provisioner and the resizer of a CSI driver do, and the volumes are of type `local`,
//! so that the kubelet sets `fsGroup` as it does on a disk. A folder belongs to root, as a new disk does.
//!
//! # Invariants
//! - A volume is made when the scheduler has chosen its node, and its folder goes when the volume is
//!   released: no earlier, no later.
//! - Dropping the handle stops the task. The folders are in the node's, and go with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::kubectl;
use super::node::Node;

/// The name of the StorageClass, which is the default.
pub const CLASS: &str = "standard";

const PROVISIONER: &str = "leasehold.test/folders";
const REQUESTS: &str = "/api/v1/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
/// Which node the scheduler chose for the Pod that needs the volume.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const POLL: Duration = Duration::from_millis(250);

/// The volumes of a node.
pub struct Volumes {
    folder: PathBuf,
    client: Client,
    task: JoinHandle<()>,
}

impl Volumes {
    /// Makes the StorageClass, and volumes from now on.
    pub async fn start(node: &Node) -> Result<Self> {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {
                "name": CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": PROVISIONER, "reclaimPolicy": "Delete",
            "allowVolumeExpansion": true, "volumeBindingMode": "WaitForFirstConsumer",
        });
        node.control.kubectl.apply(&class.to_string()).await?;
        let folder = node.folder().join("volumes");
        fs::create_dir_all(&folder)?;
        let client = node.control.client.clone();
        let task = Task { client: client.clone(), folder: folder.clone() };
        let task = tokio::spawn(async move { task.run().await });
        Ok(Self { folder, client, task })
    }

    /// The folder of the volume that a PersistentVolumeClaim is bound to.
    pub async fn folder(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
        let request = kubectl::get(&self.client, &path).await?;
        let uid = request.as_ref().and_then(uid).with_context(|| format!("there is no {path}"))?;
        let folder = self.folder.join(uid);
        if !folder.exists() {
            bail!("{path} has no volume");
        }
        Ok(folder)
    }

    /// Deletes all that a volume holds, as if its disk had been replaced by an empty one. The processes
    /// that have files open should be stopped before and killed after.
    pub async fn erase(&self, namespace: &str, name: &str) -> Result<()> {
        for entry in fs::read_dir(self.folder(namespace, name).await?)? {
            let path = entry?.path();
            if path.is_dir() {
                fs::remove_dir_all(&path)?;
            } else {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Makes, grows and deletes volumes.
struct Task {
    client: Client,
    folder: PathBuf,
}

impl Task {
    async fn run(&self) {
        let mut last = String::new();
        loop {
            // What fails, for example on a conflict, is tried again.
            if let Err(error) = self.look().await {
                let error = format!("{error:#}");
                if error != last {
                    eprintln!("volumes: {error}");
                }
                last = error;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn look(&self) -> Result<()> {
        let ours = |object: &&Value| object["spec"]["storageClassName"] == CLASS;
        for request in kubectl::list(&self.client, REQUESTS).await?.iter().filter(ours) {
            let wanted = &request["spec"]["resources"]["requests"]["storage"];
            match request["status"]["phase"].as_str() {
                Some("Pending") => self.make(request).await?,
                Some("Bound") if *wanted != request["status"]["capacity"]["storage"] => {
                    self.grow(request, wanted).await?;
                }
                _ => {}
            }
        }
        for volume in kubectl::list(&self.client, VOLUMES).await?.iter().filter(ours) {
            if volume["status"]["phase"] == "Released" {
                self.delete(volume).await?;
            }
        }
        Ok(())
    }

    /// Makes the volume of a request.
    async fn make(&self, request: &Value) -> Result<()> {
        let (metadata, spec) = (&request["metadata"], &request["spec"]);
        let (Some(node), Some(uid)) =
            (metadata["annotations"][SELECTED_NODE].as_str(), uid(request))
        else {
            return Ok(());
        };
        let (folder, name) = (self.folder.join(uid), format!("pvc-{uid}"));
        if kubectl::get(&self.client, &format!("{VOLUMES}/{name}")).await?.is_some() {
            return Ok(());
        }
        fs::create_dir_all(&folder)?;
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
            "spec": {
                "capacity": spec["resources"]["requests"], "accessModes": spec["accessModes"],
                "volumeMode": "Filesystem", "storageClassName": CLASS,
                "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": metadata["namespace"], "name": metadata["name"], "uid": uid,
                },
                "local": {"path": folder},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
                ]}]}},
            },
        });
        kubectl::create(&self.client, VOLUMES, &volume).await
    }

    /// Gives the volume of a request the size that is wanted now.
    async fn grow(&self, request: &Value, wanted: &Value) -> Result<()> {
        let capacity = json!({"capacity": {"storage": wanted}});
        let volume = request["spec"]["volumeName"].as_str().unwrap_or_default();
        kubectl::merge(&self.client, &format!("{VOLUMES}/{volume}"), &json!({"spec": capacity}))
            .await?;
        let (namespace, name) = (&request["metadata"]["namespace"], kubectl::name(request));
        let namespace = namespace.as_str().unwrap_or_default();
        let status = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status");
        kubectl::merge(&self.client, &status, &json!({"status": capacity})).await
    }

    /// Deletes a volume that nobody requests any more, and its folder.
    async fn delete(&self, volume: &Value) -> Result<()> {
        let path = format!("{VOLUMES}/{}", kubectl::name(volume));
        let request = http::Request::delete(&path).body(Vec::new())?;
        self.client.request_text(request).await.with_context(|| format!("DELETE {path}"))?;
        let folder = volume["spec"]["local"]["path"].as_str().map(Path::new);
        match folder.filter(|folder| folder.starts_with(&self.folder)) {
            Some(folder) if folder.exists() => {
                fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))
            }
            _ => Ok(()),
        }
    }
}

fn uid(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}
