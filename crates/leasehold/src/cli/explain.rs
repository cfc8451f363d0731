//! `leasehold explain`: where one object stands. Home says who owns the shards of its cluster; their owners are
//! asked, and say what they know of it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use explain::{Sought, Told, words};
use fleet::{AskError, FleetMember, FleetShard, Way};
use model::Clock;
use portforward::PodPort;
use serde_json::json;

use super::home::{HomeArgs, HomeCluster};
use super::output::{Output, ago};
use crate::clock::SystemClock;

/// The most members that are asked. The shards of one cluster have seldom more owners.
const MAX_ASKED: usize = 16;

/// Arguments of `leasehold explain`.
#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// The object: CLUSTER/KIND/NAMESPACE/NAME, or CLUSTER/KIND/NAME for a kind without namespaces.
    #[arg(value_name = "OBJECT")]
    pub object: Sought,
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Which fleet.
    #[command(flatten)]
    pub home: HomeArgs,
    /// The port of the admin server in the replicas' Pods.
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    pub admin_port: u16,
    /// The admin server speaks HTTP without TLS.
    #[arg(long)]
    pub plaintext: bool,
    /// Ask the one at this address, over HTTP without TLS, instead of the replicas' Pods.
    #[arg(long, value_name = "IP:PORT", conflicts_with_all = ["admin_port", "plaintext"])]
    pub address: Option<SocketAddr>,
    /// A file with a token whose user may `get` /debug/explain: `kubectl create token NAME > FILE`.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// A member, and what it said or why it said nothing.
type Asked<'f> = (&'f FleetMember, Result<Told, String>);

/// Says where the object stands. The exit code is 1 if no member could say.
///
/// # Errors
/// When the home cluster cannot be named, reached or read.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(say(args))
}

async fn say(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let home = HomeCluster::named_by(&args.home).await?;
    let token = args.token_file.as_ref().map(|path| {
        let token = std::fs::read_to_string(path);
        token.with_context(|| format!("read the token in {}", path.display()))
    });
    let token = token.transpose()?;
    let fleet = home.fleet().await?;
    let shards = fleet.shards_of(&args.object.cluster);
    let mut asked: Vec<Asked<'_>> = Vec::new();
    for member in fleet.witnesses(&shards).into_iter().take(MAX_ASKED) {
        let told = ask(args, &home, member, token.as_deref().map(str::trim)).await;
        asked.push((member, told.map_err(|error| format!("{error:#}"))));
    }
    match args.output {
        Output::Table => print!("{}", text(args, &shards, &asked)),
        Output::Json => println!("{}", as_json(&shards, &asked)?),
    }
    let somebody = asked.iter().any(|(_, told)| told.is_ok());
    Ok(if somebody { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn ask(
    args: &ExplainArgs,
    home: &HomeCluster,
    member: &FleetMember,
    token: Option<&str>,
) -> anyhow::Result<Told> {
    let (namespace, pod) = (home.namespace.clone(), member.identity.clone());
    let port = PodPort { namespace, pod, port: args.admin_port };
    let way = args.address.map_or(Way::Pod { port, tls: !args.plaintext }, Way::Address);
    let path = format!("/debug/explain?object={}", args.object);
    let answer = fleet::get(home.client.clone(), &way, &path, token).await;
    let answer = answer.map_err(|error| {
        let fix = match &error {
            AskError::Unauthorized => "; give --token-file (kubectl create token NAME)",
            AskError::Tls(_) => "; if it speaks none, give --plaintext",
            _ => "",
        };
        anyhow::anyhow!("{}{fix}", model::error::chain(&error))
    })?;
    serde_json::from_slice(&answer).context("its answer is that of another release")
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
fn as_json(shards: &[&FleetShard], asked: &[Asked<'_>]) -> serde_json::Result<String> {
    let said = |(member, told): &Asked<'_>| match told {
        Ok(told) => json!(told),
        Err(problem) => json!({"member": member.member, "problem": problem}),
    };
    let members: Vec<_> = asked.iter().map(said).collect();
    serde_json::to_string_pretty(&json!({"shards": shards, "members": members}))
}
