//! `leasehold console` in a real browser: the pages of a small fleet and of one with 1,000 clusters, in light and in
//! dark. Each page is fetched again by its script, and the browser refuses nothing that a page does.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apiserver::Server;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client};
use model::{Epoch, MemberId};
use sharding::api::{
    DownCluster, Member, MemberSpec, MoveCause, Moved, Phase, ShardEntry, ShardMap, ShardMapSpec,
    Summary,
};
use sharding::lease;

use crate::harness::Scene;
use crate::harness::browser::{LOOK, browse, picture};
use crate::harness::process::ChildProcess;
use crate::harness::wait::{self, Stopwatch};
use crate::install;

const NAMESPACE: &str = "leasehold-system";
const MEMBERS: usize = 3;
const GROUPS: usize = 10;
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let pictures = scene.tools().failed_dir().with_file_name("console");
    std::fs::create_dir_all(&pictures)?;
    for clusters in [3, 1000] {
        let server = Server::builder().name("home").start().await?;
        fill(server.client(), clusters).await.with_context(|| format!("{clusters} clusters"))?;
        let kubeconfig = scene.dir().join(format!("home-{clusters}.kubeconfig"));
        std::fs::write(&kubeconfig, server.kubeconfig())?;
        let mut command = Command::new(scene.tools().leasehold());
        command.args(["console", "--port", "0", "--kubeconfig"]).arg(&kubeconfig);
        let name = format!("console-{clusters}");
        let mut console = ChildProcess::spawn(&name, &command, &scene.logs())?;
        let url = wait::until(DEADLINE, "the console to listen", async || {
            console.check_alive()?;
            let text = console.output();
            Ok(text.lines().find(|line| line.starts_with("http://")).map(str::to_owned))
        });
        let url = url.await?;
        let (base, key) = url.split_once('?').context("the address has no key")?;
        for (page, expect) in [
            ("", "cluster cluster-1 is down for replica-1-bbbbb"),
            ("/clusters", "cluster-0"),
            ("/clusters/cluster-0", "cluster-0/group-0/0/1"),
            ("/members/replica-1-bbbbb", "replica-1"),
            ("/object?object=cluster-0/Deployment/shop/cart", "replica-"),
            ("/queues", "Answers of"),
            ("/events", "There is no such event"),
        ] {
            let sign = if page.contains('?') { '&' } else { '?' };
            looks(scene, &format!("{base}{page}{sign}{key}"), expect).await?;
        }
        for (theme, scheme) in [("light", "1"), ("dark", "0")] {
            let file = pictures.join(format!("{clusters}-{theme}.png"));
            let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
            picture(scene.dir(), &url, (1280, 1000), &file, &[&scheme]).await?;
        }
        differ(&pictures, clusters)?;
    }
    println!("screenshots are in {}", pictures.display());
    Ok(())
}

/// Looks at a page until its script has fetched it again.
async fn looks(scene: &Scene, url: &str, expect: &str) -> Result<()> {
    let watch = Stopwatch::start();
    let (page, log) = browse(scene.dir(), &["--dump-dom", LOOK, url]).await?;
    ensure!(page.contains(expect), "{url}: no {expect:?} in\n{page}");
    ensure!(page.contains("data-state=\"live\""), "{url} is not fetched again:\n{page}\n{log}");
    for refusal in ["Refused to", "violates the following", "Uncaught"] {
        ensure!(!log.contains(refusal), "{url}: the browser says:\n{log}");
    }
    println!("{url}: {} KiB, seen after {watch}", page.len() / 1024);
    Ok(())
}

/// Light and dark are not the same picture.
fn differ(pictures: &Path, clusters: usize) -> Result<()> {
    let [light, dark] = ["light", "dark"]
        .map(|theme| std::fs::read(pictures.join(format!("{clusters}-{theme}.png"))));
    ensure!(light? != dark?, "the console looks the same in light and in dark");
    Ok(())
}

/// A fleet as home has it: three members, and clusters of ten groups. One cluster is down for a member.
async fn fill(client: Client, clusters: usize) -> Result<()> {
    install::namespace(&client, NAMESPACE).await;
    install::crds(&client, sharding::api::crds()).await;
    let names = ["replica-0-aaaaa", "replica-1-bbbbb", "replica-2-ccccc"];
    let members: [MemberId; MEMBERS] = names.map(|name| name.parse().expect("a member"));
    let params = PostParams::default();
    let now = wait::now();
    let (leases, all) =
        (Api::namespaced(client.clone(), NAMESPACE), Api::namespaced(client.clone(), NAMESPACE));
    let (label, value) = lease::selector()
        .split_once('=')
        .map(|(l, v)| (l.to_owned(), v.to_owned()))
        .context("a label")?;
    let lease = |name: String, holder: &MemberId| Lease {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some([(label.clone(), value.clone())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_string()),
            // Longer than the check takes: nobody renews it.
            lease_duration_seconds: Some(3600),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    };
    leases.create(&params, &lease(lease::COORDINATOR.to_owned(), &members[0])).await?;
    for (index, member) in members.iter().enumerate() {
        leases.create(&params, &lease(lease::member_lease_name(member), member)).await?;
        let mut spec = MemberSpec::new(&format!("replica-{index}"), Vec::new());
        spec.busy = 300 * (u32::try_from(index)? + 1);
        if index == 1 {
            let reason =
                "does not answer: connection refused; fix: see whether its server runs".into();
            spec.down_clusters = vec![DownCluster { cluster: "cluster-1".parse()?, reason }];
        }
        all.create(&params, &Member::new(member.as_str(), spec)).await?;
    }
    let maps: Api<ShardMap> = Api::namespaced(client, NAMESPACE);
    for cluster in 0..clusters {
        let entry = |group: usize| {
            let owner = (cluster + group) % MEMBERS;
            let moved = Moved { why: MoveCause::Balance, at: Some(Time(now)) };
            let moves = cluster % 97 == 2 && group == 0;
            Ok(ShardEntry {
                shard: format!("group-{group}/0/1").parse().context("a shard")?,
                epoch: Epoch(1),
                phase: if moves { Phase::Draining } else { Phase::Owned },
                owner: Some(members[owner].clone()),
                target: moves.then(|| members[(owner + 1) % MEMBERS].clone()),
                moved: moves.then_some(moved),
            })
        };
        let shards = (0..GROUPS).map(entry).collect::<Result<_>>()?;
        let (epoch_floor, protocol_version, summary) = (Epoch(0), 1, Summary::default());
        let spec = ShardMapSpec { shards, epoch_floor, protocol_version, summary };
        maps.create(&params, &ShardMap::new(&format!("cluster-{cluster}"), spec)).await?;
    }
    Ok(())
}
