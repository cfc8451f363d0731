//! S4: every write of a `ShardMap` replaces exactly the version its plan was computed from.
//!
//! A server refuses a write that names an old version. So each write must name a version, which is
//! then the one before it.

use std::collections::BTreeMap;

use http::Method;

use super::Violation;
use super::reading::{Reading, text};

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    let mut versions: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = Vec::new();
    for (at_us, applied, map) in reading.home("shardmaps") {
        let before = versions.remove(map);
        let (named, after) = match applied.request.method {
            Method::DELETE => (text(&applied.body["preconditions"]["resourceVersion"]), None),
            _ => {
                let after = text(&applied.answer["metadata"]["resourceVersion"]);
                (text(&applied.body["metadata"]["resourceVersion"]), Some(after))
            }
        };
        if named != before.unwrap_or_default() {
            let method = &applied.request.method;
            let text = format!("{method} of {map} named {named:?} and met {before:?}");
            found.push(Violation { rule: "S4", at_us, text });
        }
        versions.extend(after.map(|after| (map, after)));
    }
    found
}
