//! `leasehold explain`: where one object stands. Home says who owns the shards of its cluster; their owners are
//! asked, and say what they know of it.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use explain::{Sought, Told, words};
use fleet::{Fleet, FleetMember, FleetShard};
use model::Clock;
use serde_json::{Value, json};

use crate::home::HomeArgs;
use crate::output::{Output, ago};
use crate::program::Program;
use crate::replicas::{AskArgs, Replicas};
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

/// A member, and what it said or why it said nothing.
pub(crate) type Asked<'f> = (&'f FleetMember, Result<Told, String>);

/// Says where the object stands. The exit code is 1 if no member could say.
///
/// # Errors
/// When the home cluster cannot be named, reached or read.
pub(crate) async fn run(args: &ExplainArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let home = program.home(&args.home).await?;
    let replicas = Replicas::of(&home, &args.ask)?;
    let fleet = home.fleet().await?;
    let shards = fleet.shards_of(&args.object.cluster);
    let asked = told(&replicas, &fleet, &args.object).await;
    args.output.print(&as_json(&shards, &asked), || text(args, &shards, &asked))?;
    let somebody = asked.iter().any(|(_, told)| told.is_ok());
    Ok(if somebody { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What those say of an object who can tell of it.
pub(crate) async fn told<'f>(
    replicas: &Replicas<'_>,
    fleet: &'f Fleet,
    object: &Sought,
) -> Vec<Asked<'f>> {
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
    answers.into_iter().map(|(member, answer)| (member, told(answer))).collect()
}

fn text(args: &ExplainArgs, shards: &[&FleetShard], asked: &[Asked<'_>]) -> String {
    let (mut text, now) = (String::new(), SystemClock.wall());
    for shard in shards {
        let moved = shard.moved.as_ref().and_then(|moved| Some((&moved.why, moved.at.as_ref()?)));
        let since = moved.map(|(why, at)| format!("; {}: {why}", ago(at.0, now)));
        let _ = writeln!(text, "{shard}{}", since.unwrap_or_default());
    }
    if shards.is_empty() {
        let _ = writeln!(
            text,
            "home has no shard of cluster {}: no member has it configured, or none could use it yet; see DOWN \
             CLUSTER in `leasehold status`",
            args.object.cluster
        );
    }
    for (member, told) in asked {
        let lines = match told {
            Ok(told) => words(&args.object, told),
            Err(why) => vec![format!("member {} does not say: {why}", member.member)],
        };
        let _ = writeln!(text, "\n{}", lines.join("\n"));
    }
    text
}

/// The answer for programs.
fn as_json(shards: &[&FleetShard], asked: &[Asked<'_>]) -> Value {
    let said = |(member, told): &Asked<'_>| match told {
        Ok(told) => json!(told),
        Err(problem) => json!({"member": member.member, "problem": problem}),
    };
    let members: Vec<_> = asked.iter().map(said).collect();
    json!({"shards": shards, "members": members})
}
