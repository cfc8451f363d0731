//! `leasehold explain`: where one object stands. Home says who owns the shards of its cluster; their owners are
//! asked, and say what they know of it.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use explain::{Sought, Told, words};
use fleet::{Fleet, FleetMember, FleetShard};
use model::Clock;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::home::HomeArgs;
use crate::names::Known;
use crate::output::{Output, ago};
use crate::program::Program;
use crate::replicas::{AskArgs, Replica, Replicas};
use clock::SystemClock;

/// How many members are asked at a time, until one holds the object's shard, and the most that are asked. The shards
/// of one cluster have seldom more owners.
const AT_ONCE: usize = 16;
const MAX_ASKED: usize = 128;

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

/// What those said of an object who were asked.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Each with its answer.
    pub(crate) asked: Vec<Asked>,
    /// How many others could tell of the cluster.
    pub(crate) not_asked: usize,
}

/// Says where the object stands. The exit code is 1 if nobody who was asked has a controller for it.
///
/// # Errors
/// When the home cluster cannot be named, or knows no such cluster; or it cannot be reached or read, if no addresses
/// are given.
pub(crate) async fn run(args: &ExplainArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let home = program.home(&args.home).await?;
    let pods = args.ask.pods(&home, program.connect).await?;
    let replicas = Replicas::of(&pods, &args.ask)?;
    let read = replicas.or_without(home.known_fleet().await)?;
    if let Some(fleet) = &read {
        Known::clusters(fleet).have(&[&args.object.cluster])?;
    }
    let (is_read, fleet) = (read.is_some(), read.unwrap_or_default());
    let shards = is_read.then(|| fleet.shards_of(&args.object.cluster));
    let (shards, answers) = (shards.as_deref(), told(&replicas, &fleet, &args.object).await);
    args.output.print(&as_json(shards, &answers), || text(args, shards, &answers))?;
    let somebody = answers.asked.iter().any(|(_, told)| told.as_ref().is_ok_and(knows));
    Ok(if somebody { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a member works on such objects of that cluster.
fn knows(told: &Told) -> bool {
    let mut controllers = told.explanation.controllers.iter();
    told.configured && controllers.any(|explained| explained.misnamed.is_none())
}

/// What those say of an object who can tell of it: all of them, or as many as it takes to find who holds it.
pub(crate) async fn told(replicas: &Replicas<'_>, fleet: &Fleet, object: &Sought) -> Answers {
    let path = path(object);
    if replicas.are_at_addresses() {
        // Those there are asked instead, all at once.
        return Answers { asked: ask(replicas, Vec::new(), &path).await, not_asked: 0 };
    }
    let mut waiting = fleet.witnesses(&object.cluster);
    let mut asked = Vec::new();
    loop {
        let batch = next_batch(&mut waiting, &asked);
        if batch.is_empty() {
            return Answers { asked, not_asked: waiting.len() };
        }
        asked.extend(ask(replicas, batch, &path).await);
    }
}

/// Where a replica explains an object. A name may have letters that mean something in an address; the slashes are as
/// every release reads them.
fn path(object: &Sought) -> String {
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b':')
        .remove(b'.')
        .remove(b'-')
        .remove(b'_')
        .remove(b'~');
    let object = object.to_string();
    format!("/debug/explain?object={}", utf8_percent_encode(&object, PLAIN))
}

async fn ask(replicas: &Replicas<'_>, members: Vec<&FleetMember>, path: &str) -> Vec<Asked> {
    let told = |answer: anyhow::Result<Vec<u8>>| {
        let told = answer.and_then(|answer| {
            serde_json::from_slice(&answer).context("its answer is that of another release")
        });
        told.map_err(|error| model::error::chain(&*error))
    };
    let answers = replicas.get_all(members, path).await;
    answers.into_iter().map(|(replica, answer)| (replica, told(answer))).collect()
}

/// Who is asked next; nobody once one holds the object's shard, or too many were asked.
fn next_batch<'f>(waiting: &mut Vec<&'f FleetMember>, asked: &[Asked]) -> Vec<&'f FleetMember> {
    let is_over =
        asked.len() >= MAX_ASKED || asked.iter().any(|(_, told)| told.as_ref().is_ok_and(holds));
    let next = if is_over { 0 } else { waiting.len().min(AT_ONCE) };
    waiting.drain(..next).collect()
}

/// Whether a member holds the shard of the object.
fn holds(told: &Told) -> bool {
    told.explanation.controllers.iter().any(|explained| explained.shard.is_some())
}

/// `shards` are those of the cluster, if home could be read.
fn text(args: &ExplainArgs, shards: Option<&[&FleetShard]>, answers: &Answers) -> String {
    let (mut text, now) = (String::new(), SystemClock.wall());
    for shard in shards.unwrap_or_default() {
        let moved = shard.moved.as_ref().and_then(|moved| Some((&moved.why, moved.at.as_ref()?)));
        let since = moved.map(|(why, at)| format!("; {}: {why}", ago(at.0, now)));
        let _ = writeln!(text, "{shard}{}", since.unwrap_or_default());
    }
    if shards.is_some_and(<[_]>::is_empty) {
        let _ = writeln!(
            text,
            "home has no shard of cluster {}: none of its members could use it yet; see DOWN CLUSTER in `leasehold status`",
            args.object.cluster
        );
    }
    for (replica, told) in &answers.asked {
        let lines = match told {
            Ok(told) => words(&args.object, told),
            Err(why) => vec![format!("member {} does not say: {why}", replica.member)],
        };
        let _ = writeln!(text, "\n{}", lines.join("\n"));
    }
    if answers.not_asked > 0 {
        let more = answers.not_asked;
        let _ = writeln!(text, "\n{more} more members that could tell of it were not asked");
    }
    text
}

/// The answer for programs.
fn as_json(shards: Option<&[&FleetShard]>, answers: &Answers) -> Value {
    let said = |(replica, told): &Asked| match told {
        Ok(told) => json!(told),
        Err(problem) => json!({"member": replica.member, "problem": problem}),
    };
    let members: Vec<_> = answers.asked.iter().map(said).collect();
    json!({"shards": shards, "members": members, "notAsked": answers.not_asked})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: usize) -> FleetMember {
        let member = FleetMember::example(&format!("m-{number}-abcde"));
        FleetMember { identity: format!("m-{number}"), ..member }
    }

    fn told(holds: bool) -> Told {
        let shard = holds.then(|| json!({"shard": "east/g/0/1", "epoch": 1, "open": true}));
        serde_json::from_value(json!({
            "member": "m", "configured": true, "kinds": [],
            "controllers": [{"controller": "g", "kind": "x/G", "inScope": true, "shard": shard,
                "key": {"shards": [], "failures": 0}}],
        }))
        .unwrap()
    }

    #[test]
    fn an_object_is_asked_for_by_its_whole_name() {
        for (object, expect) in [
            ("east/deployments.apps/shop/cart-1", "east/deployments.apps/shop/cart-1"),
            ("east/ClusterRole/system:node", "east/ClusterRole/system:node"),
            ("east/Role/ns/a#b+c&d e", "east/Role/ns/a%23b%2Bc%26d%20e"),
        ] {
            let path = path(&object.parse().unwrap());
            assert_eq!(path, format!("/debug/explain?object={expect}"));
        }
    }

    #[test]
    fn members_are_asked_until_one_holds_the_object_and_who_was_not_is_counted() {
        let members: Vec<FleetMember> = (0..200).map(member).collect();
        for (holder, expect, not_asked) in [(3, 16, 184), (20, 32, 168), (999, 128, 72)] {
            let (mut waiting, mut asked) = (members.iter().collect(), Vec::new());
            loop {
                let batch = next_batch(&mut waiting, &asked);
                if batch.is_empty() {
                    break;
                }
                assert!(batch.len() <= AT_ONCE);
                asked.extend(batch.into_iter().map(|member| {
                    let told = told(member.identity == format!("m-{holder}"));
                    (Replica::of(member), Ok(told))
                }));
            }
            let answers = Answers { asked, not_asked: waiting.len() };
            assert_eq!((answers.asked.len(), answers.not_asked), (expect, not_asked), "{holder}");
            assert_eq!(as_json(None, &answers)["notAsked"], not_asked);
        }
    }
}
