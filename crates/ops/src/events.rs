//! `leasehold events`: the Events of a fleet in its home cluster.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use fleet::FleetEvent;
use jiff::Timestamp;
use model::{Clock, ClusterName};

use crate::columns::columns;
use crate::home::HomeArgs;
use crate::output::{Output, ago};
use crate::program::Program;
use clock::SystemClock;

/// How often Events are read while they are watched.
const POLL: Duration = Duration::from_secs(2);

/// Arguments of `leasehold events`.
#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    /// Only those about this cluster.
    #[arg(long, value_name = "NAME")]
    cluster: Vec<ClusterName>,
    /// Only those that this replica tells or that are about it: its identity (the pod's name), or a member's id.
    #[arg(long, value_name = "NAME")]
    member: Vec<String>,
    /// Only warnings.
    #[arg(long)]
    warnings: bool,
    /// At most so many, the newest ones.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Go on with those to come, until interrupted.
    #[arg(long, short = 'w')]
    watch: bool,
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Which fleet.
    #[command(flatten)]
    home: HomeArgs,
}

/// Prints the Events, the oldest first.
///
/// # Errors
/// When the home cluster cannot be named, reached or read.
pub(crate) async fn run(args: &EventsArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let home = program.home(&args.home).await?;
    let chosen = choose(home.events().await?, args);
    args.output.print(&chosen, || table(&chosen, true, SystemClock.wall()))?;
    if !args.watch {
        return Ok(ExitCode::SUCCESS);
    }
    let mut seen: BTreeSet<_> = chosen.iter().map(told).collect();
    loop {
        tokio::time::sleep(POLL).await;
        let mut chosen = choose(home.events().await?, args);
        let before = std::mem::replace(&mut seen, chosen.iter().map(told).collect());
        chosen.retain(|event| !before.contains(&told(event)));
        if !chosen.is_empty() {
            args.output.print(&chosen, || table(&chosen, false, SystemClock.wall()))?;
        }
    }
}

/// What makes an Event another one.
fn told(event: &FleetEvent) -> (Timestamp, String, String) {
    (event.at, event.about.clone(), event.note.clone())
}

/// The newest of those that were asked for.
fn choose(mut events: Vec<FleetEvent>, args: &EventsArgs) -> Vec<FleetEvent> {
    let of_cluster = |event: &FleetEvent| {
        let mut names = args.cluster.iter();
        args.cluster.is_empty() || names.any(|name| event.about == format!("ShardMap/{name}"))
    };
    let of_member = |event: &FleetEvent| {
        let is = |name: &String| {
            let about = event.about.strip_prefix("Member/");
            let ids = [Some(event.by.as_str()), about];
            // An id is the identity with a suffix.
            ids.into_iter().flatten().any(|id| {
                id == name || id.rsplit_once('-').is_some_and(|(identity, _)| identity == name)
            })
        };
        args.member.is_empty() || args.member.iter().any(is)
    };
    events
        .retain(|event| of_cluster(event) && of_member(event) && (event.warning || !args.warnings));
    events.split_off(events.len().saturating_sub(args.limit))
}

fn table(events: &[FleetEvent], heading: bool, now: Timestamp) -> String {
    let row = |event: &FleetEvent| {
        let level = if event.warning { "Warning" } else { "Normal" };
        let FleetEvent { at, reason, about, note, .. } = event.clone();
        [ago(at, now), level.to_owned(), reason, about, note]
    };
    let text = columns(["WHEN", "TYPE", "REASON", "OBJECT", "NOTE"], events.iter().map(row));
    match heading {
        true => text,
        false => text.split_once('\n').map_or(String::new(), |(_, rows)| rows.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Command, One};

    #[test]
    fn the_newest_events_of_what_was_asked_for_are_shown() {
        let event = |second: i64, about: &str, warning, by: &str| FleetEvent {
            at: Timestamp::from_second(second).unwrap(),
            warning,
            reason: "ShardMoved".into(),
            about: about.into(),
            note: format!("note {second}"),
            by: by.into(),
        };
        let all = vec![
            event(1, "ShardMap/east", false, "replica-0-abcde"),
            event(2, "ShardMap/west", false, "replica-1-fghij"),
            event(3, "Member/replica-0-abcde", true, "replica-1-fghij"),
            event(4, "ShardMap/east", true, "replica-1-fghij"),
        ];
        let chosen = |line: &[&str]| {
            let line = ["leasehold", "events"].iter().chain(line);
            let Command::Events(args) = One::parse_from(line).command else { unreachable!() };
            let seconds = |event: &FleetEvent| event.at.as_second();
            choose(all.clone(), &args).iter().map(seconds).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[]), [1, 2, 3, 4]);
        assert_eq!(chosen(&["--limit", "2"]), [3, 4]);
        assert_eq!(chosen(&["--cluster", "east"]), [1, 4]);
        assert_eq!(chosen(&["--warnings"]), [3, 4]);
        assert_eq!(chosen(&["--member", "replica-0"]), [1, 3]);
        assert_eq!(chosen(&["--member", "replica-1-fghij", "--warnings"]), [3, 4]);
        let now = Timestamp::from_second(5).unwrap();
        let text = table(&all[3..], true, now);
        assert_eq!(
            text,
            "WHEN      TYPE     REASON      OBJECT         NOTE\n\
             1.0s ago  Warning  ShardMoved  ShardMap/east  note 4\n"
        );
        assert_eq!(table(&all[3..], false, now).lines().count(), 1);
    }
}
