//! As a user with kind: README's commands as they are written, on a home cluster and two more, with the
//! image that `deploy/Dockerfile` makes. Then from what the last release left to this one under changes,
//! away again, and the load of `loadtest/kind/run.sh` in short.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::harness::Scene;
use crate::harness::kind::Kind;
use crate::harness::wait::{self, Stopwatch};

const DEADLINE: Duration = Duration::from_secs(120);

/// The clusters of the fleet beside the home, and what replicas call their servers.
const ADDED: [(&str, &str); 2] =
    [("east", "https://east-control-plane:6443"), ("west", "https://west-control-plane:6443")];

/// TDSets in each cluster.
const SETS: usize = 4;

/// The image of README's commands without its tag.
const REPOSITORY: &str = "registry.example.com/leasehold";
const CHART: &str = "deploy/charts/leasehold --namespace leasehold-system";

/// The load in short: clusters and objects.
const LOAD: &str = "2 300";

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let kind = Kind::start(scene, "home").await?;
    kind.shell(
        "create() { kind create cluster --quiet --name $1 --wait 3m; }
         create home # and the network of the others
         create east & east=$!
         create west & west=$!
         wait $east
         wait $west
         kubectl config use-context kind-home",
    )
    .await?;
    println!("three clusters of kind after {watch}");

    let watch = Stopwatch::start();
    kind.shell(&from_readme("helm install leasehold")?).await?;
    kind.shell("helm test leasehold --namespace leasehold-system --logs").await?;
    // Helm leaves the Pods of tests to whoever ran them.
    kind.shell("kubectl --namespace leasehold-system delete pod leasehold-test").await?;
    println!("README's image and installation, and helm test, after {watch}");

    let watch = Stopwatch::start();
    add_clusters(&kind).await?;
    create_sets(&kind).await?;
    settled(&kind).await?;
    println!("two more clusters by `clusters add`, whose TDSets are ready, after {watch}");

    let watch = Stopwatch::start();
    let changes = upgrade_from_last_release(&kind).await?;
    settled(&kind).await?;
    println!("from 0.1.0's definitions under {changes} changes, none lost, after {watch}");

    let watch = Stopwatch::start();
    uninstall(&kind).await?;
    kind.shell("kind delete clusters --all").await?;
    println!("clusters and release removed, nothing left but what users made, after {watch}");

    let watch = Stopwatch::start();
    load(&kind).await?;
    println!("loadtest/kind/run.sh {LOAD} took {watch}");
    Ok(())
}

/// The load, beside a cluster of somebody else's, which stays.
async fn load(kind: &Kind) -> Result<()> {
    kind.shell("kind create cluster --quiet --name somebody").await?;
    let said = kind.shell(&format!("loadtest/kind/run.sh {LOAD}")).await?;
    let rows = said.lines().filter(|line| line.starts_with("| ") || line.contains("report"));
    println!("{}", rows.collect::<Vec<_>>().join("\n"));
    ensure!(said.contains("kill replica 0"), "run.sh killed no replica:\n{said}");
    let left = kind.shell("kind get clusters").await?;
    ensure!(left.trim() == "somebody", "run.sh left other clusters than it found:\n{left}");
    kind.shell("kind delete cluster --name somebody").await.map(drop)
}

/// The block of README's commands with `command`.
fn from_readme(command: &str) -> Result<String> {
    let readme = fs::read_to_string(xtask::root().join("README.md"))?;
    let mut blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.contains(command));
    block.map(str::to_owned).with_context(|| format!("README.md has no block with {command}"))
}

/// Adds the clusters as the chart's page says, and waits until both are served.
async fn add_clusters(kind: &Kind) -> Result<()> {
    for (cluster, server) in ADDED {
        kind.shell(&format!(
            "leasehold clusters add --context kind-{cluster} --name {cluster} --server {server} \
               --controllers tdset --namespaces default"
        ))
        .await?;
    }
    let mut said = String::new();
    let outcome = wait::until(DEADLINE, "the added clusters to be served", async || {
        said = kind.shell("leasehold clusters list").await?;
        // Name, server, shards, who has them, and that they are served.
        let served = said.lines().filter(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            matches!(words[..], [name, _, _, _, "served"] if ADDED.iter().any(|c| c.0 == name))
        });
        Ok((served.count() == ADDED.len()).then_some(()))
    });
    outcome.await.with_context(|| format!("last seen:\n{said}"))
}

async fn create_sets(kind: &Kind) -> Result<()> {
    let sets = (0..SETS).map(|n| {
        format!(
            "---\napiVersion: schedule.rs/v1\nkind: TDSet\nmetadata: {{name: load-{n}, namespace: default}}\n\
             spec: {{container: {{image: 'registry.k8s.io/pause:3.10', port: 8000}}, defaultReplica: 1}}\n"
        )
    });
    let manifests = sets.collect::<String>();
    let apply =
        "for cluster in home east west; do kubectl --context kind-$cluster apply --filename - <<E";
    kind.shell(&format!("{apply}\n{manifests}E\ndone")).await.map(drop)
}

/// Waits until every Deployment has what its TDSet wants, and every TDSet is ready.
async fn settled(kind: &Kind) -> Result<()> {
    let mut last = String::new();
    let outcome = wait::until(DEADLINE, "every TDSet to be ready", async || {
        last = kind.shell(
            "for cluster in home east west; do
               kubectl --context kind-$cluster get tdsets,deployments --output json | jq --raw-output '
                 .items | group_by(.metadata.name)[]
                 | {want: map(select(.kind == \"TDSet\"))[0], have: map(select(.kind == \"Deployment\"))[0]}
                 | select(.want.status.observedGeneration == .want.metadata.generation
                     and .want.spec.defaultReplica == .have.spec.replicas
                     and (.want.status.conditions | any(.type == \"Ready\" and .status == \"True\")))
                 | .want.metadata.name'
             done",
        ).await?;
        Ok((last.lines().count() == SETS * (1 + ADDED.len())).then_some(()))
    });
    outcome.await.with_context(|| format!("ready:\n{last}"))
}

/// The last release kept its definitions outside of Helm, in their form of then. From there to this
/// release, with another image, while TDSets change; gives the number of changes.
async fn upgrade_from_last_release(kind: &Kind) -> Result<usize> {
    let objects = "kubectl get tdsets --output jsonpath='{.items[*].metadata.uid}'";
    let before = kind.shell(objects).await?;
    kind.shell(&format!(
        "docker tag {REPOSITORY}:0.2.0 {REPOSITORY}:next && docker push {REPOSITORY}:next
         helm get values leasehold --namespace leasehold-system --output yaml >$TMPDIR/values
         helm uninstall leasehold --namespace leasehold-system --wait
         kubectl replace --filename tests/real/kind/crds-0.1.0
         helm install leasehold {CHART} --values $TMPDIR/values --set crds.enabled=false --wait"
    ))
    .await?;
    let changes = kind
        .shell(&format!(
            "touch $TMPDIR/load
         load() {{
           n=0
           while [ -e $TMPDIR/load ]; do
             n=$((n + 1))
             for cluster in home east west; do
               kubectl --context kind-$cluster patch tdset load-$((n % {SETS})) --type merge \
                 --patch \"{{\\\"spec\\\": {{\\\"defaultReplica\\\": $((n / {SETS} % 2 + 1))}}}}\" >/dev/null
             done
           done
           echo $n
         }}
         load & load=$!
         helm upgrade leasehold {CHART} --reset-then-reuse-values --take-ownership --wait \
           --set crds.enabled=true --set image.tag=next >/dev/null
         rm $TMPDIR/load
         wait $load"
        ))
        .await?;
    ensure!(kind.shell(objects).await? == before, "the upgrade replaced TDSets");
    // What the API server would not change has no difference.
    kind.shell(
        "cd deploy/charts/leasehold/files/crds
         kubectl diff --filename home --filename controllers/tdset.tdsets.yaml",
    )
    .await
    .context("the definitions are not those of this release")?;
    let rounds: usize = changes.trim().parse().with_context(|| format!("changes: {changes}"))?;
    Ok(rounds * (1 + ADDED.len()))
}

/// Removes clusters and release. Definitions and TDSets stay.
async fn uninstall(kind: &Kind) -> Result<()> {
    for (cluster, _) in ADDED {
        kind.shell(&format!("leasehold clusters remove {cluster} --context kind-{cluster}"))
            .await?;
    }
    kind.shell(
        "helm uninstall leasehold --namespace leasehold-system --wait
         kubectl --namespace leasehold-system delete shardmaps --all
         kubectl --namespace leasehold-system delete lease leasehold-coordinator",
    )
    .await?;
    let mut left = String::new();
    let outcome = wait::until(DEADLINE, "everything of the release to be gone", async || {
        left = kind
            .shell(
                "kubectl --namespace leasehold-system get --output name \
               all,configmaps,secrets,serviceaccounts,roles,rolebindings,leases,members,shardmaps
             for cluster in east west; do
               kubectl --context kind-$cluster --namespace leasehold-system get --output name \
                 secrets,roles,rolebindings
             done
             kubectl get clusterroles,clusterrolebindings --output name | grep leasehold || true",
            )
            .await?;
        let expected = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
        Ok(left.lines().all(|line| expected.contains(&line)).then_some(()))
    });
    outcome.await.with_context(|| format!("left behind:\n{left}"))?;
    let stay =
        "kubectl get tdsets --output name; kubectl get crd members.leasehold.dev --output name";
    let stay = kind.shell(stay).await?;
    ensure!(stay.lines().count() == SETS + 1, "should outlive the release:\n{stay}");
    Ok(())
}
