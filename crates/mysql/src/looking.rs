//! How a look is asked for, and read. Pure.

use crate::gtid::GtidSet;
use crate::server::{Following, Look, Receives};
use crate::wire::{Answer, MAX_TEXT, Row};

/// How long a commit waits for replicas at most, in milliseconds: 49 days, the most that MySQL allows.
pub(crate) const ENDLESS: &str = "4294967295";

/// The statements of a look; in one round trip. What is executed is read before what is received, so
/// whoever seems to have applied everything has.
pub(crate) const STATEMENTS: &str = "SELECT @@server_uuid AS uuid, @@version AS version, \
    @@GLOBAL.gtid_executed AS executed, \
    @@GLOBAL.gtid_owned AS owned, @@GLOBAL.super_read_only AS closed, \
    @@GLOBAL.rpl_semi_sync_source_enabled AS waits, \
    @@GLOBAL.rpl_semi_sync_source_wait_for_replica_count AS count, \
    @@GLOBAL.rpl_semi_sync_source_timeout AS timeout, \
    @@GLOBAL.rpl_semi_sync_source_wait_no_replica AS alone, \
    @@GLOBAL.rpl_semi_sync_source_wait_point AS point, \
    @@GLOBAL.rpl_semi_sync_replica_enabled AS acknowledges; \
    SHOW GLOBAL STATUS LIKE 'Rpl\\_semi\\_sync\\_%'; SHOW REPLICA STATUS";

/// A field that cannot be read, and its value.
pub(crate) type Unread = (&'static str, String);

/// Reads the answers.
pub(crate) fn read(answers: &[Answer]) -> Result<Look, Unread> {
    let [settings, states, replication] = answers else {
        return Err(("number of answers", answers.len().to_string()));
    };
    let settings = settings.first().ok_or(("settings", String::new()))?;
    let replication = channel(replication);
    let executed = gtids(settings, "executed")?;
    let retrieved = match replication {
        Some(row) => gtids(row, "Retrieved_Gtid_Set")?,
        None => GtidSet::default(),
    };
    let acknowledges = number(text(settings, "acknowledges")?, "acknowledges")? == 1;
    Ok(Look {
        uuid: text(settings, "uuid")?.to_owned(),
        version: text(settings, "version")?.to_owned(),
        received: executed.union(&retrieved),
        executed,
        pending: GtidSet::owned(text(settings, "owned")?)
            .map_err(|error| ("owned", format!("{error}")))?,
        is_writable: number(text(settings, "closed")?, "closed")? == 0,
        waits_for: waits_for(settings, states)?,
        followers: count(states, "Rpl_semi_sync_source_clients")?,
        waiting: count(states, "Rpl_semi_sync_source_wait_sessions")?,
        // It goes on in the connection in which it began, whatever the setting is now.
        acknowledges: acknowledges || status(states, "Rpl_semi_sync_replica_status")? == "ON",
        following: replication.map(following).transpose()?,
    })
}

/// The row of the one channel that is ours: the one without a name.
pub(crate) fn channel(replication: &Answer) -> Option<&Row> {
    replication.iter().find(|row| row.get("Channel_Name").unwrap_or_default().is_empty())
}

/// Zero, too, if it would go on without an acknowledgement.
fn waits_for(settings: &Row, states: &Answer) -> Result<u32, Unread> {
    let is_on = number(text(settings, "waits")?, "waits")? == 1
        && number(text(settings, "alone")?, "alone")? == 1
        && text(settings, "timeout")? == ENDLESS
        && text(settings, "point")? == "AFTER_SYNC"
        && status(states, "Rpl_semi_sync_source_status")? == "ON";
    Ok(if is_on { number(text(settings, "count")?, "count")? } else { 0 })
}

pub(crate) fn following(row: &Row) -> Result<Following, Unread> {
    let host = text(row, "Source_Host")?;
    let receives = match text(row, "Replica_IO_Running")? {
        "No" => Receives::Stopped,
        "Connecting" => Receives::Connecting,
        "Yes" => Receives::Connected,
        other => return Err(("Replica_IO_Running", shortened(other))),
    };
    let errors = ["Last_SQL_Error", "Last_IO_Error"];
    let trouble = errors.iter().find_map(|name| row.get(name).filter(|text| !text.is_empty()));
    Ok(Following {
        source: host.split('.').next().unwrap_or_default().to_owned(),
        receives,
        applies: text(row, "Replica_SQL_Running")? == "Yes",
        trouble: trouble.map(shortened),
    })
}

pub(crate) fn gtids(row: &Row, name: &'static str) -> Result<GtidSet, Unread> {
    text(row, name)?.parse().map_err(|error| (name, format!("{error}")))
}

pub(crate) fn text<'a>(row: &'a Row, name: &'static str) -> Result<&'a str, Unread> {
    row.get(name).ok_or((name, "NULL".to_owned()))
}

/// A value of `SHOW STATUS`.
fn status<'a>(states: &'a Answer, name: &'static str) -> Result<&'a str, Unread> {
    let row = states.iter().find(|row| row.get("Variable_name") == Some(name));
    row.and_then(|row| row.get("Value")).ok_or((name, "NULL".to_owned()))
}

fn count(states: &Answer, name: &'static str) -> Result<u32, Unread> {
    number(status(states, name)?, name)
}

fn number(text: &str, name: &'static str) -> Result<u32, Unread> {
    text.parse().map_err(|_| (name, shortened(text)))
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
#[path = "looking_tests.rs"]
pub(crate) mod tests;
