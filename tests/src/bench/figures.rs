//! What was measured, the targets, and the table of both. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::peer::Peer;
use crate::harness::quantiles::median;
use crate::harness::table::Table;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
    /// Bytes.
    Bytes,
    /// How many a second.
    PerSecond,
    /// How many times another.
    Times,
    /// A plain number.
    Count,
}

/// What our value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At most this.
    Bound(f64),
    /// At most this many times that peer's value.
    Share(f64, Peer),
    /// At least this many times that peer's value.
    Lead(f64, Peer),
}

/// One figure of every peer that has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it measures.
    pub name: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Our targets.
    pub targets: Vec<Target>,
    values: BTreeMap<Peer, Vec<f64>>,
}

impl Figure {
    /// A figure without values yet.
    pub fn new(name: impl Into<String>, unit: Unit, targets: &[Target]) -> Self {
        let (name, targets) = (name.into(), targets.to_vec());
        Self { name, unit, targets, values: BTreeMap::new() }
    }

    /// Adds a measured value.
    pub fn add(&mut self, peer: Peer, value: f64) {
        eprintln!("{}: {} {}", self.name, peer.name(), self.unit.show(value));
        self.values.entry(peer).or_default().push(value);
    }

    fn median(&self, peer: Peer) -> Option<f64> {
        median(self.values.get(&peer)?)
    }

    /// The ratio of our value to that peer's.
    fn ratio(&self, peer: Peer) -> Option<f64> {
        Some(self.median(Peer::Leasehold)? / self.median(peer)?)
    }

    /// Whether a target is met; `None` if it needs a peer that was not measured.
    fn meets(&self, target: Target) -> Option<bool> {
        match target {
            Target::Bound(bound) => Some(self.median(Peer::Leasehold)? <= bound),
            Target::Share(times, peer) => Some(self.ratio(peer)? <= times),
            Target::Lead(times, peer) => Some(self.ratio(peer)? >= times),
        }
    }

    fn result(&self) -> &'static str {
        let met: Vec<_> = self.targets.iter().map(|target| self.meets(*target)).collect();
        match () {
            () if met.contains(&Some(false)) => "not met",
            () if met.contains(&None) => "not measured",
            () if met.is_empty() => "-",
            () => "met",
        }
    }

    fn cells(&self) -> Vec<String> {
        let cell = |peer: Peer| match (self.median(peer), self.ratio(peer)) {
            (Some(value), _) if peer == Peer::Leasehold => self.unit.show(value),
            (Some(value), Some(ratio)) => format!("{} ({ratio:.2}x)", self.unit.show(value)),
            (Some(value), None) => self.unit.show(value),
            (None, _) => "-".to_owned(),
        };
        let targets: Vec<_> = self.targets.iter().map(|target| target.show(self.unit)).collect();
        let targets = if targets.is_empty() { "-".to_owned() } else { targets.join(", ") };
        let mut cells = vec![self.name.clone()];
        cells.extend(Peer::ALL.map(cell));
        cells.extend([targets, self.result().to_owned()]);
        cells
    }

    fn json(&self) -> Value {
        let peers = self.values.iter().map(|(peer, values)| {
            let median = median(values);
            let shown = json!({"median": median, "ours": self.ratio(*peer), "values": values});
            (peer.name().to_owned(), shown)
        });
        let targets: Vec<_> = self
            .targets
            .iter()
            .map(|target| json!({"target": target.show(self.unit), "met": self.meets(*target)}))
            .collect();
        json!({
            "figure": self.name,
            "unit": self.unit.name(),
            "peers": peers.collect::<serde_json::Map<_, _>>(),
            "targets": targets,
            "verdict": self.result(),
        })
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Micros => "us",
            Self::Millis => "ms",
            Self::Bytes => "B",
            Self::PerSecond => "/s",
            Self::Times => "times",
            Self::Count => "",
        }
    }

    fn show(self, value: f64) -> String {
        let digits = match self {
            Self::Millis | Self::Times => format!("{value:.2}"),
            Self::Micros if value < 10.0 => format!("{value:.2}"),
            Self::Micros | Self::Bytes | Self::PerSecond | Self::Count => format!("{value:.0}"),
        };
        format!("{digits} {}", self.name()).trim_end().to_owned()
    }
}

impl Target {
    fn show(self, unit: Unit) -> String {
        match self {
            Self::Bound(bound) => format!("<= {}", unit.show(bound)),
            Self::Share(times, peer) => format!("<= {times}x {}", peer.name()),
            Self::Lead(times, peer) => format!(">= {times}x {}", peer.name()),
        }
    }
}

/// The table of all figures.
pub fn table(figures: &[Figure]) -> Table {
    let mut heading = vec!["figure".to_owned()];
    heading.extend(Peer::ALL.map(|peer| match peer {
        Peer::Leasehold => peer.name().to_owned(),
        other => format!("{} (ours to it)", other.name()),
    }));
    heading.extend(["target", "met?"].map(str::to_owned));
    Table { heading, rows: figures.iter().map(Figure::cells).collect() }
}

/// The figures for programs, with each measured value.
pub fn json(figures: &[Figure]) -> Value {
    figures.iter().map(Figure::json).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::table::Format;

    fn figure(targets: &[Target], values: &[(Peer, &[f64])]) -> Figure {
        let mut figure = Figure::new("CPU", Unit::Micros, targets);
        for (peer, values) in values {
            values.iter().for_each(|value| figure.add(*peer, *value));
        }
        figure
    }

    #[test]
    fn a_result_is_met_only_if_every_target_is() {
        use Peer::{Bare, KubeRs, Leasehold};
        let measured: &[(Peer, &[f64])] = &[(Leasehold, &[30.0, 900.0, 20.0]), (KubeRs, &[60.0])];
        for (targets, expect) in [
            (&[][..], "-"),
            (&[Target::Bound(30.0)], "met"),
            (&[Target::Bound(29.0)], "not met"),
            (&[Target::Share(0.5, KubeRs)], "met"),
            (&[Target::Share(0.4, KubeRs)], "not met"),
            (&[Target::Lead(0.5, KubeRs)], "met"),
            (&[Target::Lead(0.6, KubeRs)], "not met"),
            (&[Target::Bound(30.0), Target::Share(0.4, KubeRs)], "not met"),
            (&[Target::Share(1.2, Bare)], "not measured"),
            (&[Target::Share(1.2, Bare), Target::Bound(29.0)], "not met"),
        ] {
            assert_eq!(figure(targets, measured).result(), expect, "{targets:?}");
        }
    }

    #[test]
    fn the_table_shows_medians_ratios_and_targets() {
        let targets = [Target::Share(0.7, Peer::KubeRs)];
        let measured: &[(Peer, &[f64])] = &[(Peer::Leasehold, &[30.0]), (Peer::KubeRs, &[60.0])];
        let figures = [figure(&targets, measured)];
        let text = table(&figures).render(Format::Text);
        let row: Vec<_> = text.lines().nth(1).unwrap().split("  ").map(str::trim).collect();
        let row: Vec<_> = row.into_iter().filter(|cell| !cell.is_empty()).collect();
        let expected = ["CPU", "30 us", "-", "60 us (0.50x)", "-", "-", "<= 0.7x kube-rs", "met"];
        assert_eq!(row, expected);
        assert_eq!(Unit::Times.show(1.298), "1.30 times");
        let json = json(&figures);
        assert_eq!(json[0]["peers"]["kube-rs"]["ours"], 0.5);
        assert_eq!(json[0]["targets"][0]["met"], true);
    }
}
