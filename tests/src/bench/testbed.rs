//! One API server with etcd and many objects, for the peers to work on.

use std::cell::Cell;

use anyhow::{Context as _, Result};
use futures::io::AsyncBufRead;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::objects;
use crate::harness::control_plane::{ControlPlane, Spec};
use crate::harness::{Scene, home, kubectl};

/// The namespace of the objects.
pub const FULL: &str = "bench";
/// A namespace with a single object of each kind: a peer that has cached it is watching.
pub const SINGLE: &str = "bench-single";
/// Concurrent requests while objects are created.
const WRITERS: usize = 16;
const CUSTOMS: Kind = Kind { root: "/apis/bench.leasehold.dev/v1", plural: "benches" };
const PODS: Kind = Kind { root: "/api/v1", plural: "pods" };
const TRIGGER: &str = "/api/v1/namespaces/bench/configmaps/trigger";

/// A kind of objects, as in paths.
#[derive(Clone, Copy, Debug)]
struct Kind {
    root: &'static str,
    plural: &'static str,
}

/// The server and its objects.
pub struct Testbed<'a> {
    /// Where files and logs go.
    pub scene: &'a Scene,
    /// The server.
    pub plane: ControlPlane,
    /// How many objects of each kind there are.
    pub objects: usize,
    numbers: Cell<u64>,
}

impl<'a> Testbed<'a> {
    /// Starts the server and defines the kinds.
    pub async fn prepare(scene: &'a Scene, objects: usize) -> Result<Self> {
        // No controller creates the ServiceAccounts that Pods would get.
        let flags = ["--disable-admission-plugins=ServiceAccount"];
        let spec = Spec { flags: &flags, ..Spec::local("bench") };
        let plane = ControlPlane::start(scene, &spec).await?;
        home::install(&plane.kubectl).await?;
        plane.kubectl.apply(&objects::definition().to_string()).await?;
        plane.kubectl.established().await?;
        for namespace in [FULL, SINGLE] {
            plane.kubectl.run(&["create", "namespace", namespace]).await?;
        }
        let this = Self { scene, plane, objects, numbers: Cell::new(0) };
        let map = json!({"metadata": {"name": "trigger"}, "data": {"number": "0"}});
        this.write("POST", "/api/v1/namespaces/bench/configmaps", "bench", &map).await?;
        Ok(this)
    }

    /// Creates the custom resources.
    pub async fn add_customs(&self) -> Result<()> {
        self.add("helm", CUSTOMS, "leasehold", objects::custom).await
    }

    /// Creates the Pods.
    pub async fn add_pods(&self) -> Result<()> {
        self.add("kube-controller-manager", PODS, "kubelet", objects::pod).await
    }

    /// A number that was not used before.
    pub fn next_number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// Changes the ConfigMap on which every object depends.
    pub async fn pull_trigger(&self, number: u64) -> Result<()> {
        let patch = json!({"data": {"number": number.to_string()}});
        kubectl::merge(&self.plane.client, TRIGGER, &patch).await
    }

    /// Changes one custom resource.
    pub async fn touch(&self, index: usize, number: u64) -> Result<()> {
        let path = format!("{}/{}", CUSTOMS.collection(FULL), objects::name(index));
        kubectl::merge(&self.plane.client, &path, &json!({"spec": {"touched": number}})).await
    }

    /// A watch of the custom resources from now on: lines of JSON.
    pub async fn follow(&self) -> Result<impl AsyncBufRead + use<>> {
        let path = CUSTOMS.collection(FULL);
        let list = kubectl::get(&self.plane.client, &format!("{path}?limit=1")).await?;
        let list = list.context("the custom resources are not there")?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let watch = format!("{path}?watch=true&resourceVersion={version}");
        let request = http::Request::get(&watch).body(Vec::new())?;
        self.plane.client.request_stream(request).await.with_context(|| format!("GET {watch}"))
    }

    /// Creates objects as in a real cluster: one manager writes the object, another its status, so
    /// that the server has managedFields of both.
    async fn add(
        &self,
        creator: &str,
        kind: Kind,
        reporter: &str,
        object: fn(usize, &str) -> Value,
    ) -> Result<()> {
        let places = (0..self.objects).map(|index| (index, FULL)).chain([(0, SINGLE)]);
        stream::iter(places)
            .map(async |(index, namespace)| {
                let (object, path) = (object(index, namespace), kind.collection(namespace));
                self.write("POST", &path, creator, &object).await?;
                let path = format!("{path}/{}/status", kubectl::name(&object));
                self.write("PATCH", &path, reporter, &json!({"status": object["status"]})).await
            })
            .buffer_unordered(WRITERS)
            .try_collect()
            .await
    }

    async fn write(&self, method: &str, path: &str, manager: &str, body: &Value) -> Result<()> {
        let path = format!("{path}?fieldManager={manager}");
        match method {
            "PATCH" => kubectl::merge(&self.plane.client, &path, body).await,
            _ => kubectl::create(&self.plane.client, &path, body).await,
        }
    }
}

impl Kind {
    fn collection(self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.root, self.plural)
    }
}
