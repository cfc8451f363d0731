//! `leasehold status`: members and shards of the fleet, read from the home cluster.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use model::{Clock, ClusterName, ControllerName, GroupName, MemberId};
use serde::Serialize;
use sharding::api::{MemberState, Moved, Phase};

use crate::columns::columns;
use crate::home::{HomeArgs, HomeCluster};
use crate::names::{Known, Unknown};
use crate::output::{Output, Pace, Watching, ago, print};
use crate::program::Program;
use clock::SystemClock;
use fleet::{Fleet, FleetMember, FleetShard, Problem, Refused, word};

/// Arguments of `leasehold status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Which fleet.
    #[command(flatten)]
    home: HomeArgs,
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Only the shards of this cluster.
    #[arg(long, value_name = "NAME")]
    cluster: Vec<ClusterName>,
    /// Only this member and its shards: its id, or its identity (the pod's name).
    #[arg(long, value_name = "NAME")]
    member: Vec<String>,
    /// Wait until the fleet has settled: a member renews its Lease, there are shards if there are clusters, each is
    /// owned by a member that renews, nobody is refused, and what is asked for is there. After this long (40s, 2m), show what there is and exit with 1.
    #[arg(long, value_name = "DURATION", value_parser = model::duration)]
    wait: Option<Duration>,
    /// Show it again at each change, until interrupted.
    #[arg(long, short = 'w', conflicts_with = "wait")]
    watch: bool,
}

/// How often a fleet is read that has not settled yet, or is watched.
const POLL: Duration = Duration::from_millis(500);
/// The exit code when something is wrong with the fleet.
const UNHEALTHY: u8 = 3;
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints the fleet; after a wait in vain, with exit code 1. Without a wait, it is 3 if something is wrong.
///
/// # Errors
/// When the home cluster cannot be named, reached or read, or has not what is asked for.
pub(crate) async fn run(args: &StatusArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let home = program.home(&args.home).await?;
    if args.watch {
        return watch(&home, args).await;
    }
    let fleet = match args.wait {
        Some(wait) => settled(&home, args, wait).await,
        None => home.fleet().await,
    }?;
    check_names(&home, &fleet, args)?;
    let now = SystemClock.wall();
    let in_vain = args.wait.is_some() && !fleet.is_settled(now);
    let (fleet, problems) = chosen(fleet, args, now);
    args.output.print(&Shown { fleet: &fleet, problems: &problems }, || {
        table(&fleet, args, &problems, now)
    })?;
    // Whoever waits asks for one thing only.
    Ok(match (args.wait, in_vain, problems.is_empty()) {
        (Some(_), true, _) => ExitCode::FAILURE,
        (Some(_), false, _) | (None, _, true) => ExitCode::SUCCESS,
        (None, _, false) => ExitCode::from(UNHEALTHY),
    })
}

/// The fleet and what is wrong with it.
#[derive(Serialize)]
struct Shown<'f> {
    #[serde(flatten)]
    fleet: &'f Fleet,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    problems: &'f [Problem],
}

/// Prints the fleet at each change.
async fn watch(home: &HomeCluster, args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let clears = is_cleared(std::io::stdout().is_terminal(), std::env::var_os("TERM").as_deref());
    let (mut last, mut watching) = (None, Watching::default());
    let mut read = home.fleet().await?;
    check_names(home, &read, args)?;
    loop {
        let now = SystemClock.wall();
        let (fleet, problems) = chosen(read, args, now);
        // Renewals alone are no change.
        let mut same = (fleet.clone(), problems.clone());
        for member in &mut same.0.members {
            (member.renewed, member.seen_renewing) = (None, false);
        }
        if last.replace(same.clone()).is_none_or(|last| last != same) {
            if clears {
                print(CLEAR)?;
            }
            args.output.print_next(&Shown { fleet: &fleet, problems: &problems }, || {
                table(&fleet, args, &problems, now) + "\n"
            })?;
        }
        read = loop {
            if !watching.goes_on(POLL).await {
                return Ok(ExitCode::SUCCESS);
            }
            if let Some(read) = watching.look(home.fleet()).await {
                break read;
            }
        };
    }
}

/// Whether what is printed to is cleared before each look: a terminal that knows how.
fn is_cleared(is_terminal: bool, kind: Option<&OsStr>) -> bool {
    is_terminal && kind.is_some_and(|kind| kind != "dumb")
}

/// Whether home knows the fleet, and the fleet has what was asked for.
fn check_names(home: &HomeCluster, fleet: &Fleet, args: &StatusArgs) -> anyhow::Result<()> {
    if !args.cluster.is_empty() || !args.member.is_empty() {
        home.knows(fleet)?;
    }
    Ok(has_names(fleet, args)?)
}

fn has_names(fleet: &Fleet, args: &StatusArgs) -> Result<(), Unknown> {
    Known::clusters(fleet).have(&args.cluster)?;
    Known::members(&fleet.members).have(&args.member)
}

/// The part of the fleet that was asked for, and what is wrong with it. Whether a shard is served depends on all
/// members.
fn chosen(mut fleet: Fleet, args: &StatusArgs, now: Timestamp) -> (Fleet, Vec<Problem>) {
    let of_cluster =
        |cluster: &ClusterName| args.cluster.is_empty() || args.cluster.contains(cluster);
    let wanted: Vec<_> =
        fleet.members.iter().filter(|m| asked(m, args)).map(|m| m.member.clone()).collect();
    let of_member = |shard: &FleetShard| {
        let mut holders = shard.owner.iter().chain(&shard.target);
        args.member.is_empty() || holders.any(|holder| wanted.contains(holder))
    };
    fleet.shards.retain(|shard| of_cluster(&shard.shard.cluster) && of_member(shard));
    for member in &mut fleet.members {
        member.down_clusters.retain(|down| of_cluster(&down.cluster));
    }
    let problems = fleet.problems(now);
    fleet.members.retain(|member| asked(member, args));
    (fleet, problems)
}

fn asked(member: &FleetMember, args: &StatusArgs) -> bool {
    let is = |name: &String| *name == member.identity || *name == member.member.as_str();
    args.member.is_empty() || args.member.iter().any(is)
}

/// Reads the fleet until it has settled and has what is asked for, or for this long.
async fn settled(home: &HomeCluster, args: &StatusArgs, wait: Duration) -> anyhow::Result<Fleet> {
    let mut pace = Pace::default();
    let mut last = pace.look(home.fleet()).await;
    let is_settled =
        |fleet: &Fleet| fleet.is_settled(SystemClock.wall()) && has_names(fleet, args).is_ok();
    let settle = async {
        while !last.as_ref().is_ok_and(is_settled) {
            tokio::time::sleep(pace.rest(POLL)).await;
            last = pace.look(home.fleet()).await;
        }
    };
    let _ = tokio::time::timeout(wait, settle).await;
    last
}

/// The fleet as text, as of `now` on the reader's clock.
fn table(fleet: &Fleet, args: &StatusArgs, problems: &[Problem], now: Timestamp) -> String {
    let mut text = members(fleet, args, now);
    text.push('\n');
    text += &shards(fleet, now);
    if args.output == Output::Wide && !fleet.groups.is_empty() {
        let row = |(group, controllers): (&GroupName, &BTreeSet<ControllerName>)| {
            let controllers: Vec<&str> = controllers.iter().map(|name| name.as_str()).collect();
            [group.to_string(), controllers.join(",")]
        };
        text.push('\n');
        text += &columns(["GROUP", "CONTROLLERS"], fleet.groups.iter().map(row));
    }
    let down = fleet.down();
    if !down.is_empty() {
        let row = |(&(cluster, reason), members): (&(&ClusterName, &str), &Vec<&MemberId>)| {
            let members: Vec<&str> = members.iter().map(|member| member.as_str()).collect();
            [cluster.to_string(), members.join(","), reason.to_owned()]
        };
        text.push('\n');
        text += &columns(["DOWN CLUSTER", "SEEN BY", "REASON"], down.iter().map(row));
    }
    if !fleet.refused.is_empty() {
        let row = |refused: &Refused| [refused.member.to_string(), refused.reason.clone()];
        text.push('\n');
        text += &columns(["CANNOT TAKE PART", "REASON"], fleet.refused.iter().map(row));
    }
    let count = |phase| fleet.shards.iter().filter(|s| s.phase == phase).count();
    let paused = fleet.shards.iter().filter(|shard| shard.paused_by.is_some()).count();
    text += &format!(
        "\n{} members, {} shards: {} owned, {} draining, {} unowned\n",
        fleet.members.len(),
        fleet.shards.len(),
        count(Phase::Owned),
        count(Phase::Draining),
        count(Phase::Unowned),
    );
    if paused > 0 {
        let shards =
            if paused == 1 { "1 shard is".to_owned() } else { format!("{paused} shards are") };
        text += &format!("{shards} paused: see `leasehold policies`\n");
    }
    for problem in problems {
        text += &format!("problem: {problem}\n");
    }
    text
}

fn members(fleet: &Fleet, args: &StatusArgs, now: Timestamp) -> String {
    let member_row = |m: &FleetMember| {
        let renewed = m.renewed.map_or_else(|| "never".to_owned(), |at| ago(at, now));
        let role = if m.coordinator { "coordinator" } else { "" };
        [
            m.member.to_string(),
            state(m),
            word(&m.lease),
            renewed,
            m.shards.to_string(),
            workers(m.busy),
            versions(m),
            role.to_owned(),
        ]
    };
    if args.output == Output::Wide {
        let wide = |m: &FleetMember| {
            let [member, state, lease, renewed, shards, busy, protocol, role] = member_row(m);
            let (identity, capacity) = (m.identity.clone(), m.capacity.to_string());
            let zone = m.zone.clone().unwrap_or_else(|| "-".to_owned());
            [member, identity, zone, state, lease, renewed, shards, busy, capacity, protocol, role]
        };
        let heading = [
            "MEMBER", "IDENTITY", "ZONE", "STATE", "LEASE", "RENEWED", "SHARDS", "BUSY",
            "CAPACITY", "PROTOCOL", "ROLE",
        ];
        return columns(heading, fleet.members.iter().map(wide));
    }
    let heading = ["MEMBER", "STATE", "LEASE", "RENEWED", "SHARDS", "BUSY", "PROTOCOL", "ROLE"];
    columns(heading, fleet.members.iter().map(member_row))
}

fn shards(fleet: &Fleet, now: Timestamp) -> String {
    let shard_row = |s: &FleetShard| {
        let owner = s.owner.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let target = s.target.as_ref().map(|t| format!("-> {t}")).unwrap_or_default();
        let note = match &s.paused_by {
            Some(policy) => format!(", paused by {policy}"),
            None if s.unserved => ", not served".to_owned(),
            None if s.in_doubt => ", perhaps not served".to_owned(),
            None => String::new(),
        };
        let moved = s.moved.as_ref().and_then(|Moved { why, at }| {
            let when = at.as_ref().map(|at| ago(at.0, now))?;
            Some(format!("{when}: {why}"))
        });
        let phase = word(&s.phase) + &note;
        let epoch = s.epoch.to_string();
        [s.shard.to_string(), phase, epoch, owner, target, moved.unwrap_or_default()]
    };
    let heading = ["SHARD", "PHASE", "EPOCH", "OWNER", "TARGET", "MOVED"];
    columns(heading, fleet.shards.iter().map(shard_row))
}

/// The state of a member, or of its drain.
fn state(member: &FleetMember) -> String {
    let drains = match (member.drain && member.state == MemberState::Active, member.shards) {
        (true, 0) => "drained".to_owned(),
        (true, _) => "draining".to_owned(),
        (false, _) => return word(&member.state),
    };
    match &member.cordoned_by {
        Some(policy) => format!("{drains}, cordoned by {policy}"),
        None => drains,
    }
}

/// The versions of the protocol that a member speaks.
fn versions(member: &FleetMember) -> String {
    match (member.oldest_protocol_version, member.protocol_version) {
        (oldest, newest) if oldest == newest => newest.to_string(),
        (oldest, newest) => format!("{oldest}-{newest}"),
    }
}

/// Milliseconds of work in each second, as a number of busy workers.
fn workers(busy: u32) -> String {
    format!("{:.2}", f64::from(busy) / 1e3)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use model::Epoch;
    use sharding::api::{DownCluster, MoveCause};

    use clap::Parser;

    use super::*;
    use crate::{Command, One};

    #[test]
    fn only_a_terminal_that_knows_how_is_cleared() {
        for (is_terminal, kind, expect) in [
            (true, Some("xterm"), true),
            (true, Some("dumb"), false),
            (true, None, false),
            (false, Some("xterm"), false),
        ] {
            assert_eq!(is_cleared(is_terminal, kind.map(OsStr::new)), expect, "{kind:?}");
        }
    }

    #[test]
    fn the_table() {
        let member = |id: &str, coordinator: bool| FleetMember {
            identity: "replica".into(),
            zone: coordinator.then(|| "eu-1a".to_owned()),
            drain: !coordinator,
            cordoned_by: (!coordinator).then(|| "limit-all".to_owned()),
            renewed: Some(Timestamp::UNIX_EPOCH),
            coordinator,
            capacity: 100,
            protocol_version: 1 + u32::from(!coordinator),
            shards: 1,
            busy: 1250,
            down_clusters: vec![DownCluster {
                cluster: "west".parse().unwrap(),
                reason: "kubeconfig west has no contexts; fix: add a context".into(),
            }],
            ..FleetMember::example(id)
        };
        let shard = |name: &str, owned: bool, phase| {
            FleetShard::example(name, owned.then_some("replica-0-abcde"), phase)
        };
        let fleet = Fleet {
            coordinator: Some("replica-0-abcde".parse().unwrap()),
            members: vec![member("replica-0-abcde", true), member("replica-10-xyzzy", false)],
            shards: vec![
                FleetShard {
                    epoch: Epoch(3),
                    target: Some("replica-10-xyzzy".parse().unwrap()),
                    moved: Some(Moved {
                        why: MoveCause::Balance,
                        at: Some(Time(Timestamp::UNIX_EPOCH)),
                    }),
                    ..shard("east/tdset/0/1", true, Phase::Draining)
                },
                FleetShard { epoch: Epoch(0), ..shard("north/tdset/0/1", false, Phase::Unowned) },
                FleetShard {
                    epoch: Epoch(7),
                    unserved: true,
                    ..shard("west/tdset/0/1", true, Phase::Owned)
                },
            ],
            protocol_version: Some(1),
            groups: [(
                "tdset".parse().unwrap(),
                ["tdset", "zebra"].map(|name| name.parse().unwrap()).into(),
            )]
            .into(),
            refused: vec![Refused {
                member: "replica-10-xyzzy".parse().unwrap(),
                reason: "the fleet uses protocol version 1; fix: roll this replica back".into(),
            }],
            ..Fleet::default()
        };
        let now = Timestamp::from_millisecond(1500).unwrap();
        let args = |line: &[&str]| {
            let line = ["leasehold", "status"].iter().chain(line);
            match One::parse_from(line).command {
                Command::Status(args) => args,
                _ => unreachable!(),
            }
        };
        let problems = fleet.problems(now);
        let one = args(&["--cluster", "west", "--member", "replica-0-abcde", "-o", "wide"]);
        let (part, of_part) = chosen(fleet.clone(), &one, now);
        assert!(
            of_part.iter().any(|problem| problem.what.contains("replica-10-xyzzy")),
            "{of_part:?}"
        );
        insta::assert_snapshot!(table(&part, &one, &[], now), @r"
        MEMBER           IDENTITY  ZONE   STATE   LEASE  RENEWED   SHARDS  BUSY  CAPACITY  PROTOCOL  ROLE
        replica-0-abcde  replica   eu-1a  active  held   1.5s ago  1       1.25  100       1         coordinator

        SHARD           PHASE              EPOCH  OWNER            TARGET  MOVED
        west/tdset/0/1  owned, not served  7      replica-0-abcde

        GROUP  CONTROLLERS
        tdset  tdset,zebra

        DOWN CLUSTER  SEEN BY          REASON
        west          replica-0-abcde  kubeconfig west has no contexts; fix: add a context

        CANNOT TAKE PART  REASON
        replica-10-xyzzy  the fleet uses protocol version 1; fix: roll this replica back

        1 members, 1 shards: 1 owned, 0 draining, 0 unowned
        ");
        let wrong = |line: &[&str]| has_names(&fleet, &args(line)).unwrap_err().to_string();
        assert_eq!(has_names(&fleet, &one), Ok(()));
        let clusters = r#"no cluster "eats" in the fleet: there are east, north, west"#;
        assert_eq!(wrong(&["--cluster", "eats"]), clusters);
        let members = r#"no member "replica-9" in the fleet: there are replica, replica-0-abcde, replica-10-xyzzy"#;
        assert_eq!(wrong(&["--member", "replica-9"]), members);
        insta::assert_snapshot!(table(&fleet, &args(&[]), &problems, now), @r"
        MEMBER            STATE                            LEASE  RENEWED   SHARDS  BUSY  PROTOCOL  ROLE
        replica-0-abcde   active                           held   1.5s ago  1       1.25  1         coordinator
        replica-10-xyzzy  draining, cordoned by limit-all  held   1.5s ago  1       1.25  1-2

        SHARD            PHASE              EPOCH  OWNER            TARGET               MOVED
        east/tdset/0/1   draining           3      replica-0-abcde  -> replica-10-xyzzy  1.5s ago: balance
        north/tdset/0/1  unowned            0      -
        west/tdset/0/1   owned, not served  7      replica-0-abcde

        DOWN CLUSTER  SEEN BY                           REASON
        west          replica-0-abcde,replica-10-xyzzy  kubeconfig west has no contexts; fix: add a context

        CANNOT TAKE PART  REASON
        replica-10-xyzzy  the fleet uses protocol version 1; fix: roll this replica back

        2 members, 3 shards: 1 owned, 1 draining, 1 unowned
        problem: 1 shard (north/tdset/0/1) without an owner; fix: see DOWN CLUSTER in `leasehold status`; policies may rule all members out: `leasehold policies`
        problem: 1 shard (west/tdset/0/1) not served: their owners do not have the cluster configured or fail to reach it; fix: `leasehold doctor` asks the replicas, and says why, cluster by cluster
        problem: member replica-10-xyzzy cannot take part: the fleet uses protocol version 1; fix: roll this replica back
        problem: cluster west is down for replica-0-abcde, replica-10-xyzzy: kubeconfig west has no contexts; fix: add a context
        ");
    }
}
