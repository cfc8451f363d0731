//! `leasehold pause`, `resume`, `pin`, `avoid`, `weigh`, `limit` and `lift`: what people want of the fleet, as
//! FleetPolicies of its home cluster. Members read them at once; the coordinator acts on them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use clap::ArgGroup;
use clock::SystemClock;
use fleet::Fleet;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use model::error::foreign;
use model::{Clock, ShardId, uid_hash};
use serde::Serialize;
use serde_json::Value;
use sharding::api::{
    FleetPolicy, FleetPolicySpec, MemberPreference, MemberRule, MemberSelector, MoveLimits,
    ShardSelector,
};

use crate::home::{HomeArgs, HomeCluster};
use crate::names::Known;
use crate::output::{Pace, WriteForm, warn};
use crate::policies::{FoundPolicy, USER, answered, api, list, says};
use crate::program::Program;
use crate::selection;
use crate::stall::Stall;

/// Who wrote a policy, as the home cluster records it.
const MANAGER: &str = "leasehold-cli";
/// How often the fleet is read while something is awaited.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Some shards, by names.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SomeArgs {
    /// All shards of this cluster, or those of the groups given beside it.
    #[arg(long, value_name = "NAME")]
    cluster: Vec<String>,
    /// All shards of this controller group, in all clusters or in those given beside it.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// This shard, as `leasehold status` shows it: cluster/group/i/n.
    #[arg(long, value_name = "SHARD")]
    shard: Vec<ShardId>,
}

/// Which shards.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
#[command(group = selected(&["cluster", "group", "shard", "all"]))]
pub(crate) struct SelectArgs {
    /// Some.
    #[command(flatten)]
    some: SomeArgs,
    /// All shards of the fleet.
    #[arg(long, conflicts_with_all = ["cluster", "group", "shard"])]
    all: bool,
}

/// Which members.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MemberArgs {
    /// A replica, by its identity (the Pod's name); `name*` for all whose names begin so.
    #[arg(long = "member", value_name = "NAME")]
    names: Vec<String>,
    /// The replicas in this zone.
    #[arg(long = "zone", value_name = "NAME")]
    zones: Vec<String>,
}

/// What all verbs share that write a policy.
#[derive(Debug, clap::Args)]
pub(crate) struct WriteArgs {
    /// Write it without a look at the fleet: for a cluster, a group or a member that is still to come.
    #[arg(long)]
    force: bool,
    /// Why, for those who read it.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// How it is written and told.
    #[command(flatten)]
    form: WriteForm,
    /// Which fleet.
    #[command(flatten)]
    home: HomeArgs,
}

/// Arguments of `leasehold pause`.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    /// Which shards.
    #[command(flatten)]
    select: SelectArgs,
    /// Wait until nobody owns any of them.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// Why, and which fleet.
    #[command(flatten)]
    write: WriteArgs,
}

/// Arguments of `leasehold resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    /// The same shards as were paused together.
    #[command(flatten)]
    select: SelectArgs,
    /// How it is written and told.
    #[command(flatten)]
    form: WriteForm,
    /// Which fleet.
    #[command(flatten)]
    home: HomeArgs,
}

/// Arguments of `leasehold pin` and `leasehold avoid`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Which shards.
    #[command(flatten)]
    select: SelectArgs,
    /// Which members.
    #[command(flatten)]
    members: MemberArgs,
    /// Rather leave a shard without an owner than have it elsewhere.
    #[arg(long)]
    required: bool,
    /// Why, and which fleet.
    #[command(flatten)]
    write: WriteArgs,
}

/// Arguments of `leasehold weigh`.
#[derive(Debug, clap::Args)]
#[command(group = selected(&["cluster", "group", "shard"]))]
pub(crate) struct WeighArgs {
    /// Which shards.
    #[command(flatten)]
    select: SomeArgs,
    /// Each of them counts as if its work took so many milliseconds in each second.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    busy: u32,
    /// Why, and which fleet.
    #[command(flatten)]
    write: WriteArgs,
}

/// Arguments of `leasehold limit`.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Which members; all if none is given.
    #[command(flatten)]
    members: MemberArgs,
    /// All members, and those to come. Who cordons all of them has to say so.
    #[arg(long, conflicts_with_all = ["names", "zones"])]
    all: bool,
    /// What holds.
    #[command(flatten)]
    limits: Limits,
    /// Why, and which fleet.
    #[command(flatten)]
    write: WriteArgs,
}

/// What `leasehold limit` sets.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Limits {
    /// How much each of these members can carry, in place of what its configuration says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    capacity: Option<u32>,
    /// How many shards each of them has at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    max_shards: Option<u32>,
    /// They hand over what they have and get nothing, also after a restart.
    #[arg(long)]
    cordon: bool,
    /// How many shards may move at a time from or to one member, for balance or maintenance.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    moves_per_member: Option<u32>,
    /// How many may move at a time in the whole fleet.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    moves: Option<u32>,
}

/// Arguments of `leasehold lift`.
#[derive(Debug, clap::Args)]
pub(crate) struct LiftArgs {
    /// The policies, as `leasehold policies` shows them.
    #[arg(value_name = "POLICY", required = true)]
    names: Vec<String>,
    /// How it is written and told.
    #[command(flatten)]
    form: WriteForm,
    /// Which fleet.
    #[command(flatten)]
    home: HomeArgs,
}

pub(crate) async fn pause(args: &PauseArgs, program: &Program) -> anyhow::Result<()> {
    let spec = FleetPolicySpec { pause: Some(true), ..args.select.spec() };
    let (home, name) = write("pause", spec.clone(), &args.write, program).await?;
    let lift = lift_of(&name, &args.write.home);
    if args.wait { wait(&home, &name, &lift, &spec, args.write.form).await } else { Ok(()) }
}

/// The command that takes a policy back.
fn lift_of(name: &str, home: &HomeArgs) -> String {
    format!("leasehold lift {name}{}", home.flags())
}

/// Waits until the coordinator has acted on a pause: nobody owns a shard that it selects, and still nobody does a
/// moment later.
async fn wait(
    home: &HomeCluster,
    name: &str,
    lift: &str,
    spec: &FleetPolicySpec,
    form: WriteForm,
) -> anyhow::Result<()> {
    let stays = || format!("{name} is written, and stays until `{lift}`");
    let (mut told, mut was_done) = (usize::MAX, false);
    let (mut pace, mut stall) = (Pace::default(), Stall::default());
    loop {
        let fleet = pace.look(home.fleet()).await.with_context(stays)?;
        let paused = selection::shards_of(spec, &fleet);
        anyhow::ensure!(!paused.is_empty(), "{}: it selects no shard that there is", stays());
        let lifted = paused.iter().any(|shard| shard.paused_by.is_none());
        anyhow::ensure!(!lifted, "{name} was taken back, or this user may not list FleetPolicies");
        let left = paused.iter().filter(|shard| shard.owner.is_some()).count();
        if left == 0 && was_done {
            return form.progress(&format!("{name}: nobody owns any of {} shards", paused.len()));
        }
        if left != told && left > 0 {
            let all = paused.len();
            form.progress(&format!("{name}: {left} of {all} shards still have an owner"))?;
            told = left;
        }
        let nobody = fleet.nobody_coordinates(SystemClock.wall());
        stall.news(nobody, SystemClock.now()).iter().for_each(warn);
        was_done = left == 0;
        tokio::time::sleep(pace.rest(LOOK_INTERVAL)).await;
    }
}

pub(crate) async fn resume(args: &ResumeArgs, program: &Program) -> anyhow::Result<()> {
    let home = program.home(&args.home).await?;
    let wanted = args.select.spec().shards;
    let policies = list(&home).await?;
    let pauses = || policies.iter().filter(|policy| policy.is_pause());
    let same: Vec<_> = pauses().filter(|policy| selects(policy, &wanted)).collect();
    if same.is_empty() {
        let others: Vec<&str> = pauses().map(|policy| policy.name.as_str()).collect();
        let flags = args.home.flags();
        anyhow::ensure!(
            !others.is_empty(),
            "no FleetPolicy in namespace {} of {} pauses anything; if replicas say that one was lost and its pause \
             holds, write it again by the name that they say, and take it back then",
            home.namespace,
            home.shown
        );
        anyhow::bail!(
            "no pause selects exactly these shards; there are {}: see `leasehold policies{flags}`, and take one back \
             with `{}`",
            others.join(", "),
            lift_of(others[0], &args.home)
        );
    }
    for FoundPolicy { name, spec, .. } in &same {
        let said = spec.clone().unwrap_or_default();
        let rest = FleetPolicySpec { pause: None, shards: None, reason: None, ..said };
        anyhow::ensure!(
            rest == FleetPolicySpec::default(),
            "{name} says more than a pause, so nothing is taken back; fix: edit it with kubectl --namespace {} edit \
             fleetpolicy {name}",
            home.namespace
        );
    }
    let pauses: Vec<_> = same.iter().map(|it| (it.name.as_str(), Some(&it.object))).collect();
    delete_all(&home, &pauses, args.form).await?;
    tell_what_stays_paused(&home, &same).await;
    Ok(())
}

/// Tells of the shards that stay paused although these policies were deleted. What was asked for is done, so that it
/// cannot be told is no failure.
async fn tell_what_stays_paused(home: &HomeCluster, deleted: &[&FoundPolicy]) {
    let Ok(mut objects) = home.objects().await else { return };
    // After a dry run they are still there.
    objects.policies.retain(|policy| deleted.iter().all(|gone| gone.name != policy.name));
    still_paused(deleted, &fleet::assemble(&objects)).iter().for_each(warn);
}

/// What to say of shards that deleted policies paused, and that others still pause.
fn still_paused(deleted: &[&FoundPolicy], fleet: &Fleet) -> Option<String> {
    let specs = deleted.iter().filter_map(|policy| policy.spec.as_ref().ok());
    let pauses = specs.filter(|spec| spec.pause == Some(true));
    let shards = pauses.flat_map(|spec| selection::shards_of(spec, fleet));
    let shards: BTreeMap<&ShardId, Option<&str>> =
        shards.map(|shard| (&shard.shard, shard.paused_by.as_deref())).collect();
    let by: Vec<&str> = shards.values().copied().flatten().collect();
    let (count, by) = (by.len(), Vec::from_iter(BTreeSet::from_iter(by)));
    (count > 0).then(|| {
        let (all, by) = (shards.len(), by.join(", "));
        format!("{count} of {all} shards stay paused, by {by}: see `leasehold policies`")
    })
}

/// Whether a policy is about exactly these shards. One that cannot be read is about nobody knows which.
fn selects(policy: &FoundPolicy, wanted: &Option<ShardSelector>) -> bool {
    policy.spec.as_ref().is_ok_and(|spec| same(&spec.shards, wanted))
}

pub(crate) async fn pin(args: &PlaceArgs, program: &Program) -> anyhow::Result<()> {
    let spec = FleetPolicySpec { pin: Some(args.preference()?), ..args.select.spec() };
    write("pin", spec, &args.write, program).await.map(drop)
}

pub(crate) async fn avoid(args: &PlaceArgs, program: &Program) -> anyhow::Result<()> {
    let spec = FleetPolicySpec { avoid: Some(args.preference()?), ..args.select.spec() };
    write("avoid", spec, &args.write, program).await.map(drop)
}

pub(crate) async fn weigh(args: &WeighArgs, program: &Program) -> anyhow::Result<()> {
    let spec = FleetPolicySpec { busy: Some(args.busy), ..args.select.spec() };
    write("weigh", spec, &args.write, program).await.map(drop)
}

pub(crate) async fn limit(args: &LimitArgs, program: &Program) -> anyhow::Result<()> {
    write("limit", args.spec()?, &args.write, program).await.map(drop)
}

pub(crate) async fn lift(args: &LiftArgs, program: &Program) -> anyhow::Result<()> {
    let home = program.home(&args.home).await?;
    // Whoever may delete policies and not list them can still do so.
    let known = list(&home).await.ok();
    if let Some(known) = &known {
        let names = known.iter().map(|policy| &policy.name);
        Known::new("FleetPolicy", names).have(&args.names)?;
    }
    let names = BTreeSet::from_iter(&args.names);
    let policies: Vec<_> = names.into_iter().map(|name| (name.as_str(), None)).collect();
    delete_all(&home, &policies, args.form).await?;
    let known = known.iter().flatten();
    let deleted: Vec<_> = known.filter(|policy| args.names.contains(&policy.name)).collect();
    tell_what_stays_paused(&home, &deleted).await;
    Ok(())
}

async fn write(
    verb: &str,
    mut spec: FleetPolicySpec,
    args: &WriteArgs,
    program: &Program,
) -> anyhow::Result<(HomeCluster, String)> {
    let home = program.home(&args.home).await?;
    let about = if args.force {
        String::new()
    } else {
        // Else a pause of all would be of nothing, and reported as done.
        let fleet = home.known_fleet().await?;
        selection::by_identity(&mut spec, &fleet);
        let selected = selection::selected(&spec, &fleet);
        let selected = selected.map_err(|none| {
            anyhow::anyhow!(
                "{none}; nothing is written (--force writes it for what is still to come)"
            )
        })?;
        if selected.is_empty() { selected } else { format!(", for {selected}") }
    };
    let name = name(verb, &spec)?;
    let spec = FleetPolicySpec { reason: args.reason.clone(), ..spec };
    let says_ = says(&spec)?;
    let mut policy = FleetPolicy::new(&name, spec);
    policy.metadata.annotations = user(&home).await.map(|user| [(USER.to_owned(), user)].into());
    let (api, is_dry) = (api(&home), args.form.dry_run);
    let params = PatchParams { dry_run: is_dry, ..PatchParams::apply(MANAGER).force() };
    let what =
        format!("write FleetPolicy {name} in namespace {} of {}", home.namespace, home.shown);
    let before = answered(api.get_opt(&name), &what).await?;
    let written = answered(api.patch(&name, &params, &Patch::Apply(&policy)), &what).await?;
    let (written, lift) = (FoundPolicy::of(written), lift_of(&name, &args.home));
    check_said(&written, &policy.spec, is_dry, &lift)?;
    let before = before.map(|before| FoundPolicy::of(before).says()).transpose()?;
    let before = before.filter(|before| *before != says_);
    let before =
        before.map_or(String::new(), |before| format!("{name}: before, it said {before}\n"));
    let words = format!("{before}{name}: {says_}{about}; take it back with `{lift}`");
    args.form.print(&written.object, &words)?;
    Ok((home, name))
}

/// Whether a policy that was written, or would be, says what was asked for: fields that others set in it stay.
fn check_said(
    written: &FoundPolicy,
    asked: &FleetPolicySpec,
    is_dry: bool,
    lift: &str,
) -> anyhow::Result<()> {
    let of = |spec: &FleetPolicySpec| FleetPolicySpec { reason: None, ..spec.clone() };
    let is_asked = written.spec.as_ref().is_ok_and(|said| of(said) == of(asked));
    anyhow::ensure!(
        is_asked,
        "{} {}, but says something else than was asked for: {}; others have set a part of it, as by `kubectl edit`, or \
         home has the definition of another release; fix: `{lift}`, and say it again; if that does not help: `leasehold \
         crds --for home | kubectl apply --server-side --force-conflicts -f -`",
        written.name,
        if is_dry { "would be written" } else { "is written" },
        written.said()
    );
    Ok(())
}

/// Who runs this command, if the home cluster says so.
async fn user(home: &HomeCluster) -> Option<String> {
    let reviews = Api::<SelfSubjectReview>::all(home.client.clone());
    let (params, review) = (PostParams::default(), SelfSubjectReview::default());
    let reviewed = answered(reviews.create(&params, &review), "ask who this is").await.ok()?;
    reviewed.status?.user_info?.username
}

/// Deletes policies; if what one said counts, only while it says no more than that. All of them are tried first:
/// whoever takes several back must not be left with some.
async fn delete_all(
    home: &HomeCluster,
    policies: &[(&str, Option<&DynamicObject>)],
    form: WriteForm,
) -> anyhow::Result<()> {
    if policies.len() > 1 && !form.dry_run {
        let mut trial = form;
        trial.dry_run = true;
        for &policy in policies {
            delete(home, policy, trial).await?;
        }
    }
    for &policy in policies {
        let deleted = delete(home, policy, form).await?;
        form.print(&deleted, &format!("{}: lifted", policy.0))?;
    }
    Ok(())
}

async fn delete(
    home: &HomeCluster,
    (name, said): (&str, Option<&DynamicObject>),
    form: WriteForm,
) -> anyhow::Result<Value> {
    let api = api(home);
    let preconditions =
        said.map(|it| Preconditions { uid: it.uid(), resource_version: it.resource_version() });
    let params = DeleteParams { dry_run: form.dry_run, preconditions, ..DeleteParams::default() };
    let what =
        format!("delete FleetPolicy {name} in namespace {} of {}", home.namespace, home.shown);
    let deleted = answered(api.delete(name, &params), &what).await?;
    check_gone(name, &home.namespace, deleted.as_ref().left())?;
    Ok(deleted.either(serde_json::to_value, serde_json::to_value)?)
}

/// Whether a policy is gone, of which this was `left` when it was deleted: one with finalizers stays until they are
/// done with, and so does what it says.
fn check_gone(name: &str, namespace: &str, left: Option<&DynamicObject>) -> anyhow::Result<()> {
    let finalizers = left.map_or(&[][..], |left| left.finalizers());
    anyhow::ensure!(
        finalizers.is_empty(),
        "{name} does not go yet: its finalizers keep it, and it holds on: {}; fix: have whoever set them take them \
         back, and run this again if it is still there; or: kubectl --namespace {namespace} patch fleetpolicy {name} --type merge --patch \
         '{{\"metadata\":{{\"finalizers\":null}}}}'",
        foreign(&finalizers.join(", "))
    );
    Ok(())
}

/// A name that is the same for the same words, whatever the values: to say something again changes it. The hash
/// tells selections apart whose first parts are the same, and what is said of them.
fn name(verb: &str, spec: &FleetPolicySpec) -> anyhow::Result<String> {
    let of = match (&spec.shards, &spec.members) {
        (Some(ShardSelector { clusters, groups, names }), _) => {
            [clusters, groups, names].into_iter().flatten().next().cloned().unwrap_or_default()
        }
        (None, Some(rule)) => {
            let MemberSelector { names, zones } = &rule.select;
            names.iter().chain(zones).next().cloned().unwrap_or_else(|| "all".to_owned())
        }
        (None, None) => "all".to_owned(),
    };
    let kept = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    let of: String = of.chars().map(kept).take(30).collect();
    let select = spec.members.as_ref().map(|rule| &rule.select);
    let words: Vec<String> = [words(&spec.members)?, words(&spec.moves)?].concat();
    let said = serde_json::to_string(&(&spec.shards, select, words))?;
    Ok(format!("{verb}-{}-{:06x}", of.trim_matches('-'), uid_hash(&said) & 0xff_ffff))
}

/// The fields that are set.
fn words(of: &impl Serialize) -> anyhow::Result<Vec<String>> {
    let json = serde_json::to_value(of)?;
    Ok(json.as_object().into_iter().flatten().map(|(word, _)| word.clone()).collect())
}

/// Whether two selectors are the same, in whatever order.
fn same(a: &Option<ShardSelector>, b: &Option<ShardSelector>) -> bool {
    let sets = |selector: &Option<ShardSelector>| {
        let ShardSelector { clusters, groups, names } = selector.clone()?;
        Some([clusters, groups, names].map(BTreeSet::from_iter))
    };
    sets(a) == sets(b)
}

/// The rule that one of these has to be given.
fn selected(by: &[&'static str]) -> ArgGroup {
    ArgGroup::new("selected").required(true).multiple(true).args(by)
}

impl SomeArgs {
    /// A policy about these shards that says nothing yet.
    fn spec(&self) -> FleetPolicySpec {
        let Self { cluster, group, shard } = self.clone();
        let sorted = |names: Vec<String>| Vec::from_iter(BTreeSet::from_iter(names));
        let shards = Some(ShardSelector {
            clusters: sorted(cluster),
            groups: sorted(group),
            names: sorted(shard.iter().map(ToString::to_string).collect()),
        });
        FleetPolicySpec { shards, ..FleetPolicySpec::default() }
    }
}

impl SelectArgs {
    /// A policy about these shards that says nothing yet.
    fn spec(&self) -> FleetPolicySpec {
        if self.all { FleetPolicySpec::default() } else { self.some.spec() }
    }
}

impl MemberArgs {
    fn selector(&self) -> MemberSelector {
        let Self { names, zones } = self.clone();
        let sorted = |names: Vec<String>| Vec::from_iter(BTreeSet::from_iter(names));
        MemberSelector { names: sorted(names), zones: sorted(zones) }
    }
}

impl LimitArgs {
    fn spec(&self) -> anyhow::Result<FleetPolicySpec> {
        let Limits { capacity, max_shards, cordon, moves_per_member, moves } = self.limits;
        let (select, cordon) = (self.members.selector(), cordon.then_some(true));
        let is_of_some = select != MemberSelector::default();
        let rule = MemberRule { select, capacity, max_shards, cordon };
        let is_of_members = capacity.is_some() || max_shards.is_some() || cordon.is_some();
        anyhow::ensure!(
            cordon.is_none() || self.all || is_of_some,
            "say whom to cordon, by --member or --zone; --all cordons everybody, and then nobody takes a shard"
        );
        let limits = MoveLimits { per_member: moves_per_member, in_fleet: moves };
        let is_of_moves = limits != MoveLimits::default();
        anyhow::ensure!(
            !(is_of_moves && is_of_some),
            "--moves and --moves-per-member are of the whole fleet: leave --member and --zone out, and limit these \
             members by a command of its own"
        );
        Ok(FleetPolicySpec {
            members: is_of_members.then_some(rule),
            moves: is_of_moves.then_some(limits),
            ..FleetPolicySpec::default()
        })
    }
}

impl PlaceArgs {
    fn preference(&self) -> anyhow::Result<MemberPreference> {
        let select = self.members.selector();
        anyhow::ensure!(
            select != MemberSelector::default(),
            "say which members, by --member or --zone"
        );
        Ok(MemberPreference { select, required: self.required })
    }
}

#[cfg(test)]
mod tests;
