//! Replicas that run as Pods: who they are, whether they live, and how one is killed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::fleet::Way;
use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::Pod as Object;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use portforward::PodPort;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::probe::Probe;

/// How often the Pods are listed.
const EVERY: Duration = Duration::from_secs(1);
/// How long the command that kills one may take.
const KILL_BOUND: Duration = Duration::from_secs(20);

/// Where the replicas run, and how they are reached.
pub struct Target {
    /// Their cluster.
    pub home: Client,
    /// Their namespace.
    pub namespace: String,
    /// The labels that they have and nothing else.
    pub selector: String,
    /// The container of the replica, beside which there may be others.
    pub container: String,
    /// The port of their admin server, which speaks TLS.
    pub admin_port: u16,
    /// A token whose user may read `/metrics`.
    pub token: Arc<str>,
    /// The program that kills one, given its namespace and name.
    pub kill: Option<PathBuf>,
}

/// The replicas.
pub struct Pods {
    target: Target,
    seen: watch::Receiver<Vec<Seen>>,
    known: BTreeMap<String, Life>,
    _listing: JoinSet<()>,
}

/// One that runs.
pub struct Pod {
    name: String,
    /// What is read of it.
    pub probe: Probe,
}

/// What a list showed of a Pod whose container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    /// How often its container was started again.
    restarts: i32,
}

/// What is known of a Pod.
struct Life {
    /// Restarts before the load test.
    before: i32,
    /// Restarts when it was last seen to live.
    restarts: i32,
    /// Whether it was killed and is not back.
    killed: bool,
}

impl Pods {
    /// Begins to list them.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub async fn find(target: Target) -> anyhow::Result<Self> {
        let api: Api<Object> = Api::namespaced(target.home.clone(), &target.namespace);
        let params = ListParams::default().labels(&target.selector);
        let first = api.list(&params).await;
        let first = first.with_context(|| format!("list the Pods in {}", target.namespace))?;
        let container = target.container.clone();
        let (out, seen) = watch::channel(running(first.items, &container));
        let mut listing = JoinSet::new();
        listing.spawn(async move {
            let mut tick = tokio::time::interval(EVERY);
            while !out.is_closed() {
                tick.tick().await;
                match api.list(&params).await {
                    Ok(pods) => drop(out.send_replace(running(pods.items, &container))),
                    Err(error) => tracing::debug!(%error, "cannot list the replicas' Pods"),
                }
            }
        });
        Ok(Self { target, seen, known: BTreeMap::new(), _listing: listing })
    }

    /// All of them.
    ///
    /// # Errors
    /// If there are more or less than these.
    pub fn all(&mut self, replicas: u32) -> anyhow::Result<Vec<Pod>> {
        let seen = self.seen.borrow().clone();
        let names: Vec<&str> = seen.iter().map(|pod| pod.name.as_str()).collect();
        ensure!(
            seen.len() == replicas as usize,
            "the scenario has {replicas} replicas, and {} Pods with {} run a container {} in {}: {}; fix: name \
             them with --namespace, --selector and --container",
            seen.len(),
            self.target.selector,
            self.target.container,
            self.target.namespace,
            names.join(", ")
        );
        Ok(seen.into_iter().map(|pod| self.meet(pod)).collect())
    }

    /// Those that were killed and run again.
    ///
    /// # Errors
    /// If another does not run any more, or was started again.
    pub fn check(&mut self) -> anyhow::Result<Vec<Pod>> {
        let seen = self.seen.borrow().clone();
        let mut back = Vec::new();
        for (name, life) in &self.known {
            match seen.iter().find(|pod| pod.name == *name) {
                Some(pod) if life.killed && pod.restarts > life.restarts => back.push(pod.clone()),
                Some(pod) if !life.killed && pod.restarts > life.restarts => {
                    bail!(
                        "{name} ended on its own and was started again; see kubectl logs --previous"
                    )
                }
                None if !life.killed => bail!("{name} does not run any more"),
                Some(_) | None => {}
            }
        }
        Ok(back.into_iter().map(|pod| self.meet(pod)).collect())
    }

    fn meet(&mut self, Seen { name, restarts }: Seen) -> Pod {
        let before = self.known.get(&name).map_or(restarts, |life| life.before);
        self.known.insert(name.clone(), Life { before, restarts, killed: false });
        let shown = match restarts - before {
            0 => name.clone(),
            again => format!("{name}.{}", again + 1),
        };
        let Target { home, namespace, admin_port, token, .. } = &self.target;
        let port = PodPort { namespace: namespace.clone(), pod: name.clone(), port: *admin_port };
        let way = Way::Pod { port, tls: true };
        Pod { name, probe: Probe::pod(shown, home.clone(), way, Arc::clone(token)) }
    }

    /// The names of those that were killed and were not seen to run again.
    pub fn away(&self) -> Vec<String> {
        let away = self.known.iter().filter(|(_, life)| life.killed);
        away.map(|(name, _)| name.clone()).collect()
    }

    /// Kills the process of one. Returns the Pod's name.
    ///
    /// # Errors
    /// If no program does that, or it fails.
    pub async fn kill(&mut self, pod: &Pod) -> anyhow::Result<String> {
        let program = self.target.kill.as_ref();
        let program = program.context("nothing kills a Pod's process: give --kill PROGRAM")?;
        let shown = program.display();
        let mut command = Command::new(program);
        command.arg(&self.target.namespace).arg(&pod.name).kill_on_drop(true);
        if let Some(life) = self.known.get_mut(&pod.name) {
            life.killed = true;
        }
        let output = tokio::time::timeout(KILL_BOUND, command.output()).await;
        let output = output.with_context(|| format!("{shown} takes more than {KILL_BOUND:?}"))?;
        let output = output.with_context(|| format!("run {shown}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{shown} {}: {}: {said}", pod.name, output.status);
        Ok(pod.name.clone())
    }
}

/// Those whose container of this name runs and that are not being deleted; oldest first.
fn running(pods: Vec<Object>, container: &str) -> Vec<Seen> {
    let mut pods: Vec<Object> =
        pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
    pods.sort_by_cached_key(|pod| (pod.creation_timestamp().map(|time| time.0), pod.name_any()));
    let seen = pods.into_iter().filter_map(|pod| {
        let name = pod.name_any();
        let mut statuses = pod.status?.container_statuses?.into_iter();
        let replica = statuses.find(|status| status.name == container)?;
        replica.state?.running?;
        Some(Seen { name, restarts: replica.restart_count })
    });
    seen.collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, created: &str, state: &str, restarts: i32) -> Object {
        let metadata = json!({ "name": name, "creationTimestamp": created });
        let container = |name: &str, state: &str, restarts: i32| {
            json!({
                "name": name, "image": "", "imageID": "", "ready": true, "restartCount": restarts,
                "state": { state: {} },
            })
        };
        // The kubelet sorts them by name.
        let all = [container("agent", "running", 0), container("leasehold", state, restarts)];
        serde_json::from_value(
            json!({ "metadata": metadata, "status": { "containerStatuses": all } }),
        )
        .unwrap()
    }

    /// Pods that were seen like this when the load test began, and those seen now.
    fn pods() -> (Pods, watch::Sender<Vec<Seen>>) {
        let home = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let target = Target {
            home: Client::try_from(home).unwrap(),
            namespace: "leasehold-system".to_owned(),
            selector: "app=leasehold".to_owned(),
            container: "leasehold".to_owned(),
            admin_port: 8443,
            token: Arc::from("token"),
            kill: Some("/bin/true".into()),
        };
        let (out, seen) = watch::channel(vec![Seen { name: "a".to_owned(), restarts: 1 }]);
        let known = BTreeMap::new();
        (Pods { target, seen, known, _listing: JoinSet::new() }, out)
    }

    /// One that was killed, and of which nothing more is seen.
    pub async fn killed() -> Pods {
        let (mut pods, _) = pods();
        let [first] = &pods.all(1).unwrap()[..] else { panic!() };
        pods.kill(first).await.unwrap();
        pods
    }

    #[test]
    fn those_run_whose_container_does_whatever_runs_beside_it() {
        let listed = vec![
            pod("young", "2026-01-02T00:00:00Z", "running", 0),
            pod("waits", "2026-01-01T00:00:00Z", "waiting", 2),
            pod("old", "2026-01-01T00:00:00Z", "running", 3),
        ];
        let names: Vec<_> =
            running(listed, "leasehold").into_iter().map(|pod| (pod.name, pod.restarts)).collect();
        assert_eq!(names, [("old".to_owned(), 3), ("young".to_owned(), 0)]);
    }

    #[tokio::test]
    async fn one_that_was_killed_is_another_when_it_is_back() {
        let (mut pods, out) = pods();
        assert!(
            pods.all(2)
                .is_err_and(|error| error.to_string().contains("run a container leasehold in"))
        );
        let [first] = &pods.all(1).unwrap()[..] else { panic!() };
        assert_eq!(first.probe.name, "a");
        pods.kill(first).await.unwrap();
        assert_eq!(pods.away(), ["a"]);
        // The kubelet has not noticed, then it has, then it runs again.
        assert!(pods.check().unwrap().is_empty());
        out.send_replace(Vec::new());
        assert!(pods.check().unwrap().is_empty());
        out.send_replace(vec![Seen { name: "a".to_owned(), restarts: 2 }]);
        let [again] = &pods.check().unwrap()[..] else { panic!() };
        assert_eq!(again.probe.name, "a.2");
        assert!(pods.check().unwrap().is_empty() && pods.away().is_empty());
    }

    #[tokio::test]
    async fn one_that_ends_on_its_own_fails_the_run() {
        let (mut pods, out) = pods();
        pods.all(1).unwrap();
        out.send_replace(vec![Seen { name: "a".to_owned(), restarts: 2 }]);
        assert!(pods.check().is_err_and(|e| e.to_string().contains("started again")));
        out.send_replace(Vec::new());
        assert!(pods.check().is_err_and(|e| e.to_string().contains("does not run")));
    }
}
