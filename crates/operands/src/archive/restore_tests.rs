//! Each state of a restore and its step.

use serde_json::{Value, json};

use super::*;
use crate::archive::jobs::restoring;
use crate::archive::testkind::dump;

fn reason(verdict: Restored) -> &'static str {
    let Restored::No { reason, .. } = verdict else { panic!("{verdict:?}") };
    reason
}

#[test]
fn only_a_backup_that_is_complete_is_restored() {
    let look = |backup: Option<Value>| {
        let backup = backup.map(|status| dump(json!({"status": status})));
        origin_of("old", backup.as_ref(), Restored::stuck("Absent", "none"))
    };
    let complete = json!({"phase": "Complete", "key": "web/db/old", "sha256": "ab12"});
    let origin = look(Some(complete)).unwrap();
    assert_eq!((&*origin.key, origin.sha256.as_deref()), ("web/db/old", Some("ab12")));
    for (status, expected) in [
        (None, "Absent"),
        (Some(json!({"phase": "Pending"})), "Restoring"),
        (Some(json!({"phase": "Running", "key": "k"})), "Restoring"),
        (Some(json!({"phase": "Failed", "key": "k"})), "DumpUnusable"),
        (Some(json!({"phase": "Deleting", "key": "k"})), "DumpUnusable"),
    ] {
        assert_eq!(reason(look(status).unwrap_err()), expected);
    }
}

#[test]
fn a_volume_is_restored_once_and_another_one_anew() {
    let destination = dump(json!({})).spec.destination;
    let origin = Origin { destination, key: "web/db/old".to_owned(), sha256: None };
    let wanted = |image| Restore { job: "db-restore", volume_uid: "v1", origin: &origin, image };
    let make = |image: &str| -> Result<Job, DestinationError> {
        let database = Default::default();
        let mut job = dump(json!({})).store(&database, "1", "k", image)?;
        job.metadata.name = Some("db-restore".to_owned());
        Ok(restoring(job, "v1"))
    };
    let look = |job: Option<&JobSeen>, image, missing| {
        let pods = PodsSeen::default();
        next(wanted(image), job.map(|job| (job, &pods)), missing, Timestamp::UNIX_EPOCH, make)
    };
    let image = Some("leasehold:1");
    let Step::Create(created) = look(None, image, None) else { panic!() };
    let limits = created
        .spec
        .as_ref()
        .map(|spec| (spec.ttl_seconds_after_finished, spec.active_deadline_seconds));
    assert_eq!(limits, Some((None, None)), "a large backup takes its time");
    let seen = JobSeen::of(&created);
    assert_eq!((seen.name.as_str(), seen.volume.as_deref()), ("db-restore", Some("v1")));
    let step = look(Some(&seen), image, None);
    assert!(matches!(step, Step::Say(Restored::No { is_stuck: false, .. })));
    let done = JobSeen { outcome: Outcome::Complete, ..seen.clone() };
    assert!(done.is_done_for("v1") && !done.is_done_for("v0") && !seen.is_done_for("v1"));
    assert_eq!(look(Some(&done), None, None), Step::Say(Restored::Yes));
    let failed = JobSeen { outcome: Outcome::Failed("x".to_owned()), ..seen.clone() };
    let step = look(Some(&failed), image, None);
    assert!(matches!(step, Step::Say(Restored::No { is_stuck: true, .. })));
    let other = JobSeen { volume: Some("v0".to_owned()), ..done };
    assert!(matches!(look(Some(&other), image, None), Step::Delete { .. }));
    let leaving = JobSeen { is_deleting: true, ..other };
    assert!(matches!(look(Some(&leaving), image, None), Step::Say(Restored::No { .. })));
    let Step::Say(verdict) = look(None, None, None) else { panic!() };
    assert_eq!(reason(verdict), "NoImage");
    let Step::Say(verdict) = look(None, image, Some("no volume")) else { panic!() };
    assert_eq!(reason(verdict), "DestinationGone");
}
