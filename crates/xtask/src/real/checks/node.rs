//! The chart on a node that runs real containers, managing the cluster it is in and a second one
//! it finds in a Secret, under a steady stream of changes: Pods are killed, the release is
//! upgraded, and nothing is lost. Then it is uninstalled, and nothing is left but CRDs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use serde_json::Value;

use crate::real::audit::{self, Event};
use crate::real::control_plane::{ControlPlane, Spec};
use crate::real::helm::{Helm, chart};
use crate::real::image::{AUTHORITIES, Image, PAUSE};
use crate::real::load::{self, Load, Target};
use crate::real::manager::{self, NAMESPACE};
use crate::real::node::Node;
use crate::real::process::Launcher;
use crate::real::wait::{self, Stopwatch};
use crate::real::{Scene, kubectl};

const DEADLINE: Duration = Duration::from_secs(120);

/// Two controller groups in each of two clusters: as many shards, until one is divided, as may be where
/// a machine is busy with other things and reconciles take long.
const GROUPS: usize = 4;
const REPLICAS: usize = 3;

/// TDSets in the cluster whose Pods are real, and in the other.
const SETS: [usize; 2] = [6, 40];
const PAUSE_BETWEEN_CHANGES: Duration = Duration::from_millis(250);

const REPOSITORY: &str = "leasehold.test/leasehold";
const RELEASE: &str = "leasehold";

/// Who the replicas are in their own cluster, and in the other.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:leasehold-system:leasehold";
const REMOTE_USER: &str = "fleet-manager";

/// The two clusters.
struct Stage {
    node: Node,
    remote: ControlPlane,
    helm: Helm,
}

/// Does it.
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let stage = Stage::set(scene).await?;
    println!("a node with real containers and a second cluster are up after {watch}");

    let watch = Stopwatch::start();
    stage.install().await?;
    stage.settled().await?;
    println!("helm install --wait, and {REPLICAS} Pods share {GROUPS} shards after {watch}");
    stage.limited_rights().await?;

    let [real, bare] = SETS;
    let local = &stage.node.control;
    local.kubectl.apply(&load::manifests(real, PAUSE)).await?;
    stage.remote.kubectl.apply(&load::manifests(bare, PAUSE)).await?;
    let targets = vec![Target::new(local, real, true), Target::new(&stage.remote, bare, false)];
    let load = Load::start(targets, PAUSE_BETWEEN_CHANGES);

    stage.kill_pods().await?;
    stage.upgrade().await?;
    let watch = Stopwatch::start();
    let expected = load.settle(DEADLINE).await?;
    println!("{} changes under way had all taken effect {watch} later", expected.changes);

    stage.verify_audit()?;
    stage.uninstall().await
}

impl Stage {
    async fn set(scene: &Scene) -> Result<Self> {
        let (tools, dir) = (scene.tools(), scene.dir().join("images"));
        let pause = Image::pack(PAUSE, &tools.pause(), &[], "", &dir)?;
        let pack = |tag| {
            let name = format!("{REPOSITORY}:{tag}");
            Image::pack(&name, &tools.leasehold(), &[AUTHORITIES], tag, &dir)
        };
        let node = Node::start(scene, "local", &[&pause, &pack("one")?, &pack("two")?]).await?;
        let remote = Spec {
            name: "remote",
            address: node.machine_address(),
            service_cidr: "10.0.0.0/24",
            tokens: &[format!("fleet,{REMOTE_USER},{REMOTE_USER},")],
            flags: &[],
            launcher: Launcher::default(),
        };
        let remote = ControlPlane::start(scene, &remote).await?;
        let helm = Helm::new(scene, &node.control);
        let this = Self { node, remote, helm };
        this.prepare_remote().await?;
        Ok(this)
    }

    /// CRDs and a user with the controllers' rights there; its kubeconfig in a Secret here.
    async fn prepare_remote(&self) -> Result<()> {
        let kubectl = &self.remote.kubectl;
        kubectl.apply_path(&chart().join("crds")).await?;
        kubectl.established().await?;
        for controller in ["tdset", "configmonitor"] {
            manager::grant(kubectl, controller, REMOTE_USER).await?;
        }
        let kubeconfig = self.remote.write_kubeconfig("fleet", "fleet")?;
        let file = format!("--from-file=remote={}", kubeconfig.display());
        let local = &self.node.control.kubectl;
        local.run(&["create", "namespace", NAMESPACE]).await?;
        local.run(&["create", "secret", "generic", "fleet", "-n", NAMESPACE, &file]).await?;
        Ok(())
    }

    async fn install(&self) -> Result<()> {
        let mut arguments = vec!["install", RELEASE];
        let values = values("one");
        let chart = chart().display().to_string();
        arguments.extend([chart.as_str(), "--namespace", NAMESPACE, "--wait", "--timeout", "2m"]);
        arguments.extend(values.iter().flat_map(|value| ["--set", value]));
        self.helm.run(&arguments).await.map(drop)
    }

    /// Waits until the replicas share all shards and every Pod is ready.
    async fn settled(&self) -> Result<BTreeMap<String, Value>> {
        let client = &self.node.control.client;
        let mut last = String::new();
        let outcome = wait::until(DEADLINE, "every shard to be owned by a ready Pod", async || {
            let shards = manager::shards(client).await?;
            let pods = self.pods().await?;
            let ready = pods.values().filter(|pod| load::holds(pod, "Ready")).count();
            let ours = |owner: &str| pods.keys().any(|pod| owner.starts_with(pod.as_str()));
            let settled = shards.unsettled == 0
                && shards.whole()? == GROUPS
                && shards.owners.iter().all(|(_, owner)| ours(owner))
                && (ready, pods.len()) == (REPLICAS, REPLICAS);
            last = format!("{shards:?}; {ready} ready of {:?}", pods.keys());
            Ok(settled.then_some(pods))
        });
        outcome.await.with_context(|| format!("at last: {last}"))
    }

    /// The replicas' Pods by name, those on their way out included.
    async fn pods(&self) -> Result<BTreeMap<String, Value>> {
        let selector = format!("labelSelector=app.kubernetes.io/instance%3D{RELEASE}");
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?{selector}");
        let pods = kubectl::list(&self.node.control.client, &path).await?;
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(pods.into_iter().map(|pod| (name(&pod), pod)).collect())
    }

    /// The ServiceAccount may do what its controllers do, and nothing beyond.
    async fn limited_rights(&self) -> Result<()> {
        let kubectl = &self.node.control.kubectl;
        for question in [
            "* *",
            "get secrets",
            "create pods",
            "delete deployments.apps",
            "create clusterrolebindings.rbac.authorization.k8s.io",
            "update leases.coordination.k8s.io -n kube-system",
            "escalate clusterroles.rbac.authorization.k8s.io",
            "impersonate users",
        ] {
            let mut arguments = vec!["auth", "can-i", "--as", SERVICE_ACCOUNT];
            arguments.extend(question.split(' '));
            if !question.contains("-n") {
                arguments.push("--all-namespaces");
            }
            let said = kubectl.refused(&arguments, "").await?;
            ensure!(!said.contains("error"), "kubectl auth can-i {question}: {said}");
        }
        Ok(())
    }

    /// SIGKILL to the process of one owner after the other; each comes back by itself, as another
    /// member, and what its earlier life owned is taken over.
    async fn kill_pods(&self) -> Result<()> {
        for _ in 0..2 {
            let shards = manager::shards(&self.node.control.client).await?;
            let (_, member) = shards.owners.first().context("nobody owns a shard")?.clone();
            let mut pods = self.pods().await?.into_iter();
            let victim = pods.find(|(pod, _)| member.starts_with(pod.as_str()));
            let (victim, pod) = victim.with_context(|| format!("{member} is no Pod of ours"))?;
            let container = container_id(&pod).with_context(|| format!("{victim} runs nothing"))?;
            let watch = Stopwatch::start();
            self.node.kill_container(container)?;
            let what = format!("the shards of {member} to be taken over");
            wait::until(DEADLINE, &what, async || {
                let shards = manager::shards(&self.node.control.client).await?;
                let gone = shards.owners.iter().all(|(_, owner)| *owner != member);
                Ok((gone && shards.whole()? == GROUPS).then_some(()))
            })
            .await?;
            println!("a Pod was killed with SIGKILL; its shards had new owners after {watch}");
            let pods = self.settled().await?;
            let status = &pods.get(&victim).context("a killed container ends no Pod")?["status"];
            let restarts = status["containerStatuses"][0]["restartCount"].as_u64();
            ensure!(restarts > Some(0), "{victim} was not restarted: {status}");
        }
        Ok(())
    }

    /// Another image, Pod by Pod.
    async fn upgrade(&self) -> Result<()> {
        let watch = Stopwatch::start();
        let values = values("two");
        let chart = chart().display().to_string();
        let mut arguments = vec!["upgrade", RELEASE, &chart, "--namespace", NAMESPACE];
        arguments.extend(["--wait", "--timeout", "4m"]);
        arguments.extend(values.iter().flat_map(|value| ["--set", value]));
        self.helm.run(&arguments).await?;
        let pods = self.settled().await?;
        let old: Vec<&String> = pods
            .iter()
            .filter(|(_, pod)| pod["spec"]["containers"][0]["image"] != format!("{REPOSITORY}:two"))
            .map(|(name, _)| name)
            .collect();
        ensure!(old.is_empty(), "{old:?} run the old image after the upgrade");
        println!("helm upgrade --wait, and every shard had a new owner after {watch}");
        Ok(())
    }

    /// The witnesses: every write by its shard's owner, and no request that was refused.
    fn verify_audit(&self) -> Result<()> {
        let local = audit::read(&self.node.control.audit_log())?;
        let remote = audit::read(&self.remote.audit_log())?;
        let report = audit::verify(&local, &[("local", &local), ("remote", &remote)]);
        let denied = |events: &[Event], user| audit::denied(events, user);
        let wrong =
            [report.violations, denied(&local, SERVICE_ACCOUNT), denied(&remote, REMOTE_USER)]
                .concat();
        println!(
            "{} writes by {} members in {} tenures; {} requests of the ServiceAccount; {} wrong or denied",
            report.writes,
            report.members.len(),
            report.tenures,
            audit::answered(&local, SERVICE_ACCOUNT),
            wrong.len()
        );
        ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
        ensure!(audit::answered(&local, SERVICE_ACCOUNT) > 0, "nobody used the ServiceAccount");
        ensure!(report.tenures > GROUPS && report.writes > 0, "no shard ever changed owners");
        Ok(())
    }

    /// Nothing of the release is left, nor what its replicas made in the home cluster.
    async fn uninstall(&self) -> Result<()> {
        let watch = Stopwatch::start();
        self.helm.run(&["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait"]).await?;
        let kubectl = &self.node.control.kubectl;
        let mut left = Vec::new();
        let outcome = wait::until(DEADLINE, "everything of the release to be gone", async || {
            left = self.left_behind().await?;
            Ok(left.is_empty().then_some(()))
        })
        .await;
        outcome.with_context(|| format!("left behind: {}", left.join(", ")))?;
        let answer =
            kubectl.run(&["get", "crd", "-o", "jsonpath={.items[*].metadata.name}"]).await?;
        let present: BTreeSet<_> = answer.split_whitespace().map(str::to_owned).collect();
        let expected = leasehold::crds().iter().map(ResourceExt::name_any).collect();
        ensure!(present == expected, "CRDs should outlive the release: {present:?}");
        println!("helm uninstall: nothing left but CRDs and what users made after {watch}");
        Ok(())
    }

    /// Objects of the release's namespace and cluster-wide objects that are ours.
    async fn left_behind(&self) -> Result<Vec<String>> {
        let client = &self.node.control.client;
        let namespaced = format!("namespaces/{NAMESPACE}");
        // What Kubernetes itself puts into every namespace, and the Secret that we made.
        let expected = ["kube-root-ca.crt", "default", "fleet"];
        let mut left = Vec::new();
        for (group, kinds) in [
            ("/api/v1", "pods services configmaps serviceaccounts secrets endpoints"),
            ("/apis/apps/v1", "deployments replicasets"),
            ("/apis/policy/v1", "poddisruptionbudgets"),
            ("/apis/coordination.k8s.io/v1", "leases"),
            ("/apis/discovery.k8s.io/v1", "endpointslices"),
            ("/apis/leasehold.dev/v1alpha1", "members shardmaps"),
            ("/apis/rbac.authorization.k8s.io/v1", "roles rolebindings"),
        ] {
            for kind in kinds.split(' ') {
                let found = kubectl::list(client, &format!("{group}/{namespaced}/{kind}")).await?;
                let names = found.iter().filter_map(|item| item["metadata"]["name"].as_str());
                let unexpected = names.filter(|name| !expected.contains(name));
                left.extend(unexpected.map(|name| format!("{kind}/{name}")));
            }
        }
        for kind in ["clusterroles", "clusterrolebindings"] {
            let path = format!("/apis/rbac.authorization.k8s.io/v1/{kind}");
            let found = kubectl::list(client, &path).await?;
            let names = found.iter().filter_map(|item| item["metadata"]["name"].as_str());
            let ours = names.filter(|name| name.starts_with(RELEASE));
            left.extend(ours.map(|name| format!("{kind}/{name}")));
        }
        Ok(left)
    }
}

/// The id of a Pod's only container, without the name of its runtime.
fn container_id(pod: &Value) -> Option<&str> {
    pod["status"]["containerStatuses"][0]["containerID"].as_str()?.split("//").nth(1)
}

fn values(tag: &str) -> Vec<String> {
    vec![
        format!("image.repository={REPOSITORY}"),
        format!("image.tag={tag}"),
        "image.pullPolicy=Never".to_owned(),
        format!("replicas={REPLICAS}"),
        "clusters.kubeconfigSecrets={fleet}".to_owned(),
        "resources.requests.cpu=10m".to_owned(),
    ]
}
