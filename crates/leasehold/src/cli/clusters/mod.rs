//! `leasehold clusters`: gives a fleet a user in a cluster, and the cluster to the fleet.
//!
//! ```text
//!  add     target: ServiceAccount, rights, token (`target`, `rights`)  ─▶  home: a labelled Secret (`entry`)
//!  rotate  target: a new token                                         ─▶  home: the Secret, then the old token goes
//!  remove  home: the Secret goes, the replicas let go of the cluster   ─▶  target: ServiceAccount, rights and token go
//! ```
//!
//! Each step may be done again: what is there already is left as it is.

mod entry;
mod rights;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::clusters::may_be_called;
use anyhow::{Context as _, bail, ensure};
use clap::Subcommand;
use fleet::{Fleet, LeftOver, NOT_TAKEN_UP};
use model::{ClusterName, MemberId};
use ops::{HomeArgs, HomeCluster, Output, Pace, columns};
use serde::Serialize;

use self::entry::Entries;
use self::target::Target;
pub(super) use self::target::{builtin, more_rules};
use super::say::say;

/// How often the fleet is read while a removed cluster is awaited.
const POLL: Duration = Duration::from_millis(500);
/// How long the replicas may take to let go of a cluster.
const LET_GO: Duration = Duration::from_secs(60);

/// How long replicas may take until they know of a cluster that was added: one for which they have no client counts after
/// ten seconds.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(15);

/// The subcommands of `leasehold clusters`.
#[derive(Debug, Subcommand)]
pub(super) enum ClustersCommand {
    /// Give the fleet a cluster: a ServiceAccount with rights and a token there, and a Secret with its
    /// kubeconfig in the home cluster, which replicas with clusters.secrets in their configuration pick up.
    Add(AddArgs),
    /// List the clusters of the fleet: who serves each, or why nobody does.
    List(ListArgs),
    /// Take a cluster away from the fleet; with --context, remove the fleet's user there too. Custom
    /// resources and their definitions stay.
    Remove(RemoveArgs),
    /// Give the fleet's user a new token, and end the old ones that do not end by themselves.
    Rotate(RotateArgs),
}

/// The home cluster.
#[derive(Debug, clap::Args)]
struct FleetArgs {
    /// Take home cluster and namespace from a manager's configuration file.
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["home_kubeconfig", "home_context"])]
    config: Option<PathBuf>,
    /// The home cluster's kubeconfig. Default: $KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    home_kubeconfig: Option<PathBuf>,
    /// The home cluster's context. Default: the kubeconfig's current one.
    #[arg(long, value_name = "NAME")]
    home_context: Option<String>,
    /// The namespace of Leases, Members, ShardMaps and these Secrets. Default: the configuration file's,
    /// else leasehold-system.
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
}

/// A cluster to work in, reached as an administrator.
#[derive(Debug, clap::Args)]
struct TargetArgs {
    /// The cluster's context.
    #[arg(long, value_name = "NAME")]
    context: String,
    /// Its kubeconfig. Default: $KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The cluster's name in the fleet. Default: made from the context's.
    #[arg(long, value_name = "NAME")]
    name: Option<ClusterName>,
}

/// Arguments of `leasehold clusters add`.
#[derive(Debug, clap::Args)]
pub(super) struct AddArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The controllers that may work there: those of the last add, and no others. With settings that need more
    /// rights, as in configmonitor+watchSecrets, or kinds that a setting lists, as in tdset+rollouts.argoproj.io.
    /// Default: none.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    controllers: Vec<String>,
    /// The namespaces they may work in, which must exist. Default: all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// The server's URL as the replicas reach it. Default: the kubeconfig's.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, clap::Args)]
struct TokenArgs {
    /// Ask for a token that ends after this long (8760h), for which the server may have a limit: then run
    /// rotate in time. Default: one that is valid until it is rotated.
    #[arg(long, value_name = "DURATION", value_parser = model::duration)]
    expires: Option<Duration>,
    /// How long older tokens stay valid when there is a new one: replicas take it within a second or two.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = model::duration)]
    grace: Duration,
}

/// Arguments of `leasehold clusters list`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Arguments of `leasehold clusters remove`.
#[derive(Debug, clap::Args)]
pub(super) struct RemoveArgs {
    /// The cluster's name in the fleet.
    #[arg(value_name = "NAME")]
    name: ClusterName,
    /// The cluster's context, to remove the fleet's user there too.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Its kubeconfig. Default: $KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE", requires = "context")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Arguments of `leasehold clusters rotate`.
#[derive(Debug, clap::Args)]
pub(super) struct RotateArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Does what a subcommand says.
///
/// # Errors
/// When a cluster cannot be reached or refuses a step; what was done before stays, and may be done again.
pub(super) fn run(command: &ClustersCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            ClustersCommand::Add(args) => add(args).await,
            ClustersCommand::List(args) => list(args).await,
            ClustersCommand::Remove(args) => remove(args).await,
            ClustersCommand::Rotate(args) => rotate(args).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn add(args: &AddArgs) -> anyhow::Result<()> {
    let name = args.target.name();
    let target = args.target.connect(args.server.as_deref()).await?;
    let home = args.fleet.connect().await?;
    let entries = Entries::of(&home);
    entries.free(&name).await?;
    let id = home.id().await?;
    target.has_user(&id, |known| *known == name).await?;
    target.authorize((&id, &name), &args.controllers, &args.namespaces).await?;
    let token = target.token(args.token.expires).await?;
    entries.put(&name, &target.kubeconfig(&name, &token.text)).await?;
    target.end_others(Some(&token), args.token.grace).await?;
    say(&format!("{name}: added, as Secret {}/{}", home.namespace, entry::secret_name(&name)));
    if args.controllers.is_empty() {
        say(&format!(
            "{name}: no controller may work there yet: add it again with --controllers, such as \
             --controllers tdset --namespaces default"
        ));
    }
    // What cannot be read is for other commands to tell.
    if let Ok(false) = is_taken_up(&home, &name).await {
        say(&format!("{name}: {NOT_TAKEN_UP}"));
    }
    Ok(())
}

/// Whether replicas know of a cluster, or come to know of it in a while. Without replicas, nobody waits.
async fn is_taken_up(home: &HomeCluster, cluster: &ClusterName) -> anyhow::Result<bool> {
    let mut pace = Pace::default();
    let knows = |fleet: &Fleet| known(fleet).iter().any(|name| may_be_called(cluster, name));
    let taken_up = async {
        loop {
            let fleet = pace.look(home.fleet()).await?;
            if knows(&fleet) || fleet.alive().next().is_none() {
                return anyhow::Ok(knows(&fleet));
            }
            tokio::time::sleep(pace.rest(POLL)).await;
        }
    };
    tokio::time::timeout(TAKEN_UP_WITHIN, taken_up).await.unwrap_or(Ok(false))
}

async fn rotate(args: &RotateArgs) -> anyhow::Result<()> {
    let home = args.fleet.connect().await?;
    let entries = Entries::of(&home);
    let (name, server) = entries.get(&args.target.name()).await?;
    let target = args.target.connect(Some(&server)).await?;
    let has_user = target.has_user(&home.id().await?, |known| *known == name).await?;
    ensure!(has_user, no_user(&args.target.context, &name));
    let token = target.token(args.token.expires).await?;
    entries.put(&name, &target.kubeconfig(&name, &token.text)).await?;
    let ended = target.end_others(Some(&token), args.token.grace).await?;
    say(&format!(
        "{name}: rotated; {ended} older tokens were ended, those asked for with --expires end by themselves"
    ));
    Ok(())
}

fn no_user(context: &str, cluster: &ClusterName) -> String {
    format!(
        "the cluster of context {context} has no user of this fleet; fix: give the context of {cluster}, or, if it is \
         that and was made anew, `leasehold clusters add` with --name {cluster}"
    )
}

async fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let RemoveArgs { name, context, kubeconfig, fleet } = args;
    let home = fleet.connect().await?;
    let entries = Entries::of(&home);
    // With a context it may be the second time, because the first did not get to the end.
    let added = match context {
        Some(_) => entries.find(name).await?,
        None => Some(entries.get(name).await?),
    };
    let target = match context {
        Some(context) => {
            let target = Target::connect(kubeconfig.as_deref(), context, None).await?;
            let is = |known: &ClusterName| may_be_called(known, name);
            let has_user = target.has_user(&home.id().await?, is).await?;
            ensure!(has_user || added.is_none(), no_user(context, name));
            Some(target)
        }
        None => None,
    };
    // As replicas call it, while they do.
    let name = &known_as(name, &known(&home.fleet().await?))?;
    if let Some((own, _)) = added {
        entries.delete(&own).await?;
        say(&format!("{name}: removed from the fleet"));
    }
    let left = let_go(&home, name).await?;
    if let LeftOver::Owned(by) = &left {
        bail!(
            "replicas still hold shards of {name} after {}s: {}; see `leasehold status{}`",
            LET_GO.as_secs(),
            by.join(", "),
            fleet.home().flags()
        );
    }
    if let Some(target) = target {
        target.clear().await?;
        say(&format!("{name}: the fleet's user there is gone"));
    }
    if let Some(stays) = left.says(name, &fleet.home().flags()) {
        say(&stays);
    }
    Ok(())
}

/// Waits until the replicas have let go of a cluster, for a while. What people have paused stays in home.
async fn let_go(home: &HomeCluster, cluster: &ClusterName) -> anyhow::Result<LeftOver> {
    let (mut pace, mut last) = (Pace::default(), None);
    let gone = async {
        loop {
            let left = pace.look(home.fleet()).await?.remains_of(cluster);
            // A shard that is paused meanwhile loses its owner first, and one that moves has none for a moment.
            let stays = matches!(left, LeftOver::Idle(_, Some(_))) && last.as_ref() == Some(&left);
            let is_over = stays || left == LeftOver::Nothing;
            last = Some(left);
            if is_over {
                return anyhow::Ok(());
            }
            tokio::time::sleep(pace.rest(POLL)).await;
        }
    };
    if let Ok(looked) = tokio::time::timeout(LET_GO, gone).await {
        looked?;
    }
    last.with_context(|| {
        format!("home has not said within {}s who has {cluster}", LET_GO.as_secs())
    })
}

async fn list(args: &ListArgs) -> anyhow::Result<()> {
    let home = args.fleet.connect().await?;
    let (entries, fleet) = (Entries::of(&home).all().await, home.fleet().await?);
    let entries = match entries {
        // Whoever may only look sees all but the servers.
        Err(error) if is_forbidden(&error) => {
            eprintln!("leasehold: no servers are shown: {}", model::error::chain(&*error));
            BTreeMap::new()
        }
        entries => entries?,
    };
    let rows = listed(&entries, &fleet);
    args.output.print(&rows, || {
        let row = |row: &Listed| {
            let Listed { cluster, server, shards, members, state } = row.clone();
            [cluster, server, shards.to_string(), members.join(","), state]
        };
        columns(["CLUSTER", "SERVER", "SHARDS", "MEMBERS", "STATE"], rows.iter().map(row))
    })
}

/// A cluster of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    /// Its name.
    cluster: String,
    /// Its server, if it was added with this command.
    server: String,
    /// How many shards it has.
    shards: usize,
    /// Who owns them, by their identities.
    members: Vec<String>,
    /// Whether it is served, and if not, why.
    state: String,
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    let asked = error.downcast_ref::<kube::Error>();
    matches!(asked, Some(kube::Error::Api(status)) if status.code == 403)
}

/// The clusters of which replicas know, by the names that they give them.
fn known(fleet: &Fleet) -> BTreeSet<ClusterName> {
    let mut names: BTreeSet<ClusterName> =
        fleet.shards.iter().map(|shard| shard.shard.cluster.clone()).collect();
    names.extend(fleet.down().into_keys().map(|(cluster, _)| cluster.clone()));
    names.retain(|name| name.as_str() != model::single::FLEET);
    names
}

/// How replicas call a cluster that was added as `own`: `clusters.secrets` of their configuration may have a prefix.
fn known_as(own: &ClusterName, known: &BTreeSet<ClusterName>) -> anyhow::Result<ClusterName> {
    if known.contains(own) {
        return Ok(own.clone());
    }
    let found: Vec<_> = known.iter().filter(|name| may_be_called(own, name)).collect();
    match found[..] {
        [] => Ok(own.clone()),
        [name] => Ok(name.clone()),
        _ => {
            let found: Vec<&str> = found.into_iter().map(ClusterName::as_str).collect();
            let found = found.join(", ");
            bail!(
                "{own} may be each of {found}, by the prefixes of clusters.secrets; fix: give that name"
            )
        }
    }
}

/// The clusters that were added, and those that the fleet knows otherwise.
fn listed(servers: &BTreeMap<ClusterName, String>, fleet: &Fleet) -> Vec<Listed> {
    let mut names = known(fleet);
    let called = |own: &ClusterName| known_as(own, &names).unwrap_or_else(|_| own.clone());
    let servers: BTreeMap<ClusterName, &String> =
        servers.iter().map(|(own, server)| (called(own), server)).collect();
    names.extend(servers.keys().cloned());
    let of = |name: ClusterName| {
        let shards = fleet.shards_of(&name);
        let owners: BTreeSet<&MemberId> =
            shards.iter().filter_map(|shard| shard.owner.as_ref()).collect();
        let owners = fleet.members.iter().filter(|member| owners.contains(&member.member));
        Listed {
            server: servers.get(&name).map(|&server| server.clone()).unwrap_or_default(),
            shards: shards.len(),
            members: owners.map(|member| member.identity.clone()).collect(),
            state: fleet.state_of(&name),
            cluster: name.to_string(),
        }
    };
    names.into_iter().map(of).collect()
}

impl FleetArgs {
    fn home(&self) -> HomeArgs {
        HomeArgs {
            config: self.config.clone(),
            kubeconfig: self.home_kubeconfig.clone(),
            context: self.home_context.clone(),
            namespace: self.namespace.clone(),
        }
    }

    async fn connect(&self) -> anyhow::Result<HomeCluster> {
        super::home::connect(&self.home()).await
    }
}

impl TargetArgs {
    fn name(&self) -> ClusterName {
        self.name.clone().unwrap_or_else(|| ClusterName::from_context(&self.context))
    }

    async fn connect(&self, server: Option<&str>) -> anyhow::Result<Target> {
        let target = Target::connect(self.kubeconfig.as_deref(), &self.context, server).await;
        let target = target.with_context(|| format!("context {}", self.context))?;
        ensure!(
            !target.is_local(),
            "the server {} is one of this machine, which no replica reaches: give its URL with --server",
            target.server()
        );
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use fleet::FleetShard;
    use sharding::api::Phase;

    use super::*;

    fn names(all: &[&str]) -> BTreeSet<ClusterName> {
        all.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn a_cluster_is_found_behind_the_prefix_that_replicas_put_before_it() {
        let of = |all: &[&str]| known_as(&"east".parse().unwrap(), &names(all));
        assert_eq!(of(&["onboarded.east", "far-east", "west"]).unwrap().as_str(), "onboarded.east");
        assert_eq!(of(&["onboarded.east", "east"]).unwrap().as_str(), "east");
        assert_eq!(of(&["west"]).unwrap().as_str(), "east");
        let several = of(&["a.east", "b.east"]).unwrap_err().to_string();
        assert!(several.starts_with("east may be each of a.east, b.east"), "{several}");
    }

    #[test]
    fn a_cluster_is_listed_once_with_its_server_whatever_replicas_call_it() {
        let shard = FleetShard::example("onboarded.east/tdset/0/1", Some("m-0"), Phase::Owned);
        let fleet = Fleet { shards: vec![shard], ..Fleet::default() };
        let server = |name: &str| (name.parse().unwrap(), format!("https://{name}"));
        let rows = listed(&[server("east"), server("west")].into(), &fleet);
        let rows: Vec<_> =
            rows.iter().map(|row| (&*row.cluster, &*row.server, &*row.state)).collect();
        assert_eq!(
            rows,
            [("onboarded.east", "https://east", "served"), ("west", "https://west", NOT_TAKEN_UP),]
        );
    }
}
