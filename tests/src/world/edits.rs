//! What users do to the objects of a world, and what an administrator sees.
//!
//! Users reach a server without the network: their writes are never lost, so we know the last
//! desired state.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, CustomResourceExt};
use serde_json::{Value, json};
use sharding::api::Member;

use super::history::{Edit, Event, History};
use super::machine::Machine;
use super::mirror::{EVERY, FINALIZER, ROLE, SOURCE};
use super::plan::Setup;
use super::server::SimServer;
use crate::install;

/// The namespace of the users' objects.
const NAMESPACE: &str = "default";
/// The namespace of the fleet's own objects.
const HOME_NAMESPACE: &str = "leasehold-system";
/// The interval at which some sources ask for a reconcile, in seconds.
pub const EVERY_S: u64 = 3;
/// The interval at which the only busy source asks for one.
const HOT_EVERY_S: u64 = 1;

/// The users of one world.
#[derive(Debug)]
pub struct Users {
    rng: fastrand::Rng,
    history: History,
    setup: Setup,
    /// The number of the last change, so that each change is different.
    change: u64,
}

impl Users {
    /// Users whose choices come from this seed.
    pub fn new(seed: u64, setup: Setup, history: History) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), history, setup, change: 0 }
    }

    /// Installs what the manager needs in every cluster, and the first objects.
    pub fn prepare(&mut self, world: &Machine, servers: &[Arc<SimServer>]) {
        let setup = self.setup;
        world.block_on(async {
            install::crds(&client(&servers[0]), sharding::api::crds()).await;
            install::namespace(&client(&servers[0]), HOME_NAMESPACE).await;
            if setup.sets > 0 {
                for server in &servers[setup.workloads()] {
                    install::crds(&client(server), [controllers::TDSet::crd()]).await;
                }
            }
        });
        for server in &servers[setup.workloads()] {
            for number in 0..setup.sources {
                world.block_on(self.write_source(0, server, number));
            }
            for number in 0..setup.sets {
                world.block_on(self.write_set(0, server, number));
            }
        }
    }

    /// Changes one object in a workload cluster.
    pub fn change(&mut self, at_us: u64, world: &Machine, servers: &[Arc<SimServer>]) {
        let server = &servers[self.rng.usize(self.setup.workloads())];
        let number = self.rng.usize(0..self.setup.sources + self.setup.sets);
        world.block_on(async {
            if number >= self.setup.sources {
                self.write_set(at_us, server, number - self.setup.sources).await;
            } else if self.rng.u8(0..4) == 0 {
                self.delete_source(at_us, server, number).await;
            } else {
                self.write_source(at_us, server, number).await;
            }
        });
    }

    async fn write_source(&mut self, at_us: u64, server: &SimServer, number: usize) {
        let maps: Api<ConfigMap> = Api::namespaced(client(server), NAMESPACE);
        let name = format!("source-{number}");
        self.change += 1;
        let data = Some(BTreeMap::from([("change".to_owned(), self.change.to_string())]));
        let present = maps.get_opt(&name).await.expect("the server answers users");
        let (verb, written) = match present {
            // Users do not change what is being deleted.
            Some(map) if map.metadata.deletion_timestamp.is_some() => return,
            // What was deleted often stays deleted.
            None if at_us > 0 && self.rng.u8(0..3) > 0 => return,
            Some(map) => {
                let changed = ConfigMap { data, ..map };
                ("update", maps.replace(&name, &PostParams::default(), &changed).await)
            }
            None => {
                let source = ConfigMap { data, ..self.new_source(name.clone(), number) };
                ("create", maps.create(&PostParams::default(), &source).await)
            }
        };
        let written = written.expect("nobody else writes, and the name is free");
        self.record(at_us, server, verb, "configmap", &written.metadata);
    }

    /// Every second source has a finalizer; every third asks for a reconcile at an interval, or only the
    /// first, and more often, if it alone is busy.
    fn new_source(&self, name: String, number: usize) -> ConfigMap {
        let hot = self.setup.hot;
        let every_s = if hot { HOT_EVERY_S } else { EVERY_S };
        let every = BTreeMap::from([(EVERY.to_owned(), every_s.to_string())]);
        let asks = if hot { number == 0 } else { number % 3 == 2 };
        let metadata = ObjectMeta {
            name: Some(name),
            labels: Some(BTreeMap::from([(ROLE.to_owned(), SOURCE.to_owned())])),
            annotations: asks.then_some(every),
            finalizers: (number % 2 == 1).then(|| vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    async fn delete_source(&mut self, at_us: u64, server: &SimServer, number: usize) {
        let maps: Api<ConfigMap> = Api::namespaced(client(server), NAMESPACE);
        let name = format!("source-{number}");
        let present = maps.get_opt(&name).await.expect("the server answers users");
        if let Some(map) = present.filter(|map| map.metadata.deletion_timestamp.is_none()) {
            maps.delete(&name, &DeleteParams::default()).await.expect("it exists");
            self.record(at_us, server, "delete", "configmap", &map.metadata);
        }
    }

    async fn write_set(&mut self, at_us: u64, server: &SimServer, number: usize) {
        let name = format!("set-{number}");
        self.change += 1;
        let set = json!({
            "apiVersion": "schedule.rs/v1", "kind": "TDSet", "metadata": {"name": name},
            "spec": {
                "container": {"image": format!("app:{}", self.change), "port": 80},
                "defaultReplica": 1 + self.change % 5,
                "schedulingConfig": [{"startTime": 8, "endTime": 20, "replica": 3}],
            },
        });
        let resource = ApiResource::erase::<controllers::TDSet>(&());
        let sets: Api<DynamicObject> = Api::namespaced_with(client(server), NAMESPACE, &resource);
        let params = PatchParams::apply("user").force();
        let applied = sets.patch(&name, &params, &Patch::Apply(&set)).await;
        let applied = applied.expect("the server answers users");
        self.record(at_us, server, "update", "tdset", &applied.metadata);
    }

    fn record(
        &self,
        at_us: u64,
        server: &SimServer,
        verb: &'static str,
        kind: &'static str,
        of: &ObjectMeta,
    ) {
        let (name, uid) = (of.name.clone(), of.uid.clone());
        let (name, uid) = (name.unwrap_or_default(), uid.unwrap_or_default());
        let edit = Edit { cluster: server.number, verb, kind, name, uid };
        self.history.add(at_us, Event::Edited(edit));
    }
}

/// Sets or clears the request to drain every member of an identity.
pub async fn drain(home: &SimServer, identity: &str, drain: bool) {
    let members: Api<Member> = Api::namespaced(client(home), HOME_NAMESPACE);
    let listed = members.list(&ListParams::default()).await.expect("the server answers users");
    let patch = Patch::Merge(json!({"spec": {"drain": drain}}));
    for member in listed.items.iter().filter(|member| member.spec.identity == identity) {
        let name = member.metadata.name.as_deref().expect("a stored object has a name");
        let written = members.patch(name, &PatchParams::default(), &patch).await;
        written.expect("the server answers users");
    }
}

/// Every object of a kind.
pub async fn list(server: &SimServer, resource: &ApiResource) -> Vec<Value> {
    let api: Api<DynamicObject> = Api::all_with(client(server), resource);
    let listed = api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let object = |object: &DynamicObject| serde_json::to_value(object).expect("it was JSON");
    listed.iter().map(object).collect()
}

fn client(server: &SimServer) -> Client {
    server.api.client()
}
