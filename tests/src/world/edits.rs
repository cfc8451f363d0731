//! What users do to the objects of a world, and how a cluster looks to an administrator.
//!
//! Users talk to a server without the network in between: their writes are never lost, so what they
//! last asked for is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
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
use super::site::Site;

/// Where users keep their objects.
const NAMESPACE: &str = "default";
/// Where the fleet keeps its own.
const HOME_NAMESPACE: &str = "leasehold-system";
/// How often a source that wants to be looked at wants it, in seconds.
pub const EVERY_S: u64 = 3;

/// The users of one world.
#[derive(Debug)]
pub struct Users {
    rng: fastrand::Rng,
    history: History,
    setup: Setup,
    /// Raised with each change, so that each says something new.
    change: u64,
}

impl Users {
    /// Users who draw by this seed.
    pub fn new(seed: u64, setup: Setup, history: History) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), history, setup, change: 0 }
    }

    /// Installs what the manager needs in every cluster, and the first objects.
    pub fn prepare(&mut self, world: &Machine, sites: &[Arc<Site>]) {
        let setup = self.setup;
        world.block_on(async {
            install(&client(&sites[0]), &sharding::api::crds()).await;
            let namespaces: Api<Namespace> = Api::all(client(&sites[0]));
            let metadata =
                ObjectMeta { name: Some(HOME_NAMESPACE.to_owned()), ..ObjectMeta::default() };
            let namespace = Namespace { metadata, ..Namespace::default() };
            namespaces.create(&PostParams::default(), &namespace).await.expect("home is empty");
            if setup.sets > 0 {
                for site in &sites[setup.workloads()] {
                    install(&client(site), &[controllers::TDSet::crd()]).await;
                }
            }
        });
        for site in &sites[setup.workloads()] {
            for number in 0..setup.sources {
                world.block_on(self.write_source(0, site, number));
            }
            for number in 0..setup.sets {
                world.block_on(self.write_set(0, site, number));
            }
        }
    }

    /// One change to one object of any workload cluster.
    pub fn change(&mut self, at_us: u64, world: &Machine, sites: &[Arc<Site>]) {
        let site = &sites[self.rng.usize(self.setup.workloads())];
        let number = self.rng.usize(0..self.setup.sources + self.setup.sets);
        world.block_on(async {
            if number >= self.setup.sources {
                self.write_set(at_us, site, number - self.setup.sources).await;
            } else if self.rng.u8(0..4) == 0 {
                self.delete_source(at_us, site, number).await;
            } else {
                self.write_source(at_us, site, number).await;
            }
        });
    }

    async fn write_source(&mut self, at_us: u64, site: &Site, number: usize) {
        let maps: Api<ConfigMap> = Api::namespaced(client(site), NAMESPACE);
        let name = format!("source-{number}");
        self.change += 1;
        let data = Some(BTreeMap::from([("change".to_owned(), self.change.to_string())]));
        let present = maps.get_opt(&name).await.expect("the server answers users");
        let (verb, written) = match present {
            // Nobody writes what is going.
            Some(map) if map.metadata.deletion_timestamp.is_some() => return,
            // What was deleted often stays so.
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
        self.tell(at_us, site, verb, "configmap", &written.metadata);
    }

    /// Every second one has a finalizer; every third wants to be looked at all the time.
    fn new_source(&self, name: String, number: usize) -> ConfigMap {
        let every = BTreeMap::from([(EVERY.to_owned(), EVERY_S.to_string())]);
        let metadata = ObjectMeta {
            name: Some(name),
            labels: Some(BTreeMap::from([(ROLE.to_owned(), SOURCE.to_owned())])),
            annotations: (number % 3 == 2).then_some(every),
            finalizers: (number % 2 == 1).then(|| vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    async fn delete_source(&mut self, at_us: u64, site: &Site, number: usize) {
        let maps: Api<ConfigMap> = Api::namespaced(client(site), NAMESPACE);
        let name = format!("source-{number}");
        let present = maps.get_opt(&name).await.expect("the server answers users");
        if let Some(map) = present.filter(|map| map.metadata.deletion_timestamp.is_none()) {
            maps.delete(&name, &DeleteParams::default()).await.expect("it is there");
            self.tell(at_us, site, "delete", "configmap", &map.metadata);
        }
    }

    async fn write_set(&mut self, at_us: u64, site: &Site, number: usize) {
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
        let sets: Api<DynamicObject> = Api::namespaced_with(client(site), NAMESPACE, &resource);
        let params = PatchParams::apply("user").force();
        let applied = sets.patch(&name, &params, &Patch::Apply(&set)).await;
        let applied = applied.expect("the server answers users");
        self.tell(at_us, site, "update", "tdset", &applied.metadata);
    }

    fn tell(
        &self,
        at_us: u64,
        site: &Site,
        verb: &'static str,
        kind: &'static str,
        of: &ObjectMeta,
    ) {
        let (name, uid) = (of.name.clone(), of.uid.clone());
        let (name, uid) = (name.unwrap_or_default(), uid.unwrap_or_default());
        let edit = Edit { cluster: site.number, verb, kind, name, uid };
        self.history.add(at_us, Event::Edited(edit));
    }
}

/// Asks for every member of an identity to be drained, or takes that back.
pub async fn drain(home: &Site, identity: &str, drain: bool) {
    let members: Api<Member> = Api::namespaced(client(home), HOME_NAMESPACE);
    let listed = members.list(&ListParams::default()).await.expect("the server answers users");
    let patch = Patch::Merge(json!({"spec": {"drain": drain}}));
    for member in listed.items.iter().filter(|member| member.spec.identity == identity) {
        let name = member.metadata.name.as_deref().expect("what is listed has a name");
        let written = members.patch(name, &PatchParams::default(), &patch).await;
        written.expect("the server answers users");
    }
}

/// Every object of a kind, as it is.
pub async fn list(site: &Site, resource: &ApiResource) -> Vec<Value> {
    let api: Api<DynamicObject> = Api::all_with(client(site), resource);
    let listed = api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let object = |object: &DynamicObject| serde_json::to_value(object).expect("it was JSON");
    listed.iter().map(object).collect()
}

fn client(site: &Site) -> Client {
    site.api.client()
}

async fn install(client: &Client, crds: &[CustomResourceDefinition]) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        definitions.create(&PostParams::default(), crd).await.expect("the CRD is accepted");
    }
}
