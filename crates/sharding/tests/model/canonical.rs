//! The canonical form of a state: states that differ only in their time have the same form.
//!
//! It is a hasher that keeps its inputs, so that the derived `Hash` of the production types yields the
//! form, and no field is listed twice:
//! - moments become ticks from the owner's `now`. All moments lie beyond [`ORIGIN_S`], where no other
//!   number does. All moments a tick ago or earlier are alike: no decision looks back further, because a
//!   Lease hashes the moment at which it has run out instead of its last change. So the objects of dead
//!   members stay for ever, and failures are remembered for ever. Fractions round up, because `now` is a
//!   whole tick;
//! - resourceVersions become ranks among the present versions of their object.

use std::collections::BTreeMap;
use std::hash::Hasher;

use crate::store::{FIRST_VERSION, OBJECTS};

/// The origin of all clocks, in seconds. Moments are beyond it, other numbers below.
pub const ORIGIN_S: u64 = 1 << 36;
/// Moments in the past count as this many ticks ago.
const PAST: i64 = 1;
/// Separate moments and ranks from plain numbers.
const MOMENT: u64 = 1 << 62;
const RANK: u64 = 1 << 61;

/// Collects the parts of a state.
#[derive(Debug, Default)]
pub struct Canonical {
    now_s: u64,
    words: Vec<u64>,
    /// The seconds of a moment whose fraction comes next.
    moment_s: Option<u64>,
    /// The positions of versions in `words`, and the versions.
    versions: Vec<(usize, u64)>,
}

impl Canonical {
    /// The inputs that follow are relative to that second.
    pub fn set_now(&mut self, now_s: u64) {
        self.now_s = now_s;
    }

    /// The form.
    pub fn into_words(mut self) -> Vec<u64> {
        let mut ranks: BTreeMap<u64, u64> = self.versions.iter().map(|&(_, v)| (v, 0)).collect();
        let mut next: BTreeMap<u64, u64> = BTreeMap::new();
        for (version, rank) in &mut ranks {
            let next = next.entry(version % OBJECTS).or_default();
            *rank = *next;
            *next += 1;
        }
        for (at, version) in &self.versions {
            self.words[*at] = RANK + ranks[version];
        }
        self.words
    }
}

impl Hasher for Canonical {
    fn write(&mut self, bytes: &[u8]) {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let version = text.parse().ok().filter(|v| (FIRST_VERSION..10 * FIRST_VERSION).contains(v));
        if let Some(version) = version {
            self.versions.push((self.words.len(), version));
        }
        self.words.push(model::uid_hash(text));
    }

    fn write_u8(&mut self, number: u8) {
        self.words.push(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        let word = match self.moment_s.take() {
            Some(seconds) => {
                let seconds = seconds + u64::from(number > 0);
                let ticks = seconds.cast_signed() - self.now_s.cast_signed();
                MOMENT.wrapping_add_signed(ticks.max(-PAST))
            }
            None => number.into(),
        };
        self.words.push(word);
    }

    fn write_u64(&mut self, number: u64) {
        if (ORIGIN_S..2 * ORIGIN_S).contains(&number) {
            self.moment_s = Some(number);
        } else {
            self.words.push(number);
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.words.push(number as u64);
    }

    fn finish(&self) -> u64 {
        unreachable!("the words are the result")
    }
}
