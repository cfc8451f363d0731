//! Gathers what a run left behind into a [`History`]. Shell: reads files.

use std::fs;

use anyhow::{Context, Result};

use super::field::Field;
use super::history::History;
use super::journal;
use crate::real::audit::{self, Ownership};
use crate::real::wait;

/// Dismisses every replica, and reads journals and audit logs.
///
/// # Errors
/// If a replica does not leave in order, or evidence is missing.
pub async fn gather(field: &mut Field<'_>) -> Result<History> {
    while !field.replicas.is_empty() {
        field.dismiss(0).await?;
    }
    read(field)
}

fn read(field: &mut Field<'_>) -> Result<History> {
    let boot = wait::boot()?;
    let home = audit::read(&field.home.audit_log())?;
    let mut history = History {
        ownership: Ownership::from_events(&home),
        renewals: audit::renewals(&home),
        ..History::default()
    };
    for plane in &field.real {
        for event in audit::read(&plane.audit_log())? {
            let Some(attribution) = event.attribution() else { continue };
            history.writes += 1;
            let violation = history.ownership.violation(&attribution, plane.name(), &event);
            history.bad_writes.extend(violation.map(|what| (event.at(), what)));
        }
    }
    for remains in field.past.drain(..) {
        let path = remains.journal.display();
        // One that was killed before it opened its journal dispatched nothing.
        let text = fs::read_to_string(&remains.journal).unwrap_or_default();
        let dispatches = journal::parse(&text, boot).with_context(|| format!("reading {path}"))?;
        history.dispatches.extend(dispatches);
        history.lives.push(remains.life);
    }
    Ok(history)
}
