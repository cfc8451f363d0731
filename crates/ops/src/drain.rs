//! `leasehold drain`: asks the coordinator to move everything away from one member and to give it
//! nothing new, or withdraws that request.
//!
//! It selects the Member and writes one field of it, `spec.drain`. The coordinator makes the moves, and
//! the member keeps the flag as long as its process lives.

use std::time::Duration;

use anyhow::Context as _;
use clock::SystemClock;
use kube::Api;
use kube::api::{Patch, PatchParams};
use model::Clock;
use serde_json::json;
use sharding::api::{Member, MemberState};

use crate::home::{HomeArgs, HomeCluster, in_time};
use crate::names::{Known, Unknown};
use crate::output::{Pace, WriteForm, warn};
use crate::program::Program;
use crate::stall::Stall;
use fleet::{Fleet, FleetMember};

/// How often the fleet is read while a drain is awaited.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Arguments of `leasehold drain`.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    /// Which member: its id as `leasehold status` shows it, or its identity (the pod's name).
    #[arg(value_name = "MEMBER")]
    member: String,
    /// Take it back: the member gets shards again.
    #[arg(long)]
    undo: bool,
    /// Wait until it has no shard left.
    #[arg(long, conflicts_with_all = ["undo", "dry_run"])]
    wait: bool,
    /// How it is written and told.
    #[command(flatten)]
    form: WriteForm,
    /// Which fleet.
    #[command(flatten)]
    home: HomeArgs,
}

/// A name that does not select exactly one live member.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NotOne {
    #[error(transparent)]
    Unknown(#[from] Unknown),
    #[error(
        "member {name} is dead: others take its shards without a drain, see `leasehold status`"
    )]
    Dead { name: String },
    #[error("{name} has several live members: name one of {}", .members.join(", "))]
    Several { name: String, members: Vec<String> },
}

/// A drain was taken back, but that changes nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{member} is asked to drain no more, but is still cordoned by the FleetPolicy {policy} and gets no shards; fix: \
     leasehold lift {policy}{flags}"
)]
struct StillCordoned {
    member: String,
    policy: String,
    flags: String,
}

/// Asks for the drain or takes it back, and waits for its end if told to.
///
/// # Errors
/// When the home cluster cannot be reached, or no such member lives.
pub(crate) async fn run(args: &DrainArgs, program: &Program) -> anyhow::Result<()> {
    let home = program.home(&args.home).await?;
    let fleet = home.known_fleet().await?;
    let member = find(&fleet, &args.member)?;
    let asked = ask(&home, member, args).await?;
    if args.undo {
        return args.form.print(&asked, &undone(member, &args.home.flags())?);
    }
    let words = format!("{}: asked to drain, {}", member.member, shards(member.shards));
    args.form.print(&asked, &words)?;
    if member.shards > 0 && !has_another(&fleet, member) {
        warn("no other member takes shards: it keeps its own until one does");
    }
    if let Some(policy) = fleet.halted_by.as_ref().filter(|_| member.shards > 0) {
        warn(held_up(policy, &args.home.flags()));
    }
    if args.wait {
        return wait(&home, &member.identity, member.shards, args.form).await;
    }
    Ok(())
}

/// Writes whether a member drains, as the arguments say. Returns it as home has it then.
async fn ask(home: &HomeCluster, member: &FleetMember, args: &DrainArgs) -> anyhow::Result<Member> {
    let members = Api::<Member>::namespaced(home.client.clone(), &home.namespace);
    let patch = Patch::Merge(json!({"spec": {"drain": !args.undo}}));
    let name = member.member.as_str();
    let params = PatchParams { dry_run: args.form.dry_run, ..PatchParams::default() };
    let what = format!("write spec.drain of the Member {name} in {}", home.shown);
    let written = in_time(&what, members.patch(name, &params, &patch)).await?;
    written.context(what)
}

/// What to say when the request was taken back.
fn undone(member: &FleetMember, flags: &str) -> Result<String, StillCordoned> {
    let id = &member.member;
    match member.cordoned_by.clone() {
        None => Ok(format!("{id}: takes shards again")),
        Some(policy) => {
            Err(StillCordoned { member: id.to_string(), policy, flags: flags.to_owned() })
        }
    }
}

/// What to say where no shard may move.
fn held_up(policy: &str, flags: &str) -> String {
    format!(
        "by the FleetPolicy {policy}, no shard moves: it keeps its own until `leasehold lift {policy}{flags}`"
    )
}

/// Waits until no shard names a live incarnation of the process as owner.
async fn wait(
    home: &HomeCluster,
    identity: &str,
    mut told: u32,
    form: WriteForm,
) -> anyhow::Result<()> {
    let (mut pace, mut stall) = (Pace::default(), Stall::default());
    loop {
        let fleet = pace.look(home.fleet()).await?;
        let alive: Vec<_> = fleet.alive().filter(|member| member.identity == identity).collect();
        anyhow::ensure!(
            !alive.is_empty(),
            "{identity} is dead: others take its shards when its Lease has expired"
        );
        anyhow::ensure!(
            alive.iter().all(|member| member.drain),
            "the drain of {identity} was taken back"
        );
        let left: u32 = alive.iter().map(|member| member.shards).sum();
        if left == 0 {
            return form.progress(&format!("{identity}: drained"));
        }
        if left != told {
            form.progress(&format!("{identity}: {} left", shards(left)))?;
            told = left;
        }
        let nobody = fleet.nobody_coordinates(SystemClock.wall());
        stall.news(nobody, SystemClock.now()).iter().for_each(warn);
        tokio::time::sleep(pace.rest(LOOK_INTERVAL)).await;
    }
}

/// The live member with this id or identity.
fn find<'a>(fleet: &'a Fleet, name: &str) -> Result<&'a FleetMember, NotOne> {
    let named = |member: &&FleetMember| member.member.as_str() == name || member.identity == name;
    let alive: Vec<_> = fleet.alive().filter(named).collect();
    match alive[..] {
        [member] => Ok(member),
        [] if fleet.members.iter().any(|member| named(&member)) => {
            Err(NotOne::Dead { name: name.to_owned() })
        }
        [] => Err(Known::members(fleet.alive()).unknown(name).into()),
        _ => {
            let members = alive.iter().map(|member| member.member.to_string()).collect();
            Err(NotOne::Several { name: name.to_owned(), members })
        }
    }
}

fn has_another(fleet: &Fleet, than: &FleetMember) -> bool {
    let takes = |member: &FleetMember| member.state == MemberState::Active && !member.drain;
    fleet.alive().any(|member| member.member != than.member && takes(member))
}

fn shards(count: u32) -> String {
    format!("{count} shard{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use fleet::LeaseStanding;

    use super::*;

    fn member(identity: &str, suffix: &str, lease: LeaseStanding) -> FleetMember {
        let member = FleetMember::example(&format!("{identity}-{suffix}"));
        FleetMember { identity: identity.to_owned(), lease, ..member }
    }

    fn fleet() -> Fleet {
        let members = vec![
            member("replica-0", "aaaaa", LeaseStanding::Held),
            member("replica-1", "bbbbb", LeaseStanding::Taken),
            member("replica-1", "ccccc", LeaseStanding::Held),
            member("replica-2", "ddddd", LeaseStanding::Absent),
            member("other", "eeeee", LeaseStanding::Held),
            member("other", "fffff", LeaseStanding::Held),
        ];
        Fleet { members, ..Fleet::default() }
    }

    #[test]
    fn a_member_is_found_by_id_or_identity_and_else_told_what_there_is() {
        let fleet = fleet();
        let found = |name: &str| match find(&fleet, name) {
            Ok(member) => member.member.to_string(),
            Err(error) => error.to_string(),
        };
        for (name, expect) in [
            ("replica-0", "replica-0-aaaaa"),
            ("replica-1", "replica-1-ccccc"),
            ("other-fffff", "other-fffff"),
            (
                "replica-2",
                "member replica-2 is dead: others take its shards without a drain, see `leasehold status`",
            ),
            ("other", "other has several live members: name one of other-eeeee, other-fffff"),
            (
                "replica-9",
                "no member \"replica-9\" in the fleet: there are other, other-eeeee, other-fffff, replica-0, replica-0-aaaaa, replica-1, replica-1-ccccc",
            ),
        ] {
            assert_eq!(found(name), expect, "{name}");
        }
        let empty = find(&Fleet::default(), "x").unwrap_err();
        assert_eq!(empty.to_string(), "no member \"x\" in the fleet: there is none");
    }

    #[test]
    fn a_drain_that_a_policy_upholds_is_not_undone_in_silence() {
        let mut one = member("replica-0", "aaaaa", LeaseStanding::Held);
        assert_eq!(undone(&one, "").unwrap(), "replica-0-aaaaa: takes shards again");
        one.cordoned_by = Some("limit-replica-0".into());
        let text = undone(&one, " --namespace lh").unwrap_err().to_string();
        assert!(text.contains("still cordoned by the FleetPolicy limit-replica-0"), "{text}");
        assert!(text.ends_with("fix: leasehold lift limit-replica-0 --namespace lh"), "{text}");
    }

    #[test]
    fn a_drain_that_a_policy_holds_up_says_what_to_do() {
        let text = held_up("limit-all", " --namespace lh");
        assert!(text.contains("by the FleetPolicy limit-all, no shard moves"), "{text}");
        assert!(text.ends_with("until `leasehold lift limit-all --namespace lh`"), "{text}");
    }

    #[test]
    fn somebody_else_must_take_the_shards() {
        let mut fleet = fleet();
        assert!(has_another(&fleet, &fleet.members[0]));
        for member in &mut fleet.members[1..] {
            member.drain = true;
        }
        assert!(!has_another(&fleet, &fleet.members[0]));
    }
}
