//! `leasehold explain`: where one object stands. Home says who owns the shards of its cluster; their owners are
//! asked, and say what they know of it.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use explain::{Sought, Told, words};
use fleet::{Fleet, FleetShard};
use model::Clock;
use serde_json::{Value, json};

use crate::home::HomeArgs;
use crate::names::Known;
use crate::output::{Output, ago};
use crate::program::Program;
use crate::replicas::{AskArgs, Replica, Replicas};
use clock::SystemClock;

/// The most members that are asked. The shards of one cluster have seldom more owners.
const MAX_ASKED: usize = 16;

/// Arguments of `leasehold explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The object: CLUSTER/KIND/NAMESPACE/NAME, or CLUSTER/KIND/NAME for a kind without namespaces.
    #[arg(value_name = "OBJECT")]
    pub object: Sought,
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Which fleet.
    #[command(flatten)]
    pub home: HomeArgs,
    /// How the replicas are asked.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// A replica, and what it said or why it said nothing.
pub(crate) type Asked = (Replica, Result<Told, String>);

/// Says where the object stands. The exit code is 1 if nobody who was asked has a controller for it.
///
/// # Errors
/// When the home cluster cannot be named, reached or read, or knows no such cluster.
pub(crate) async fn run(args: &ExplainArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let home = program.home(&args.home).await?;
    let replicas = Replicas::of(&home, &args.ask)?;
    let fleet = home.fleet().await?;
    Known::clusters(&fleet).have(&[&args.object.cluster])?;
    let shards = fleet.shards_of(&args.object.cluster);
    let asked = told(&replicas, &fleet, &args.object).await;
    args.output.print(&as_json(&shards, &asked), || text(args, &shards, &asked))?;
    let somebody = asked.iter().any(|(_, told)| told.as_ref().is_ok_and(knows));
    Ok(if somebody { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a member works on such objects of that cluster.
fn knows(told: &Told) -> bool {
    let mut controllers = told.explanation.controllers.iter();
    told.configured && controllers.any(|explained| explained.misnamed.is_none())
}

/// What those say of an object who can tell of it.
pub(crate) async fn told(replicas: &Replicas<'_>, fleet: &Fleet, object: &Sought) -> Vec<Asked> {
    let path = format!("/debug/explain?object={object}");
    let shards = fleet.shards_of(&object.cluster);
    let witnesses = fleet.witnesses(&shards).into_iter().take(MAX_ASKED);
    let told = |answer: anyhow::Result<Vec<u8>>| {
        let told = answer.and_then(|answer| {
            serde_json::from_slice(&answer).context("its answer is that of another release")
        });
        told.map_err(|error| model::error::chain(&*error))
    };
    let answers = replicas.get_all(witnesses, &path).await;
    answers.into_iter().map(|(replica, answer)| (replica, told(answer))).collect()
}

fn text(args: &ExplainArgs, shards: &[&FleetShard], asked: &[Asked]) -> String {
    let (mut text, now) = (String::new(), SystemClock.wall());
    for shard in shards {
        let moved = shard.moved.as_ref().and_then(|moved| Some((&moved.why, moved.at.as_ref()?)));
        let since = moved.map(|(why, at)| format!("; {}: {why}", ago(at.0, now)));
        let _ = writeln!(text, "{shard}{}", since.unwrap_or_default());
    }
    if shards.is_empty() {
        let _ = writeln!(
            text,
            "home has no shard of cluster {}: none of its members could use it yet; see DOWN CLUSTER in `leasehold status`",
            args.object.cluster
        );
    }
    for (replica, told) in asked {
        let lines = match told {
            Ok(told) => words(&args.object, told),
            Err(why) => vec![format!("member {} does not say: {why}", replica.member)],
        };
        let _ = writeln!(text, "\n{}", lines.join("\n"));
    }
    text
}

/// The answer for programs.
fn as_json(shards: &[&FleetShard], asked: &[Asked]) -> Value {
    let said = |(replica, told): &Asked| match told {
        Ok(told) => json!(told),
        Err(problem) => json!({"member": replica.member, "problem": problem}),
    };
    let members: Vec<_> = asked.iter().map(said).collect();
    json!({"shards": shards, "members": members})
}
