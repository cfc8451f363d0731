//! S6: a key is never processed twice at once. (L2 checks that a change during processing runs
//! again.)

use std::collections::BTreeMap;

use super::Violation;
use super::reading::{Reading, Run};

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    let mut keys: BTreeMap<_, Vec<&Run<'_>>> = BTreeMap::new();
    for run in &reading.runs {
        let key = (run.process, &run.dispatch.controller, &run.dispatch.key);
        keys.entry(key).or_default().push(run);
    }
    let twice = keys.values().flat_map(|runs| runs.windows(2));
    let twice = twice.filter(|pair| pair[1].from_us < pair[0].until_us);
    let violation = |pair: &[&Run<'_>]| Violation {
        rule: "S6",
        at_us: pair[1].from_us,
        text: format!("{:?} began twice", pair[1].dispatch),
    };
    twice.map(violation).collect()
}
