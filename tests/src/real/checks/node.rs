//! The chart on a node that runs real containers. It manages its own cluster and a second one whose
//! kubeconfig is in a Secret, under a steady stream of changes: Pods are killed, the release is
//! upgraded, and no change is lost. Then it is uninstalled, and nothing is left but CRDs, ShardMaps and the
//! coordinator's Lease.

mod killings;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use serde_json::Value;

use crate::harness::control_plane::{ControlPlane, Spec};
use crate::harness::helm::{Helm, chart};
use crate::harness::home::{self, NAMESPACE, Owners};
use crate::harness::image::{AUTHORITIES, Image, PAUSE};
use crate::harness::load::{self, Load, LoadTarget};
use crate::harness::manager::{self, is_incarnation};
use crate::harness::node::Node;
use crate::harness::wait::{self, Stopwatch};
use crate::harness::{Scene, audit, kubectl, ownership, process};

const DEADLINE: Duration = Duration::from_secs(120);

/// Two controller groups in each of two clusters, and in those of [`HOSTILE`]. There may be more shards
/// than that: on a busy machine reconciles take long, and a shard may be split.
const GROUPS: usize = 2 * (2 + HOSTILE.len());
const REPLICAS: usize = 3;

/// TDSets in the cluster whose Pods are real, and in the other.
const SETS: [usize; 2] = [6, 40];
const PAUSE_BETWEEN_CHANGES: Duration = Duration::from_millis(250);

const REPOSITORY: &str = "leasehold.test/leasehold";
const RELEASE: &str = "leasehold";

/// Labelled Secrets of somebody who means it ill: the name of the cluster, what its kubeconfig says of server
/// and user, and why it is refused.
const HOSTILE: [[&str; 4]; 2] = [
    ["metadata", "https://169.254.169.254", "{}", "linkLocal"],
    [
        "token",
        "https://192.0.2.1",
        "{tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}",
        "tokenFile",
    ],
];

/// What the ServiceAccount may do, as the API server lists it.
const GRANTED: &str = "tests/real/rights.txt";

/// The replicas' user in their own cluster, and in the other.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:leasehold-system:leasehold";
const REMOTE_USER: &str = "fleet-manager";

/// The two clusters.
struct Stage {
    node: Node,
    remote: ControlPlane,
    helm: Helm,
}

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let stage = Stage::set(scene).await?;
    println!("a node with real containers and a second cluster are up after {watch}");

    let watch = Stopwatch::start();
    stage.install().await?;
    stage.settled().await?;
    println!("helm install --wait, and {REPLICAS} Pods share {GROUPS} shards after {watch}");
    stage.helm_test().await?;
    stage.limited_rights().await?;
    stage.granted_rights().await?;
    stage.hostile_secrets().await?;
    stage.stranger().await?;
    stage.cluster_by_command(&scene.tools().leasehold()).await?;
    stage.settled().await?;

    let [real, bare] = SETS;
    let local = &stage.node.control;
    local.kubectl.apply(&load::manifests(real, PAUSE)).await?;
    stage.remote.kubectl.apply(&load::manifests(bare, PAUSE)).await?;
    let targets =
        vec![LoadTarget::new(local, real, true), LoadTarget::new(&stage.remote, bare, false)];
    let load = Load::start(targets, PAUSE_BETWEEN_CHANGES);

    stage.kill_pods().await?;
    stage.upgrade().await?;
    let watch = Stopwatch::start();
    let expected = load.settle(DEADLINE).await?;
    println!("all {} changes had taken effect {watch} later", expected.changes);

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
        let tokens = &[format!("fleet,{REMOTE_USER},{REMOTE_USER},")];
        let address = node.machine_address();
        let remote = Spec { address, tokens, ..Spec::local("remote") };
        let remote = ControlPlane::start(scene, &remote).await?;
        let helm = Helm::new(scene, &node.control);
        let this = Self { node, remote, helm };
        this.prepare_remote().await?;
        Ok(this)
    }

    /// Installs CRDs and a user with the controllers' rights there, and its kubeconfig in a Secret
    /// here.
    async fn prepare_remote(&self) -> Result<()> {
        let kubectl = &self.remote.kubectl;
        home::install_crds(kubectl).await?;
        for controller in ["tdset", "configmonitor"] {
            manager::grant(kubectl, controller, REMOTE_USER).await?;
        }
        let kubeconfig = self.remote.write_kubeconfig("fleet", "fleet")?;
        let file = format!("--from-file=remote={}", kubeconfig.display());
        let local = &self.node.control.kubectl;
        for namespace in [NAMESPACE, load::NAMESPACE] {
            local.run(&["create", "namespace", namespace]).await?;
        }
        local.run(&["create", "secret", "generic", "fleet", "-n", NAMESPACE, &file]).await?;
        // One claims the name of the other cluster.
        let [_, server, ..] = HOSTILE[1];
        local.apply(&hostile("remote", server, "{token: none}")).await?;
        for [name, server, user, _] in HOSTILE {
            local.apply(&hostile(name, server, user)).await?;
        }
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
            let owners = Owners::read(client).await?;
            let pods = self.pods().await?;
            let ready = pods.values().filter(|pod| kubectl::holds(pod, "Ready")).count();
            let is_ours = |owner: &str| pods.keys().any(|pod| is_incarnation(pod, owner));
            let settled = owners.unsettled == 0
                && owners.whole_groups()? == GROUPS
                && owners.settled.iter().all(|(_, owner)| is_ours(owner))
                && (ready, pods.len()) == (REPLICAS, REPLICAS);
            last = format!("{owners:?}; {ready} ready of {:?}", pods.keys());
            Ok(settled.then_some(pods))
        });
        outcome.await.with_context(|| format!("last seen: {last}"))
    }

    /// The replicas' Pods by name, including those that are terminating.
    async fn pods(&self) -> Result<BTreeMap<String, Value>> {
        let selector = format!("labelSelector=app.kubernetes.io/instance%3D{RELEASE}");
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?{selector}");
        let pods = kubectl::list(&self.node.control.client, &path).await?;
        Ok(pods.into_iter().map(|pod| (kubectl::name(&pod).to_owned(), pod)).collect())
    }

    /// The release's own test passes. Helm leaves its Pod for people to look at.
    async fn helm_test(&self) -> Result<()> {
        let watch = Stopwatch::start();
        self.helm.run(&["test", RELEASE, "--namespace", NAMESPACE, "--timeout", "2m"]).await?;
        let pod = format!("{RELEASE}-test");
        self.node.control.kubectl.run(&["delete", "pod", &pod, "-n", NAMESPACE]).await?;
        println!("helm test passed after {watch}");
        Ok(())
    }

    /// The ServiceAccount may do what its controllers do, and nothing else.
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

    /// What the ServiceAccount may do is what a list in the repository says, line by line.
    async fn granted_rights(&self) -> Result<()> {
        let kubectl = &self.node.control.kubectl;
        let mut granted = String::new();
        for namespace in [NAMESPACE, load::NAMESPACE, "default", "kube-public", "kube-system"] {
            let arguments = ["auth", "can-i", "--list", "--no-headers", "--as", SERVICE_ACCOUNT];
            let said = kubectl.run(&[&arguments[..], &["-n", namespace]].concat()).await?;
            // What every ServiceAccount may do: ask about itself, and what the server offers.
            let own = |line: &String| {
                !["self", "[/", "clustertrustbundles."].iter().any(|start| line.starts_with(start))
            };
            let lines: BTreeSet<_> = said.lines().map(right).filter(own).collect();
            granted += &format!("in {namespace}:\n");
            lines.iter().for_each(|line| granted += &format!("  {line}\n"));
        }
        let file = xtask::root().join(GRANTED);
        let kept = fs::read_to_string(&file).unwrap_or_default();
        let kept: String =
            kept.lines().filter(|l| !l.starts_with('#')).map(|l| format!("{l}\n")).collect();
        ensure!(
            granted == kept,
            "{GRANTED} says otherwise; if the rights are right, write:\n{granted}"
        );
        println!(
            "the ServiceAccount may do the {} things of {GRANTED}",
            granted.matches("\n  ").count()
        );
        Ok(())
    }

    /// A hostile kubeconfig's cluster is down with its reason, and no other takes its name.
    async fn hostile_secrets(&self) -> Result<()> {
        let client = &self.node.control.client;
        for [cluster, _, _, reason] in HOSTILE {
            let what = format!("{cluster} to be refused for {reason}");
            wait::until(DEADLINE, &what, async || {
                let members = kubectl::list(client, &home::path("members")).await?;
                let down =
                    members.iter().flat_map(|m| m["spec"]["downClusters"].as_array()).flatten();
                let mut down = down.filter(|down| down["cluster"] == cluster);
                let refused = down.any(|down| down["reason"].to_string().contains(reason));
                Ok(refused.then_some(()))
            })
            .await?;
        }
        println!("{} hostile Secrets are refused with their reasons", HOSTILE.len() + 1);
        Ok(())
    }

    /// Whoever has no token gets no metrics, and no reasons.
    async fn stranger(&self) -> Result<()> {
        let kubectl = &self.node.control.kubectl;
        let pods = self.pods().await?;
        let pod = pods.keys().next().context("there is no Pod")?;
        // The API server passes no credentials on to a Pod.
        let at = |port: &str| format!("/api/v1/namespaces/{NAMESPACE}/pods/{port}/proxy");
        let main = at(&format!("https:{pod}:8443"));
        for path in ["/metrics", "/debug/clusters", "/readyz"] {
            let said = kubectl.refused(&["get", "--raw", &format!("{main}{path}")], "").await?;
            // So kubectl calls an answer of 401.
            ensure!(said.contains("You must be logged in"), "{path}: {said}");
        }
        let ready = format!("{}/readyz?verbose", at(&format!("http:{pod}:8081")));
        let said = kubectl.run(&["get", "--raw", &ready]).await?;
        ensure!(said.contains("readyz check passed"), "{said}");
        println!("a stranger's scrape of {pod} is refused");
        Ok(())
    }

    /// `leasehold clusters` gives the fleet a cluster, renews its token and takes it away. It is the cluster
    /// that has a name already, because the other has nobody who fills a Secret with a token: the fleet
    /// asks it with that token which cluster it is, refuses the second name and names the first.
    async fn cluster_by_command(&self, leasehold: &Path) -> Result<()> {
        let watch = Stopwatch::start();
        let home = &self.node.control.kubeconfig;
        let clusters = |words: &str| {
            let mut command = Command::new(leasehold);
            command.arg("clusters").args(words.split(' ')).arg("--home-kubeconfig").arg(home);
            process::run(&mut command)
        };
        let target = format!("--context local --kubeconfig {}", home.display());
        let row = async |what: &str, expect: Option<&str>| {
            wait::until(DEADLINE, what, async || {
                let list = clusters("list")?;
                let row = list.lines().find(|line| line.starts_with("added "));
                Ok(match (row, expect) {
                    (Some(row), Some(text)) => row.contains(text),
                    (row, expect) => row.is_some() == expect.is_some(),
                }
                .then_some(()))
            })
            .await
        };
        let second = Some("it is the same cluster as local");
        clusters(&format!("add {target} --name added --controllers tdset --namespaces default"))?;
        row("the second name of a cluster to be refused", second).await?;
        clusters(&format!("rotate {target} --name added"))?;
        row("the second name to be refused with the new token", second).await?;
        clusters(&format!("remove added {target}"))?;
        row("the second name to be gone", None).await?;
        println!(
            "a second name of a cluster was added, refused, its token rotated, and removed by commands after {watch}"
        );
        Ok(())
    }

    /// Upgrades to another image, Pod by Pod.
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
        ensure!(old.is_empty(), "{old:?} still run the old image after the upgrade");
        println!("helm upgrade --wait, and every shard had a new owner after {watch}");
        Ok(())
    }

    /// By the audit logs, only owners wrote, and no request was refused.
    fn verify_audit(&self) -> Result<()> {
        let local = audit::read(&self.node.control.audit_log())?;
        let remote = audit::read(&self.remote.audit_log())?;
        let report = ownership::verify(&local, &[("local", &local), ("remote", &remote)]);
        let wrong = [
            report.violations,
            audit::denied(&local, SERVICE_ACCOUNT),
            audit::denied(&remote, REMOTE_USER),
        ]
        .concat();
        println!(
            "{} writes by {} members in {} assignments; {} requests of the ServiceAccount; {} wrong or denied",
            report.writes,
            report.members.len(),
            report.assignments,
            audit::answered(&local, SERVICE_ACCOUNT),
            wrong.len()
        );
        ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
        ensure!(audit::answered(&local, SERVICE_ACCOUNT) > 0, "nobody used the ServiceAccount");
        ensure!(report.assignments > GROUPS && report.writes > 0, "no shard ever changed owners");
        Ok(())
    }

    /// Uninstalls the release. Nothing of it is left, nor what its replicas made in the home
    /// cluster.
    async fn uninstall(&self) -> Result<()> {
        let watch = Stopwatch::start();
        self.helm.run(&["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait"]).await?;
        let kubectl = &self.node.control.kubectl;
        // What must outlive a release that returns; the chart's page says how to remove it.
        let shared = [["shardmaps", "--all"], ["lease", "leasehold-coordinator"]];
        for [kind, which] in shared {
            kubectl.run(&["--namespace", NAMESPACE, "delete", kind, which]).await?;
        }
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
        // Those of the controllers that were switched on.
        let on = ["configmonitor", "tdset"].map(leasehold::controllers::get);
        let on = on.into_iter().flatten().flat_map(|builtin| builtin.crds).map(|crd| crd());
        let expected =
            leasehold::crds::home_crds().into_iter().chain(on).map(|crd| crd.name_any()).collect();
        ensure!(present == expected, "CRDs should outlive the release: {present:?}");
        println!(
            "helm uninstall and the line of its notes: nothing left but CRDs and what users made after {watch}"
        );
        Ok(())
    }

    /// Our objects in the release's namespace, and those that are cluster-wide.
    async fn left_behind(&self) -> Result<Vec<String>> {
        let client = &self.node.control.client;
        let namespaced = format!("namespaces/{NAMESPACE}");
        // What Kubernetes puts into every namespace, and the Secrets that we made.
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
                let names = found.iter().map(kubectl::name);
                let ours = |name: &&str| expected.contains(name) || name.starts_with("hostile-");
                let unexpected = names.filter(|name| !ours(name));
                left.extend(unexpected.map(|name| format!("{kind}/{name}")));
            }
        }
        for kind in ["clusterroles", "clusterrolebindings"] {
            let path = format!("/apis/rbac.authorization.k8s.io/v1/{kind}");
            let found = kubectl::list(client, &path).await?;
            let ours = found.iter().map(kubectl::name).filter(|name| name.starts_with(RELEASE));
            left.extend(ours.map(|name| format!("{kind}/{name}")));
        }
        Ok(left)
    }
}

/// The id of a Pod's only container, without the name of the runtime.
fn container_id(pod: &Value) -> Option<&str> {
    pod["status"]["containerStatuses"][0]["containerID"].as_str()?.split("//").nth(1)
}

/// A line of `kubectl auth can-i --list`, with its verbs in order: several rules may give them.
fn right(line: &str) -> String {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((what, verbs)) = line.rsplit_once('[') else { return line };
    let mut verbs: Vec<_> = verbs.trim_end_matches(']').split(' ').collect();
    verbs.sort_unstable();
    format!("{what}[{}]", verbs.join(" "))
}

/// A labelled Secret with a kubeconfig.
fn hostile(cluster: &str, server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: hostile-{cluster}, namespace: {NAMESPACE}, \
         labels: {{leasehold.dev/cluster: {cluster}}}}}\nstringData:\n  kubeconfig: |\n    \
         clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n    \
         users: [{{name: u, user: {user}}}]\n    \
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    )
}

fn values(tag: &str) -> Vec<String> {
    vec![
        format!("image.repository={REPOSITORY}"),
        format!("image.tag={tag}"),
        "image.pullPolicy=Never".to_owned(),
        format!("replicas={REPLICAS}"),
        "clusters.inCluster=local".to_owned(),
        "controllers.tdset.enabled=true".to_owned(),
        format!("controllers.tdset.namespaces={{{}}}", load::NAMESPACE),
        "controllers.configmonitor.enabled=true".to_owned(),
        format!("controllers.configmonitor.namespaces={{{}}}", load::NAMESPACE),
        "clusters.kubeconfigSecrets[0].name=fleet".to_owned(),
        // The tests know the remote cluster by the name of its context.
        "clusters.kubeconfigSecrets[0].prefix=".to_owned(),
        "clusters.secrets[0].selector=leasehold.dev/cluster".to_owned(),
        "resources.requests.cpu=10m".to_owned(),
    ]
}
