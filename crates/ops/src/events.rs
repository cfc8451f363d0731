//! `leasehold events`: the Events of a fleet in its home cluster.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use fleet::{CUT, Fleet, FleetEvent, FleetEvents};
use jiff::Timestamp;
use model::{Clock, ClusterName};

use crate::columns::columns;
use crate::home::HomeArgs;
use crate::names::{Known, Unknown, identity_of};
use crate::output::{Output, Watching, ago, warn};
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
    /// At first at most so many, the newest ones.
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
/// When the home cluster cannot be named, reached or read, or what was asked for is nowhere.
pub(crate) async fn run(args: &EventsArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let home = program.home(&args.home).await?;
    let FleetEvents { all: events, is_cut } = home.events().await?;
    if is_cut {
        warn(CUT);
    }
    if !args.cluster.is_empty() || !args.member.is_empty() {
        check_names(args, &home.known_fleet().await?, &events)?;
    }
    let mut seen = Seen::default();
    let mut all = choose(events, args);
    seen.are_new(&mut all);
    let newest = all.split_off(all.len().saturating_sub(args.limit));
    let first = || table(&newest, true, SystemClock.wall());
    if !args.watch {
        args.output.print(&newest, first)?;
        return Ok(ExitCode::SUCCESS);
    }
    args.output.print_next(&newest, first)?;
    let mut watching = Watching::default();
    while watching.goes_on(POLL).await {
        let Some(events) = watching.look(home.events()).await else { continue };
        let mut chosen = choose(events.all, args);
        seen.are_new(&mut chosen);
        if !chosen.is_empty() {
            args.output.print_next(&chosen, || table(&chosen, false, SystemClock.wall()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The Events that home had at the last look, whether they were printed or not.
#[derive(Debug, Default)]
struct Seen(BTreeSet<(Timestamp, String, String)>);

impl Seen {
    /// Leaves those that were not there at the last look, and remembers all.
    fn are_new(&mut self, events: &mut Vec<FleetEvent>) {
        let before = std::mem::replace(&mut self.0, events.iter().map(told).collect());
        events.retain(|event| !before.contains(&told(event)));
    }
}

/// What makes an Event another one.
fn told(event: &FleetEvent) -> (Timestamp, String, String) {
    (event.at, event.about.clone(), event.note.clone())
}

/// Whether the fleet has, or its Events are about, what was asked for.
fn check_names(args: &EventsArgs, fleet: &Fleet, events: &[FleetEvent]) -> Result<(), Unknown> {
    Known::clusters(fleet).and(events.iter().flat_map(clusters)).have(&args.cluster)?;
    Known::members(&fleet.members).and(events.iter().flat_map(members)).have(&args.member)
}

/// The clusters that an Event is about.
fn clusters(event: &FleetEvent) -> impl Iterator<Item = &str> {
    let about = [Some(&event.about), event.related.as_ref()].into_iter().flatten();
    about.filter_map(|about| about.strip_prefix("ShardMap/"))
}

/// Who tells an Event, and whom it is about: ids, and identities.
fn members(event: &FleetEvent) -> impl Iterator<Item = &str> {
    let ids = [Some(event.by.as_str()), event.about.strip_prefix("Member/")];
    ids.into_iter().flatten().flat_map(|id| [id, identity_of(id)])
}

/// Those that were asked for.
fn choose(mut events: Vec<FleetEvent>, args: &EventsArgs) -> Vec<FleetEvent> {
    let of_cluster = |event: &FleetEvent| {
        let is = |name: &ClusterName| clusters(event).any(|about| about == name.as_str());
        args.cluster.is_empty() || args.cluster.iter().any(is)
    };
    let of_member = |event: &FleetEvent| {
        let is = |name: &String| members(event).any(|about| about == name);
        args.member.is_empty() || args.member.iter().any(is)
    };
    events
        .retain(|event| of_cluster(event) && of_member(event) && (event.warning || !args.warnings));
    events
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

    fn parsed(line: &[&str]) -> Command {
        One::parse_from(["leasehold", "events"].iter().chain(line)).command
    }

    #[test]
    fn the_newest_events_of_what_was_asked_for_are_shown() {
        let event = |second: i64, about: &str, warning, by: &str| FleetEvent {
            at: Timestamp::from_second(second).unwrap(),
            warning,
            reason: "ShardMoved".into(),
            about: about.into(),
            related: about.starts_with("Member/").then(|| "ShardMap/west".into()),
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
            let Command::Events(args) = parsed(line) else { unreachable!() };
            let seconds = |event: &FleetEvent| event.at.as_second();
            choose(all.clone(), &args).iter().map(seconds).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[]), [1, 2, 3, 4]);
        let mut seen = Seen::default();
        let mut first = all[..3].to_vec();
        seen.are_new(&mut first);
        assert_eq!(first, all[..3]);
        let mut second = all.clone();
        seen.are_new(&mut second);
        assert_eq!(second, all[3..], "however few of the first were shown");
        assert_eq!(chosen(&["--cluster", "east"]), [1, 4]);
        assert_eq!(chosen(&["--cluster", "west"]), [2, 3], "a member says that it is down");
        let refused = |line: &[&str]| {
            let Command::Events(args) = parsed(line) else { unreachable!() };
            check_names(&args, &Fleet::default(), &all).map_err(|unknown| unknown.to_string())
        };
        assert_eq!(refused(&["--cluster", "west", "--member", "replica-1"]), Ok(()));
        let clusters = r#"no cluster "eats" in the fleet: there are east, west"#;
        assert_eq!(refused(&["--cluster", "eats"]), Err(clusters.to_owned()));
        assert!(refused(&["--member", "replica-9"]).unwrap_err().contains("replica-0, "));
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
