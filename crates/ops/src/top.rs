//! `leasehold top`: where the work is, as the replicas say.

use std::process::ExitCode;

use anyhow::Context as _;
use fleet::{ClusterLoad, ControllerLoad, Fleet, FleetMember, Key, LeaseStanding, Top};
use queue::QueueStatus;
use serde::Serialize;

use crate::columns::columns;
use crate::home::HomeArgs;
use crate::output::Output;
use crate::program::Program;
use crate::replicas::{AskArgs, Replicas};

/// Arguments of `leasehold top`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// At most so many lines of each table.
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
    members: Vec<MemberLoad>,
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
/// When the home cluster cannot be named, reached or read.
pub(crate) async fn run(args: &TopArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let home = program.home(&args.home).await?;
    let fleet = home.fleet().await?;
    let replicas = Replicas::of(&home, &args.ask)?;
    let (mut told, mut silent) = (Vec::new(), Vec::new());
    for (member, answer) in queues(&replicas, &fleet).await {
        match answer {
            Ok(queues) => told.push((member.identity.clone(), queues)),
            Err(why) => silent.push([member.member.to_string(), format!("{why:#}")]),
        }
    }
    let answered = !told.is_empty();
    let mut members: Vec<_> = alive(&fleet).map(load).collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.busy));
    members.truncate(args.limit);
    let shown = Shown { members, top: Top::of(&told, args.limit), silent };
    args.output.print(&shown, || table(&shown))?;
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn alive(fleet: &Fleet) -> impl Iterator<Item = &FleetMember> {
    fleet.members.iter().filter(|member| member.lease == LeaseStanding::Held)
}

/// What each live replica says of its queues.
pub(crate) async fn queues<'f>(
    replicas: &Replicas<'_>,
    fleet: &'f Fleet,
) -> Vec<(&'f FleetMember, anyhow::Result<Vec<QueueStatus>>)> {
    let answers = replicas.get_all(alive(fleet), "/debug/queues").await;
    let read = |answer: anyhow::Result<Vec<u8>>| answer.and_then(|answer| read(&answer));
    answers.into_iter().map(|(member, answer)| (member, read(answer))).collect()
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

fn table(Shown { members, top, silent }: &Shown) -> String {
    let seconds = |seconds: f64| format!("{seconds:.1}s");
    let member = |m: &MemberLoad| {
        [m.member.clone(), m.shards.to_string(), format!("{:.2}", f64::from(m.busy) / 1e3)]
    };
    let mut text = columns(["MEMBER", "SHARDS", "BUSY"], members.iter().map(member));
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
