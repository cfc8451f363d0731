//! `leasehold top`: where the work is, as the replicas say.

use std::process::ExitCode;

use anyhow::Context as _;
use fleet::{ClusterLoad, ControllerLoad, Fleet, FleetMember, Key, Top};
use queue::QueueStatus;
use serde::Serialize;

use crate::columns::columns;
use crate::home::HomeArgs;
use crate::output::Output;
use crate::program::Program;
use crate::replicas::{AskArgs, Replica, Replicas};

/// Arguments of `leasehold top`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// At most so many lines of each table but that of controllers.
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// How the replicas are asked.
    #[command(flatten)]
    ask: AskArgs,
    /// Which fleet.
    #[command(flatten)]
    home: HomeArgs,
}

/// What is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    /// The live members, those with the most work first.
    members: Vec<MemberLoad>,
    /// How many of them are not shown.
    #[serde(skip_serializing_if = "is_zero")]
    more_members: usize,
    /// Whose queues are summed up below.
    queues_of: Vec<String>,
    #[serde(flatten)]
    top: Top,
    /// Who did not answer, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent: Vec<[String; 2]>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemberLoad {
    member: String,
    shards: u32,
    /// Milliseconds of work in each second.
    busy: u32,
}

/// Prints where the work is. The exit code is 1 if no replica could say.
///
/// # Errors
/// When the home cluster cannot be named; or reached or read, if no addresses are given.
pub(crate) async fn run(args: &TopArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let home = program.home(&args.home).await?;
    let pods = args.ask.pods(&home, program.connect).await?;
    let replicas = Replicas::of(&pods, &args.ask)?;
    let fleet = replicas.or_without(home.known_fleet().await)?.unwrap_or_default();
    let (mut told, mut silent) = (Vec::new(), Vec::new());
    for (replica, answer) in queues(&replicas, &fleet).await {
        match answer {
            Ok(queues) => told.push((replica.identity, queues)),
            Err(why) => silent.push([replica.member, format!("{why:#}")]),
        }
    }
    let answered = !told.is_empty();
    let mut members: Vec<_> = fleet.alive().map(load).collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.busy));
    let more_members = members.len().saturating_sub(args.limit);
    members.truncate(args.limit);
    let queues_of = told.iter().map(|(identity, _)| identity.clone()).collect();
    let top = Top::of(&told, args.limit);
    let shown = Shown { members, more_members, queues_of, top, silent };
    args.output.print(&shown, || table(&shown))?;
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

// Serde hands over references.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// What each live replica says of its queues.
pub(crate) async fn queues(
    replicas: &Replicas<'_>,
    fleet: &Fleet,
) -> Vec<(Replica, anyhow::Result<Vec<QueueStatus>>)> {
    let answers = replicas.get_all(fleet.alive(), "/debug/queues").await;
    let read = |answer: anyhow::Result<Vec<u8>>| answer.and_then(|answer| read(&answer));
    answers.into_iter().map(|(replica, answer)| (replica, read(answer))).collect()
}

/// The queues of a replica; none while it reads its clusters and home.
fn read(answer: &[u8]) -> anyhow::Result<Vec<QueueStatus>> {
    let read = serde_json::from_slice::<Option<Vec<QueueStatus>>>(answer);
    Ok(read.context("its answer is that of another release")?.unwrap_or_default())
}

fn load(member: &FleetMember) -> MemberLoad {
    let FleetMember { member, shards, busy, .. } = member;
    MemberLoad { member: member.to_string(), shards: *shards, busy: *busy }
}

fn table(Shown { members, more_members, queues_of, top, silent }: &Shown) -> String {
    let seconds = |seconds: f64| format!("{seconds:.1}s");
    let member = |m: &MemberLoad| {
        [m.member.clone(), m.shards.to_string(), format!("{:.2}", f64::from(m.busy) / 1e3)]
    };
    let mut text = columns(["MEMBER", "SHARDS", "BUSY"], members.iter().map(member));
    if *more_members > 0 {
        text += &format!("and {more_members} more: --limit\n");
    }
    let alive = members.len() + more_members;
    if queues_of.len() < alive {
        let of = if queues_of.is_empty() { "nobody".to_owned() } else { queues_of.join(", ") };
        text += &format!("\nqueues of {of} only, and {alive} members live\n");
    }
    let controller = |load: &ControllerLoad| {
        let ControllerLoad { controller, ready, delayed, running, oldest_seconds } = load;
        let [ready, delayed, running] = [ready, delayed, running].map(ToString::to_string);
        [controller.clone(), ready, delayed, running, seconds(*oldest_seconds)]
    };
    let heading = ["CONTROLLER", "READY", "DELAYED", "RUNNING", "OLDEST"];
    text += &format!("\n{}", columns(heading, top.controllers.iter().map(controller)));
    let cluster = |load: &ClusterLoad| [load.cluster.clone(), load.ready.to_string()];
    text += &format!("\n{}", columns(["CLUSTER", "READY"], top.clusters.iter().map(cluster)));
    if !top.longest.is_empty() {
        let row = |key: &Key| {
            let Key { key, controller, member, seconds: ran, .. } = key.clone();
            [key, controller, member, seconds(ran)]
        };
        let heading = ["RUNNING OBJECT", "CONTROLLER", "MEMBER", "FOR"];
        text += &format!("\n{}", columns(heading, top.longest.iter().map(row)));
    }
    if !top.failing.is_empty() {
        let row = |key: &Key| {
            let Key { key, controller, times, seconds: since, error, .. } = key.clone();
            let (times, error) = (times.unwrap_or_default(), error.unwrap_or_default());
            let last = format!("{} ago", seconds(since));
            [key, controller, times.to_string(), last, model::error::foreign(&error)]
        };
        let heading = ["FAILING OBJECT", "CONTROLLER", "TIMES", "LAST", "ERROR"];
        text += &format!("\n{}", columns(heading, top.failing.iter().map(row)));
    }
    if !silent.is_empty() {
        text += &format!("\n{}", columns(["SILENT", "WHY"], silent.iter().cloned()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said() {
        let shown = |members: usize, more_members, of: &[&str]| {
            let load = |n: usize| MemberLoad { member: format!("m-{n}"), shards: 1, busy: 20 };
            let queues_of = of.iter().map(|&name| name.to_owned()).collect();
            let (members, silent) = ((0..members).map(load).collect(), Vec::new());
            table(&Shown { members, more_members, queues_of, top: Top::default(), silent })
        };
        let text = shown(1, 2, &["m-1"]);
        let part =
            "m-0     1       0.02\nand 2 more: --limit\n\nqueues of m-1 only, and 3 members live\n";
        assert!(text.contains(part), "{text}");
        let text = shown(2, 0, &["m-0", "m-1"]);
        assert!(!text.contains("more") && !text.contains("only"), "{text}");
        assert!(shown(1, 0, &[]).contains("queues of nobody only"));
    }
}
