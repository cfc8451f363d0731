//! The way to the stand-ins of etcd. A process runs for each Pod that the controller's cache shows,
//! from the moment when somebody asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd::{Address, EtcdCluster, EtcdError, Gateway, Session};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use sdk::Context;
use serde_json::Value;

use super::standin::Standin;
use crate::controllers::crash::{Crash, Fate};

/// All clusters of etcd, by the uid of their EtcdCluster.
#[derive(Clone, Default)]
pub(super) struct Etcds(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    clusters: BTreeMap<String, Running>,
    crash: Option<Crash>,
    opened: usize,
}

#[derive(Default)]
struct Running {
    etcd: Standin,
    /// The uids of Pods, by name.
    pods: BTreeMap<String, String>,
}

struct Connection {
    etcds: Etcds,
    cluster: String,
    pod: String,
}

impl Etcds {
    pub(super) fn watch(&self, crash: Crash) {
        self.0.lock().unwrap().crash = Some(crash);
    }

    /// Fails if something happened that never must.
    pub(super) fn check(&self) {
        for running in self.0.lock().unwrap().clusters.values() {
            assert!(running.etcd.wrong.is_empty(), "{:?}", running.etcd.wrong);
        }
    }

    pub(super) fn voters(&self) -> usize {
        let inner = self.0.lock().unwrap();
        inner.clusters.values().map(|running| running.etcd.voters().len()).sum()
    }

    /// How many connections there were.
    pub(super) fn opened(&self) -> usize {
        self.0.lock().unwrap().opened
    }

    /// Starts and stops processes as the Pods are.
    fn follow(&self, ctx: &Context, cluster: &EtcdCluster) -> String {
        let uid = cluster.uid().unwrap();
        let pods = ctx.owned_by::<Pod>(&uid).unwrap();
        let mut inner = self.0.lock().unwrap();
        let running = inner.clusters.entry(uid.clone()).or_default();
        running.etcd.quota = 1 << 30;
        let alive = |pod: &Arc<Pod>| pod.metadata.deletion_timestamp.is_none();
        let now: BTreeMap<_, _> = pods
            .iter()
            .filter(|pod| alive(pod))
            .map(|pod| (pod.name_any(), pod.uid().unwrap()))
            .collect();
        for (name, uid) in std::mem::take(&mut running.pods) {
            if now.get(&name) == Some(&uid) {
                running.pods.insert(name, uid);
            } else {
                running.etcd.stop(&name);
            }
        }
        for pod in pods.iter().filter(|pod| alive(pod)) {
            let name = pod.name_any();
            let volume =
                ctx.get::<PersistentVolumeClaim>(pod.namespace().as_deref(), &name).unwrap();
            if running.etcd.processes.contains_key(&name) {
                continue;
            }
            let Some(volume) = volume else { continue };
            let container = &pod.spec.as_ref().unwrap().containers[0];
            let version = container.image.as_ref().unwrap().split(":v").nth(1).unwrap();
            let arguments = container.args.clone().unwrap();
            running.etcd.start(&name, &arguments, &volume.uid().unwrap(), version);
            running.pods.insert(name, pod.uid().unwrap());
        }
        running.etcd.write();
        uid
    }
}

impl Gateway for Etcds {
    fn open<'a>(
        &'a self,
        ctx: &'a Context,
        to: &'a Address,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, EtcdError>> {
        async move {
            let key = ctx.key();
            let cluster = ctx.get::<EtcdCluster>(key.namespace.as_deref(), &key.name).unwrap();
            let cluster = self.follow(ctx, &cluster.expect("it is reconciled"));
            self.0.lock().unwrap().opened += 1;
            let (etcds, pod) = (self.clone(), to.pod.clone());
            Ok(Box::new(Connection { etcds, cluster, pod }) as Box<dyn Session>)
        }
        .boxed()
    }
}

impl Session for Connection {
    fn post<'a>(
        &'a mut self,
        path: &'static str,
        body: Value,
        _limit: Duration,
    ) -> BoxFuture<'a, Result<Value, EtcdError>> {
        let lost =
            |pod: &str| EtcdError::Unreached { pod: pod.to_owned(), source: "no answer".into() };
        let mut inner = self.etcds.0.lock().unwrap();
        let reads = path.ends_with("/list") || path.ends_with("/status") || body["action"] == "GET";
        let fate = match &inner.crash {
            Some(crash) if !reads => crash.fate(path),
            _ => Fate::Done,
        };
        let etcd = &mut inner.clusters.get_mut(&self.cluster).expect("it was opened").etcd;
        let answer = match fate {
            Fate::Unsent => Err(lost(&self.pod)),
            fate => match etcd.post(&self.pod, path, &body) {
                None => Err(lost(&self.pod)),
                Some(_) if fate == Fate::Unheard => Err(lost(&self.pod)),
                Some(Ok(answer)) => Ok(answer),
                Some(Err((code, message))) => {
                    Err(EtcdError::Refused { pod: self.pod.clone(), path, code, message })
                }
            },
        };
        async move { answer }.boxed()
    }

    fn pod(&self) -> &str {
        &self.pod
    }
}
