//! What the demo shows while it runs: a table that is redrawn on a terminal, else lines.
//!
//! Pure up to [`Screen`]: a [`Snapshot`] in, text out.

use std::time::Duration;

use terminal::{Term, style};

use crate::track::Latency;

/// Cells of the progress bar.
const BAR: usize = 32;

/// The demo at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Since the start.
    pub elapsed: Duration,
    /// When it ends by itself.
    pub end: Option<Duration>,
    /// The replicas, in order.
    pub replicas: Vec<ReplicaView>,
    /// Shards in all.
    pub shards: usize,
    /// Those without an owner.
    pub unowned: usize,
    /// Objects that exist or will.
    pub objects: usize,
    /// Those that have been applied so far.
    pub applied: usize,
    /// Those that have converged.
    pub converged: usize,
    /// Changes made so far.
    pub changes: u64,
    /// From change to convergence.
    pub latency: Option<Latency>,
}

/// One replica at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicaView {
    /// Its name.
    pub name: String,
    /// The state of its process.
    pub state: String,
    /// Whether it has no process.
    pub dead: bool,
    /// Whether it coordinates.
    pub coordinator: bool,
    /// The shards that it has, or left behind if it is dead.
    pub shards: Vec<String>,
    /// Reconciles per second; `None` when it does not answer.
    pub rate: Option<f64>,
    /// Keys that wait; `None` when it does not answer.
    pub queued: Option<u64>,
}

/// One line, for pipes and files.
pub(crate) fn line(snapshot: &Snapshot) -> String {
    let Snapshot { shards, unowned, objects, converged, changes, .. } = snapshot;
    let held: Vec<_> = snapshot
        .replicas
        .iter()
        .map(|replica| {
            let mark = if replica.coordinator { "*" } else { "" };
            format!("{}{mark} {}", replica.name, replica.shards.len())
        })
        .collect();
    format!(
        "{:>5}  converged {converged}/{objects}, shards owned {}/{shards} ({}), {:.0} reconciles/s, {} queued, {changes} changes{}",
        clock_time(snapshot.elapsed),
        shards - unowned,
        held.join(", "),
        rate(snapshot),
        queued(snapshot),
        snapshot.latency.map(|found| format!(": {}", percentiles(found))).unwrap_or_default(),
    )
}

/// The table, at most `width` columns wide.
pub(crate) fn table(snapshot: &Snapshot, width: usize) -> Vec<String> {
    let of = snapshot.end.map(|end| format!(" of {}", clock_time(end))).unwrap_or_default();
    let mut lines = vec![
        String::new(),
        format!("Leasehold demo   {}{of}", clock_time(snapshot.elapsed)),
        String::new(),
        format!("  {:<12} {:<22} {:>9} {:>6}  SHARDS", "REPLICA", "STATE", "RECON/S", "QUEUE"),
    ];
    lines.extend(snapshot.replicas.iter().map(replica));
    let coordinated = snapshot.replicas.iter().any(|replica| replica.coordinator);
    lines.push(if coordinated { "* coordinator".into() } else { "  no coordinator yet".into() });
    lines.push(String::new());
    lines.push(format!("  shards      {}", shards(snapshot)));
    lines.push(format!("  converged   {}", progress(snapshot)));
    lines.push(format!("  changes     {}", changes(snapshot)));
    lines.push(format!(
        "  work        {:.0} reconciles/s, {} keys queued",
        rate(snapshot),
        queued(snapshot)
    ));
    // A line that wraps would spoil the redraw.
    lines.into_iter().map(|line| terminal::truncate_str(&line, width, "…").into_owned()).collect()
}

fn replica(replica: &ReplicaView) -> String {
    let mark = if replica.coordinator { '*' } else { ' ' };
    let figure = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let shards = match (replica.shards.as_slice(), replica.dead) {
        ([], _) => "-".to_owned(),
        (left, true) => format!("left behind: {}", left.join(" ")),
        (held, false) => held.join(" "),
    };
    format!(
        "{mark} {:<12} {:<22} {:>9} {:>6}  {shards}",
        replica.name,
        replica.state,
        figure(replica.rate.map(|rate| format!("{rate:.1}"))),
        figure(replica.queued.map(|queued| queued.to_string())),
    )
}

fn shards(snapshot: &Snapshot) -> String {
    match (snapshot.shards, snapshot.unowned) {
        (0, _) => "none assigned yet".to_owned(),
        (all, 0) => format!("{all} of {all} owned"),
        (all, unowned) => format!("{} of {all} owned, {unowned} without an owner", all - unowned),
    }
}

fn progress(snapshot: &Snapshot) -> String {
    let Snapshot { objects, applied, converged, .. } = *snapshot;
    let filled = BAR * converged / objects.max(1);
    let bar = "█".repeat(filled) + &"░".repeat(BAR - filled);
    let applying = if applied < objects { format!(" ({applied} applied)") } else { String::new() };
    format!("{bar} {converged} of {objects}{applying}")
}

fn rate(snapshot: &Snapshot) -> f64 {
    // An empty sum of floats is -0.
    snapshot.replicas.iter().filter_map(|replica| replica.rate).fold(0.0, |sum, rate| sum + rate)
}

fn queued(snapshot: &Snapshot) -> u64 {
    snapshot.replicas.iter().filter_map(|replica| replica.queued).sum()
}

fn changes(snapshot: &Snapshot) -> String {
    let measured = snapshot.latency.map_or_else(String::new, |found| {
        format!("; from change to converged: {}", percentiles(found))
    });
    format!("{} made{measured}", snapshot.changes)
}

fn percentiles(latency: Latency) -> String {
    format!("p50 {}, p99 {}", time(latency.p50_us), time(latency.p99_us))
}

/// Microseconds for people: `850 us`, `38 ms`, `1.24 s`.
pub(crate) fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// Minutes and seconds.
pub(crate) fn clock_time(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// The output: a terminal whose last lines are redrawn, or a plain stream.
#[derive(Debug)]
pub(crate) struct Screen {
    term: Term,
    drawn: usize,
}

impl Screen {
    /// Standard output.
    pub(crate) fn stdout() -> Self {
        Self { term: Term::stdout(), drawn: 0 }
    }

    /// Whether it redraws.
    pub(crate) fn is_live(&self) -> bool {
        self.term.is_term()
    }

    /// Shows a snapshot: the table in place of the one before, or one more line.
    pub(crate) fn show(&mut self, snapshot: &Snapshot) {
        if !self.is_live() {
            return self.write(&line(snapshot));
        }
        let (height, width) = self.term.size();
        let mut lines = table(snapshot, usize::from(width).saturating_sub(1));
        lines.truncate(usize::from(height).saturating_sub(1));
        if let Some(title) = lines.get_mut(1) {
            *title = style(&*title).bold().to_string();
        }
        self.erase();
        self.drawn = lines.len();
        self.write(&lines.join("\n"));
    }

    /// Prints lines that stay above the table.
    pub(crate) fn say(&mut self, text: &str) {
        self.erase();
        self.write(text);
    }

    fn erase(&mut self) {
        if self.drawn > 0 {
            // A terminal that is gone is not a reason to end.
            let _ = self.term.clear_last_lines(std::mem::take(&mut self.drawn));
        }
    }

    fn write(&self, text: &str) {
        let _ = self.term.write_line(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let replica = |name: &str, coordinator, shards: &[&str]| ReplicaView {
            name: name.to_owned(),
            state: "ready".to_owned(),
            dead: false,
            coordinator,
            shards: shards.iter().map(|shard| (*shard).to_owned()).collect(),
            rate: Some(12.34),
            queued: Some(2),
        };
        let killed = ReplicaView {
            name: "replica-2".to_owned(),
            state: "killed 3 s ago".to_owned(),
            dead: true,
            shards: vec!["west/tdset".to_owned()],
            ..ReplicaView::default()
        };
        Snapshot {
            elapsed: Duration::from_secs(75),
            end: Some(Duration::from_secs(90)),
            replicas: vec![
                replica("replica-0", true, &["east/tdset"]),
                replica("replica-1", false, &[]),
                killed,
            ],
            shards: 3,
            unowned: 1,
            objects: 1000,
            applied: 1000,
            converged: 750,
            changes: 42,
            latency: Some(Latency { count: 40, p50_us: 38_500, p99_us: 1_240_000, max_us: 0 }),
        }
    }

    #[test]
    fn the_table_shows_who_holds_what() {
        let expect = "
Leasehold demo   1:15 of 1:30

  REPLICA      STATE                    RECON/S  QUEUE  SHARDS
* replica-0    ready                       12.3      2  east/tdset
  replica-1    ready                       12.3      2  -
  replica-2    killed 3 s ago                 -      -  left behind: west/tdset
* coordinator

  shards      2 of 3 owned, 1 without an owner
  converged   ████████████████████████░░░░░░░░ 750 of 1000
  changes     42 made; from change to converged: p50 38 ms, p99 1.24 s
  work        25 reconciles/s, 4 keys queued";
        assert_eq!(table(&snapshot(), 100).join("\n"), expect);
    }

    #[test]
    fn a_narrow_terminal_gets_short_lines() {
        for line in table(&snapshot(), 30) {
            assert!(terminal::measure_text_width(&line) <= 30, "{line}");
        }
    }

    #[test]
    fn a_line_says_the_same_for_pipes() {
        assert_eq!(
            line(&snapshot()),
            " 1:15  converged 750/1000, shards owned 2/3 (replica-0* 1, replica-1 0, replica-2 1), 25 reconciles/s, 4 queued, 42 changes: p50 38 ms, p99 1.24 s"
        );
    }

    #[test]
    fn the_first_moments_say_what_is_missing() {
        let start = Snapshot { objects: 10, applied: 3, ..Snapshot::default() };
        let text = table(&start, 80).join("\n");
        for expect in
            ["no coordinator yet", "none assigned yet", "0 of 10 (3 applied)", "0 reconciles/s"]
        {
            assert!(text.contains(expect), "{expect} in {text}");
        }
    }

    #[test]
    fn times_for_people() {
        for (us, expect) in [(850, "850 us"), (38_999, "38 ms"), (1_000_000, "1.00 s")] {
            assert_eq!(time(us), expect);
        }
    }
}
