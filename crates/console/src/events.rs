//! What the fleet told. Pure.

use fleet::{CUT, FleetEvent, FleetEvents};
use jiff::Timestamp;
use maud::{Markup, html};

use crate::page::{Part, ago, badge, search, table};

/// Events that say `wanted` somewhere, the newest first.
pub(crate) fn events(
    events: &FleetEvents,
    (wanted, number): (&str, Option<usize>),
    now: Timestamp,
) -> Markup {
    let says = |event: &&FleetEvent| {
        let FleetEvent { reason, about, note, by, .. } = event;
        [reason, about, note, by].into_iter().any(|text| text.contains(wanted))
    };
    let found: Vec<&FleetEvent> = events.all.iter().rev().filter(says).collect();
    let part = Part::of(&found, number);
    let row = |event: &&FleetEvent| {
        [
            html! { (ago(event.at, now)) },
            badge(if event.warning { "warn" } else { "plain" }, &event.reason),
            html! { (event.about) },
            html! { (event.note) },
            html! { (event.by) },
        ]
    };
    html! {
        @if events.is_cut { p.problems { (CUT) } }
        (search("/events", wanted, "part of an event"))
        (table(["When", "Reason", "About", "What", "By"], "There is no such event.", part.rows.iter().map(row)))
        (part.links("/events", wanted))
    }
}
