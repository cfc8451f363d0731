//! What must hold in every run of a simulated world: one file for each rule.
//!
//! Oracles read what servers accepted, what was sent over the network and when reconciles ran. They
//! never ask what a member believes.

mod l1;
mod l2;
mod l3;
mod reading;
mod s1;
mod s2;
mod s3;
mod s4;
mod s5;
mod s6;

use std::fmt;

use crate::world::Outcome;
use crate::world::history::Event;

use self::reading::Reading;

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: &'static str,
    /// When it was broken, in the world's microseconds.
    pub at_us: u64,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, us) = (self.at_us / 1_000_000, self.at_us % 1_000_000);
        write!(f, "{} at {s}.{us:06}: {}", self.rule, self.text)
    }
}

/// Every violation, in the order of the rules.
pub fn check(outcome: &Outcome) -> Vec<Violation> {
    let reading = Reading::of(outcome);
    let rules = [
        panics,
        s1::check,
        s2::check,
        s3::check,
        s4::check,
        s5::check,
        s6::check,
        l1::check,
        l2::check,
        l3::check,
    ];
    rules.into_iter().flat_map(|rule| rule(&reading)).collect()
}

/// How many times shards got another owner or epoch, or became other shards, after their first owner.
pub fn handovers(outcome: &Outcome) -> usize {
    l3::handovers(&Reading::of(outcome), 0).len()
}

/// Nothing panics.
fn panics(reading: &Reading<'_>) -> Vec<Violation> {
    let panicked = reading.outcome.records.iter().filter_map(|record| match record.event {
        Event::Ended(process, "panicked") => Some(Violation {
            rule: "panic",
            at_us: record.at_us,
            text: format!("p{process} ended on its own"),
        }),
        _ => None,
    });
    panicked.collect()
}
