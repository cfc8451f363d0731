//! Gathers what a run left behind into a [`Evidence`]. Reads files.

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result};

use super::fleet::Fleet;
use super::history::Evidence;
use super::journal;
use crate::harness::ownership::Ownership;
use crate::harness::{audit, wait};

/// Dismisses every replica, and reads journals and audit logs.
pub async fn gather(fleet: &mut Fleet<'_>) -> Result<Evidence> {
    while !fleet.replicas.is_empty() {
        fleet.dismiss(0).await?;
    }
    read(fleet)
}

fn read(fleet: &mut Fleet<'_>) -> Result<Evidence> {
    let boot = wait::boot()?;
    let home = audit::read(&fleet.home.audit_log())?;
    let mut history = Evidence {
        ownership: Ownership::from_events(&home, fleet.home.lost()),
        renewals: audit::renewals(&home),
        ..Evidence::default()
    };
    for plane in &fleet.real {
        for event in audit::read(&plane.audit_log())? {
            let Some(attribution) = event.attribution() else { continue };
            history.writes += 1;
            let violation = history.ownership.violation(&attribution, plane.name(), &event);
            history.bad_writes.extend(violation.map(|what| (event.received, what)));
        }
    }
    for remains in fleet.past.drain(..) {
        let context = || format!("read {}", remains.journal.display());
        let text = match fs::read_to_string(&remains.journal) {
            // It was killed before it opened its journal, and so before it dispatched anything.
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(context)?,
        };
        let dispatches = journal::parse(&text, boot).with_context(context)?;
        history.dispatches.extend(dispatches);
        history.lives.push(remains.life);
    }
    Ok(history)
}
