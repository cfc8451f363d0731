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

use anyhow::{Context as _, bail, ensure};
use clap::Subcommand;
use fleet::{Fleet, LeftOver, NOT_TAKEN_UP, ReadError};
use model::{ClusterName, MemberId, may_be_called};
use ops::{HomeArgs, HomeCluster, Output, Pace, columns};
use serde::Serialize;

use self::entry::{AddedCluster, Entries};
use self::rights::{CLUSTER, NAMESPACE, USER};
use self::target::{FleetUser, Target};
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
    /// The name under which the cluster was added.
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
    let is_new = entries.is_free(&name).await?;
    let id = home.id().await?;
    user_of((&target, &id), &entries, &name).await?;
    let before = if is_new { known_before(&home, &name).await } else { BTreeSet::new() };
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
    if let Ok(Some(why)) = not_taken_up(&home, &name, &before).await {
        say(&format!("{name}: {why}"));
    }
    Ok(())
}

/// What replicas know before a cluster is added, and so is another, whatever it is called. The name itself may be left
/// of a time before.
async fn known_before(home: &HomeCluster, cluster: &ClusterName) -> BTreeSet<ClusterName> {
    let mut names = home.fleet().await.map(|fleet| known(&fleet)).unwrap_or_default();
    names.remove(cluster);
    names
}

/// Why replicas know nothing of a cluster, unless they do, or come to know of it in a while.
async fn not_taken_up(
    home: &HomeCluster,
    cluster: &ClusterName,
    before: &BTreeSet<ClusterName>,
) -> anyhow::Result<Option<&'static str>> {
    let mut pace = Pace::default();
    let looked = async {
        loop {
            let fleet = pace.look(home.fleet()).await?;
            if !called(cluster, &(&known(&fleet) - before)).is_empty() {
                return anyhow::Ok(None);
            }
            let why = fleet.not_taken_up();
            if why != NOT_TAKEN_UP {
                return Ok(Some(why));
            }
            tokio::time::sleep(pace.rest(POLL)).await;
        }
    };
    tokio::time::timeout(TAKEN_UP_WITHIN, looked).await.unwrap_or(Ok(Some(NOT_TAKEN_UP)))
}

/// The fleet's user in a cluster, if it has one there, and the cluster is the one that was added under this name.
///
/// # Errors
/// If it is another, or nothing shows which one it is: the tokens and rights of that would go.
async fn user_of(
    (target, fleet): (&Target, &str),
    entries: &Entries,
    name: &ClusterName,
) -> anyhow::Result<Option<FleetUser>> {
    let Some(user) = target.user(fleet).await? else { return Ok(None) };
    let context = target.context();
    let own = match &user.cluster {
        Some(own) => Some(own.clone()),
        None => {
            let all = entries.all().await?;
            let own = name_of(&user.uid, name, &all);
            ensure!(
                own.is_some() || !all.contains_key(name),
                "the token of {name} in home is for another user than that in the cluster of context {context}, so nothing \
                 shows that this is {name}; fix: give the context of {name}; if this is it, say so: kubectl --context \
                 {context} --namespace {NAMESPACE} annotate serviceaccount {USER} {CLUSTER}={name}"
            );
            own
        }
    };
    if let Some(own) = own.filter(|own| own != name) {
        bail!(
            "the cluster of context {context} is {own} in this fleet; fix: give that name, or the context of the cluster \
             that you mean; to give it another name, first `leasehold clusters remove {own} --context {context}`"
        );
    }
    Ok(Some(user))
}

/// The name under which the cluster of this user was added, by the token of it: `name`, if that is one of several.
fn name_of(
    user: &str,
    name: &ClusterName,
    all: &BTreeMap<ClusterName, AddedCluster>,
) -> Option<ClusterName> {
    let is_its = |added: &AddedCluster| added.user.as_deref() == Some(user);
    if all.get(name).is_some_and(is_its) {
        return Some(name.clone());
    }
    all.iter().find(|(_, added)| is_its(added)).map(|(own, _)| own.clone())
}

async fn rotate(args: &RotateArgs) -> anyhow::Result<()> {
    let home = args.fleet.connect().await?;
    let entries = Entries::of(&home);
    let name = args.target.name();
    let AddedCluster { server, .. } = entries.get(&name).await?;
    let target = args.target.connect(Some(&server)).await?;
    let user = user_of((&target, &home.id().await?), &entries, &name).await?;
    let user = user.with_context(|| no_user(&args.target.context, &name))?;
    if user.cluster.is_none() {
        target.name_it(&name).await?;
    }
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
            let user = user_of((&target, &home.id().await?), &entries, name).await?;
            ensure!(user.is_some() || added.is_none(), no_user(context, name));
            Some(target)
        }
        None => None,
    };
    let mut names = Vec::new();
    if added.is_some() {
        // As replicas call it, while they do.
        names = called(name, &known(&home.fleet().await?));
        entries.delete(name).await?;
        say(&format!("{name}: removed from the fleet"));
    }
    if names.is_empty() {
        names.push(name.clone());
    }
    let (held, left) = let_go(&home, names).await?;
    if let LeftOver::Owned(by) = &left {
        let again = match target {
            Some(_) if held != *name => {
                format!("; if that is a cluster of another source than {name}, run this again")
            }
            _ => String::new(),
        };
        bail!(
            "replicas still hold shards of {held} after {}s: {}; see `leasehold status{}`{again}",
            LET_GO.as_secs(),
            by.join(", "),
            fleet.home().flags()
        );
    }
    if let Some(target) = target {
        target.clear().await?;
        say(&format!("{name}: the fleet's user there is gone"));
    }
    if let Some(stays) = left.says(&held, &fleet.home().flags()) {
        say(&stays);
    }
    Ok(())
}

/// Waits until the replicas have let go of a cluster, for a while: of one of these names, if they may call it by several.
/// What is left of that. What people have paused stays in home.
async fn let_go(
    home: &HomeCluster,
    names: Vec<ClusterName>,
) -> anyhow::Result<(ClusterName, LeftOver)> {
    let (mut pace, mut last) = (Pace::default(), Vec::new());
    let gone = async {
        loop {
            let fleet = pace.look(home.fleet()).await?;
            let left: Vec<_> = names.iter().map(|name| fleet.remains_of(name)).collect();
            // A shard that is paused meanwhile loses its owner first, and one that moves has none for a moment.
            let is_over = |(n, left): (usize, &LeftOver)| {
                let stays = matches!(left, LeftOver::Idle(_, Some(_))) && last.get(n) == Some(left);
                stays || *left == LeftOver::Nothing
            };
            let over = left.iter().enumerate().position(is_over);
            last = left;
            if let Some(over) = over {
                return anyhow::Ok(over);
            }
            tokio::time::sleep(pace.rest(POLL)).await;
        }
    };
    let over = tokio::time::timeout(LET_GO, gone).await.unwrap_or(Ok(0))?;
    let shown = names.iter().map(ClusterName::as_str).collect::<Vec<_>>().join(", ");
    names
        .into_iter()
        .zip(last)
        .nth(over)
        .with_context(|| format!("home has not said within {}s who has {shown}", LET_GO.as_secs()))
}

async fn list(args: &ListArgs) -> anyhow::Result<()> {
    let home = args.fleet.connect().await?;
    let (entries, fleet) = (Entries::of(&home).all().await, home.fleet().await?);
    let entries = match entries {
        // Whoever may only look sees all but the servers.
        Err(error) if is_forbidden(&error) => {
            ops::warn(format_args!("no servers are shown: {}", model::error::chain(&*error)));
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
    let Some(ReadError::List { source, .. }) = error.downcast_ref() else { return false };
    matches!(&**source, kube::Error::Api(status) if status.code == 403)
}

/// The clusters of which replicas know, by the names that they give them.
fn known(fleet: &Fleet) -> BTreeSet<ClusterName> {
    let mut names: BTreeSet<ClusterName> =
        fleet.shards.iter().map(|shard| shard.shard.cluster.clone()).collect();
    names.extend(fleet.down().into_keys().map(|(cluster, _)| cluster.clone()));
    names.retain(|name| name.as_str() != model::single::FLEET);
    names
}

/// Which of these names replicas may give a cluster that was added as `own`: `clusters.secrets` of their configuration
/// may have a prefix. Another source may have a cluster that is called so.
fn called(own: &ClusterName, known: &BTreeSet<ClusterName>) -> Vec<ClusterName> {
    if known.contains(own) {
        return vec![own.clone()];
    }
    known.iter().filter(|name| may_be_called(own, name)).cloned().collect()
}

/// The clusters that were added, and those that the fleet knows otherwise.
fn listed(added: &BTreeMap<ClusterName, AddedCluster>, fleet: &Fleet) -> Vec<Listed> {
    let mut names = known(fleet);
    let shown = |own: &ClusterName| match &called(own, &names)[..] {
        [one] => one.clone(),
        _ => own.clone(),
    };
    let servers: BTreeMap<ClusterName, &String> =
        added.iter().map(|(own, added)| (shown(own), &added.server)).collect();
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
        let of = |all: &[&str]| {
            let found = called(&"east".parse().unwrap(), &names(all));
            found.iter().map(ClusterName::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&["onboarded.east", "far-east", "west"]), ["onboarded.east"]);
        assert_eq!(of(&["onboarded.east", "east"]), ["east"]);
        assert_eq!(of(&["west"]), [""; 0]);
        assert_eq!(of(&["a.east", "b.east"]), ["a.east", "b.east"]);
    }

    #[test]
    fn a_user_that_does_not_say_its_cluster_is_known_by_its_tokens() {
        let added = |(name, user): (&str, &str)| {
            let added = AddedCluster { user: Some(user.to_owned()), ..AddedCluster::default() };
            (name.parse().unwrap(), added)
        };
        let all = [("east", "1"), ("twin", "1"), ("west", "2")].map(added).into();
        let name_of = |user: &str, name: &str| {
            name_of(user, &name.parse().unwrap(), &all).map(|own| own.to_string())
        };
        assert_eq!(name_of("1", "twin").as_deref(), Some("twin"));
        assert_eq!(name_of("1", "west").as_deref(), Some("east"));
        assert_eq!(name_of("3", "west"), None);
    }

    #[test]
    fn a_cluster_is_listed_once_with_its_server_whatever_replicas_call_it() {
        let shard = FleetShard::example("onboarded.east/tdset/0/1", Some("m-0"), Phase::Owned);
        let fleet = Fleet { shards: vec![shard], ..Fleet::default() };
        let added = |name: &str| {
            let added = AddedCluster { server: format!("https://{name}"), user: None };
            (name.parse().unwrap(), added)
        };
        let rows = listed(&[added("east"), added("west")].into(), &fleet);
        let rows: Vec<_> =
            rows.iter().map(|row| (&*row.cluster, &*row.server, &*row.state)).collect();
        let west = fleet.not_taken_up();
        assert_eq!(
            rows,
            [("onboarded.east", "https://east", "served"), ("west", "https://west", west)]
        );
    }
}
