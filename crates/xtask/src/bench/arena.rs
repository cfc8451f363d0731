//! Where peers are measured: one API server with etcd, full of objects.

use std::cell::Cell;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::objects;
use crate::real::control_plane::{ControlPlane, Spec};
use crate::real::manager::NAMESPACE as HOME_NAMESPACE;
use crate::real::{Scene, kubectl};

/// The namespace of the objects.
pub const FULL: &str = "bench";
/// One with a single object of each kind: a peer that has it in its cache is known to watch.
pub const SINGLE: &str = "bench-single";
/// Requests at once while objects are made.
const WRITERS: usize = 16;
const CUSTOMS: Kind = Kind { root: "/apis/bench.leasehold.dev/v1", plural: "benches" };
const PODS: Kind = Kind { root: "/api/v1", plural: "pods" };
const TRIGGER: &str = "/api/v1/namespaces/bench/configmaps/trigger";

/// A kind of objects, as it is found in paths.
#[derive(Clone, Copy, Debug)]
struct Kind {
    root: &'static str,
    plural: &'static str,
}

/// The server and what is in it.
pub struct Arena<'a> {
    /// Where files and logs go.
    pub scene: &'a Scene,
    /// The server.
    pub plane: ControlPlane,
    /// Objects of each kind.
    pub objects: usize,
    numbers: Cell<u64>,
}

impl<'a> Arena<'a> {
    /// Starts the server and defines what is to be there.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn prepare(scene: &'a Scene, objects: usize) -> Result<Self> {
        // Nobody makes the ServiceAccounts that Pods are given.
        let flags = ["--disable-admission-plugins=ServiceAccount"];
        let spec = Spec { flags: &flags, ..Spec::local("bench") };
        let plane = ControlPlane::start(scene, &spec).await?;
        plane.kubectl.apply_path(&xtask::root().join("deploy/charts/leasehold/crds")).await?;
        plane.kubectl.apply(&objects::definition().to_string()).await?;
        plane.kubectl.established().await?;
        for namespace in [HOME_NAMESPACE, FULL, SINGLE] {
            plane.kubectl.run(&["create", "namespace", namespace]).await?;
        }
        let this = Self { scene, plane, objects, numbers: Cell::new(0) };
        let map = json!({"metadata": {"name": "trigger"}, "data": {"number": "0"}});
        this.write("POST", "/api/v1/namespaces/bench/configmaps", "bench", &map).await?;
        Ok(this)
    }

    /// Makes the custom resources.
    ///
    /// # Errors
    /// If the server refuses one.
    pub async fn add_customs(&self) -> Result<()> {
        self.add("helm", CUSTOMS, "leasehold", objects::custom).await
    }

    /// Makes the Pods.
    ///
    /// # Errors
    /// If the server refuses one.
    pub async fn add_pods(&self) -> Result<()> {
        self.add("kube-controller-manager", PODS, "kubelet", objects::pod).await
    }

    /// A number never used before.
    pub fn next_number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// Changes the ConfigMap that every object depends on.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn pull_trigger(&self, number: u64) -> Result<()> {
        let patch = json!({"data": {"number": number.to_string()}});
        kubectl::merge(&self.plane.client, TRIGGER, &patch).await
    }

    /// Changes one custom resource.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn touch(&self, index: usize, number: u64) -> Result<()> {
        let path = format!("{}/{}", CUSTOMS.collection(FULL), objects::name(index));
        kubectl::merge(&self.plane.client, &path, &json!({"spec": {"touched": number}})).await
    }

    /// Makes objects as a cluster does: one writes the object, another its status, and the server
    /// notes down who wrote what.
    async fn add(
        &self,
        maker: &str,
        kind: Kind,
        keeper: &str,
        object: fn(usize, &str) -> Value,
    ) -> Result<()> {
        let places = (0..self.objects).map(|index| (index, FULL)).chain([(0, SINGLE)]);
        stream::iter(places)
            .map(async |(index, namespace)| {
                let (object, path) = (object(index, namespace), kind.collection(namespace));
                self.write("POST", &path, maker, &object).await?;
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let status = json!({"status": object["status"]});
                self.write("PATCH", &format!("{path}/{name}/status"), keeper, &status).await
            })
            .buffer_unordered(WRITERS)
            .try_collect()
            .await
    }

    async fn write(&self, method: &str, path: &str, manager: &str, body: &Value) -> Result<()> {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}?fieldManager={manager}"))
            .header(http::header::CONTENT_TYPE, content)
            .body(serde_json::to_vec(body)?)?;
        let answer = self.plane.client.request_text(request).await;
        answer.with_context(|| format!("{method} {path}"))?;
        Ok(())
    }
}

impl Kind {
    fn collection(self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.root, self.plural)
    }
}
