//! What the checks of memcached, etcd and MySQL share: a node that is the workload cluster, a home
//! elsewhere, and replicas at home that reach nothing of the workload cluster but its API server, as
//! users who may do what the controller's page says and no more.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use model::{ShardId, uid_hash};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::Scene;
use crate::harness::control_plane::ControlPlane;
use crate::harness::faults::address;
use crate::harness::home::{self, NAMESPACE, Owners};
use crate::harness::image::{AUTHORITIES, Image, PAUSE};
use crate::harness::kubectl;
use crate::harness::manager::{self, Manager};
use crate::harness::node::Node;
use crate::harness::process::free_port;
use crate::harness::volumes::Volumes;
use crate::harness::wait::{self, Stopwatch};

/// How long a step of a scenario may take.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// Our own image, which Jobs of controllers run.
const IMAGE: &str = "leasehold.test/leasehold:1";
/// The ServiceAccount of the replicas in the workload cluster.
const ACCOUNT: &str = "manager";

/// The two clusters and the replicas.
pub struct Stage<'a> {
    managers: Vec<Manager>,
    /// Storage of the workload cluster.
    pub volumes: Volumes,
    /// The cluster in which the replicas meet.
    pub home: ControlPlane,
    /// The workload cluster.
    pub node: Node,
    scene: &'a Scene,
    controller: &'static str,
}

impl<'a> Stage<'a> {
    /// Starts both clusters with `images`, and replicas that run `controller`.
    pub async fn start(
        scene: &'a Scene,
        controller: &'static str,
        images: &[Image],
        replicas: usize,
    ) -> Result<Self> {
        let watch = Stopwatch::start();
        let (tools, dir) = (scene.tools(), scene.dir().join("images"));
        let pause = Image::pack(PAUSE, &tools.pause(), &[], "", &dir)?;
        let own = Image::pack(IMAGE, &tools.leasehold(), &[AUTHORITIES], "", &dir)?;
        let images: Vec<&Image> = [&pause, &own].into_iter().chain(images).collect();
        let (node, home) = tokio::try_join!(
            Node::start(scene, "work", &images),
            ControlPlane::local(scene, "home")
        )?;
        let mut node = node;
        node.add_dns(scene).await?;
        let volumes = Volumes::start(&node).await?;
        node.hide_pods()?;
        home::install(&home.kubectl).await?;
        let mut this = Self { managers: Vec::new(), volumes, home, node, scene, controller };
        this.admit().await?;
        for index in 0..replicas {
            this.managers.push(this.replica(index)?);
        }
        println!("a node, a home and {replicas} replicas are up after {watch}");
        Ok(this)
    }

    /// Gives the workload cluster the kinds, and the replicas their rights there.
    async fn admit(&self) -> Result<()> {
        let kubectl = &self.node.control.kubectl;
        home::install(kubectl).await?;
        kubectl.run(&["create", "serviceaccount", ACCOUNT, "-n", NAMESPACE]).await?;
        let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        manager::grant(kubectl, self.controller, &user).await?;
        let arguments = ["create", "token", ACCOUNT, "-n", NAMESPACE, "--duration=10h"];
        let token = kubectl.run(&arguments).await?;
        self.node.control.write_kubeconfig(ACCOUNT, token.trim())?;
        Ok(())
    }

    /// Starts a replica.
    fn replica(&self, index: usize) -> Result<Manager> {
        let kubeconfig =
            self.node.control.kubeconfig.with_file_name(format!("{ACCOUNT}.kubeconfig"));
        let home = &self.home;
        let log = json!({"filter": "info,engine=debug,sdk=debug,upstream=info"});
        let config = json!({
            "home": {"kubeconfig": home.kubeconfig, "context": home.name(), "allow": ["loopback"]},
            "clusters": {"kubeconfigs": [{"path": kubeconfig}]},
            "controllers": {self.controller: {"workers": 4}},
            "admin": {"bind": format!("127.0.0.1:{}", free_port()?)},
            "telemetry": {"log": log},
        });
        let mut command = Command::new(self.scene.tools().leasehold());
        command.arg("run").env("LEASEHOLD_IMAGE", IMAGE);
        Manager::spawn(self.scene, &format!("replica-{index}"), command, config)
    }

    /// The controller's example, as its page has it.
    pub fn example(&self) -> Result<Vec<Value>> {
        let builtin = leasehold::controllers::get(self.controller);
        let text = builtin.context("this build does not have the controller")?.example;
        let documents = text.split("\n---\n").map(serde_saphyr::from_str);
        Ok(documents.collect::<Result<Vec<Value>, _>>()?)
    }

    /// Applies objects to the workload cluster.
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        let text: Vec<_> = objects.iter().map(Value::to_string).collect();
        self.node.control.kubectl.apply(&text.join("\n---\n")).await.map(drop)
    }

    /// Merges `patch` into the object at `path`.
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<()> {
        kubectl::merge(&self.node.control.client, path, patch).await
    }

    /// The object at `path`; null if there is none.
    pub async fn get(&self, path: &str) -> Result<Value> {
        Ok(kubectl::get(&self.node.control.client, path).await?.unwrap_or_default())
    }

    /// The Pods of the default namespace with this label.
    pub async fn pods(&self, label: &str) -> Result<Vec<Value>> {
        let selector = label.replace('=', "%3D").replace('/', "%2F");
        let path = format!("/api/v1/namespaces/default/pods?labelSelector={selector}");
        kubectl::list(&self.node.control.client, &path).await
    }

    /// Waits until the object at `path` is as it should be, and gives it.
    pub async fn until(
        &mut self,
        path: &str,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let mut last = Value::Null;
        let watch = Stopwatch::start();
        let outcome = wait::until(DEADLINE, what, async || {
            self.check_alive()?;
            last = self.get(path).await?;
            Ok(is_so(&last).then(|| last.clone()))
        })
        .await;
        let found = outcome.with_context(|| format!("last seen: {}", last["status"]))?;
        println!("  {what}: after {watch}");
        Ok(found)
    }

    /// Waits until the default namespace has nothing of these kinds for which `is_theirs` holds.
    pub async fn gone(&mut self, kinds: &[&str], is_theirs: impl Fn(&Value) -> bool) -> Result<()> {
        let mut left: Vec<String> = Vec::new();
        let outcome = wait::until(DEADLINE, "everything to be gone", async || {
            self.check_alive()?;
            left.clear();
            for kind in kinds {
                let path = format!("/api/v1/namespaces/default/{kind}");
                let found = kubectl::list(&self.node.control.client, &path).await?;
                let theirs = found.iter().filter(|object| is_theirs(object));
                left.extend(theirs.map(|object| kubectl::name(object).to_owned()));
            }
            Ok(left.is_empty().then_some(()))
        })
        .await;
        outcome.with_context(|| format!("left behind: {}", left.join(", ")))
    }

    /// Fails if a replica has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        self.managers.iter_mut().try_for_each(Manager::check_alive)
    }

    /// Kills the replica that owns the object at `path` with SIGKILL; another takes over, and one like it
    /// starts.
    pub async fn kill_owner(&mut self, path: &str) -> Result<()> {
        let object = self.get(path).await?;
        let uid = object["metadata"]["uid"].as_str().with_context(|| format!("no {path}"))?;
        let (hash, home, controller) = (uid_hash(uid), &self.home.client, self.controller);
        // A shard that is being split or handed over has no owner for a moment.
        let (shard, member) = wait::until(DEADLINE, "an owner of the object", async || {
            let owners = Owners::read(home).await?.settled.into_iter();
            let mut owners = owners.map(|(shard, owner)| Ok((shard.parse::<ShardId>()?, owner)));
            let found = owners.find_map(|owner: Result<_>| match owner {
                Ok((shard, _)) if shard.group.as_str() != controller => None,
                Ok((shard, _)) if !shard.range.contains(hash) => None,
                other => Some(other),
            });
            found.transpose()
        })
        .await?;
        let index = manager::position(&self.managers, &member)?;
        self.managers[index].kill();
        self.managers[index] = self.replica(index)?;
        println!("  replica {member}, which owned {shard}, was killed with SIGKILL");
        Ok(())
    }

    /// Fails if this machine, where the replicas are, reaches a Pod.
    pub async fn unreachable(&self, pod: &Value, port: u16) -> Result<()> {
        let address: Ipv4Addr = address(pod)?;
        let dial = timeout(Duration::from_secs(2), TcpStream::connect((address, port))).await;
        ensure!(!matches!(dial, Ok(Ok(_))), "the replicas' machine reaches Pod {address}:{port}");
        println!("  the replicas do not reach the Pods: {address}:{port} answers {dial:?}");
        Ok(())
    }

    /// Runs a line of bash on the node, where Pods and their names are reached.
    pub async fn on_node(&self, line: &str) -> Result<String> {
        let mut command = self.node.launcher().command(std::path::Path::new("bash"));
        command.args(["-c", line]);
        let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{line}: {said}{complaint}");
        Ok(said)
    }

    /// Lets every replica leave.
    pub async fn leave(mut self) -> Result<()> {
        for manager in &mut self.managers {
            manager.leave().await?;
        }
        Ok(())
    }
}

/// Sets fields of an object.
pub fn set(into: &mut Value, fields: &Value) {
    for (key, value) in fields.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}

/// A small volume of the default namespace, such as one for backups.
pub fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "256Mi"}},
        },
    })
}
