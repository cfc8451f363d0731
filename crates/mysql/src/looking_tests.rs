use super::*;

const UUID: &str = "66eab4df-e780-11f1-a9eb-ba7f1fe9751d";

/// The settings and states of an instance that waits for one replica.
pub(crate) fn settings() -> Vec<(&'static str, String)> {
    let executed = format!("{UUID}:1-11");
    [
        ("uuid", UUID),
        ("version", "9.7.4-2"),
        ("executed", &executed),
        ("owned", ""),
        ("closed", "0"),
        ("waits", "1"),
        ("count", "2"),
        ("timeout", ENDLESS),
        ("alone", "1"),
        ("point", "AFTER_SYNC"),
        ("acknowledges", "0"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}

fn answers(change: &[(&str, &str)]) -> Vec<Answer> {
    let find = |name: &str, value: &str| {
        let changed = change.iter().find(|(known, _)| *known == name);
        changed.map_or(value.to_owned(), |(_, value)| (*value).to_owned())
    };
    let row = |values: Vec<(&str, String)>| {
        let values = values.iter().map(|(name, value)| (*name, find(name, value)));
        let values: Vec<_> = values.collect();
        let values: Vec<_> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Row::of(&values)
    };
    let states = [
        ("Rpl_semi_sync_replica_status", "OFF"),
        ("Rpl_semi_sync_source_clients", "3"),
        ("Rpl_semi_sync_source_status", "ON"),
        ("Rpl_semi_sync_source_wait_sessions", "4"),
    ];
    let states = states
        .map(|(name, value)| Row::of(&[("Variable_name", name), ("Value", &find(name, value))]));
    let replication = [
        ("Channel_Name", ""),
        ("Source_Host", "db-1.db-instances.web.svc"),
        ("Replica_IO_Running", "Yes"),
        ("Replica_SQL_Running", "Yes"),
        ("Retrieved_Gtid_Set", ""),
        ("Last_IO_Error", ""),
        ("Last_SQL_Error", ""),
    ];
    let replication = replication.map(|(name, value)| (name, value.to_owned()));
    vec![vec![row(settings())], states.to_vec(), vec![row(replication.to_vec())]]
}

fn look(change: &[(&str, &str)]) -> Look {
    read(&answers(change)).unwrap()
}

#[test]
fn a_look_is_read() {
    let seen = look(&[("Retrieved_Gtid_Set", "66eab4df-e780-11f1-a9eb-ba7f1fe9751d:9-13")]);
    assert_eq!((seen.uuid.as_str(), seen.version.as_str()), (UUID, "9.7.4-2"));
    assert_eq!(seen.executed.to_string(), format!("{UUID}:1-11"));
    assert_eq!(seen.received.to_string(), format!("{UUID}:1-13"));
    assert_eq!((seen.is_writable, seen.waits_for, seen.followers, seen.waiting), (true, 2, 3, 4));
    let following = seen.following.unwrap();
    assert_eq!((following.source.as_str(), following.receives), ("db-1", Receives::Connected));
    assert!(following.applies && following.trouble.is_none());
}

#[test]
fn who_may_go_on_without_an_acknowledgement_waits_for_nobody() {
    for change in [
        ("waits", "0"),
        ("timeout", "10000"),
        ("alone", "0"),
        ("point", "AFTER_COMMIT"),
        ("Rpl_semi_sync_source_status", "OFF"),
    ] {
        assert_eq!(look(&[change]).waits_for, 0, "{change:?}");
    }
}

#[test]
fn who_acknowledges_in_its_connection_does() {
    assert!(!look(&[]).acknowledges);
    assert!(look(&[("acknowledges", "1")]).acknowledges);
    assert!(look(&[("Rpl_semi_sync_replica_status", "ON")]).acknowledges);
}

#[test]
fn replication_is_read_with_its_trouble() {
    let following = |change: &[(&str, &str)]| look(change).following.unwrap();
    for (text, receives) in [("No", Receives::Stopped), ("Connecting", Receives::Connecting)] {
        assert_eq!(following(&[("Replica_IO_Running", text)]).receives, receives);
    }
    assert!(!following(&[("Replica_SQL_Running", "No")]).applies);
    let long = "x".repeat(5_000);
    let trouble = following(&[("Last_IO_Error", &long)]).trouble.unwrap();
    assert_eq!(trouble.len(), MAX_TEXT);
    let errors = [("Last_IO_Error", "no source"), ("Last_SQL_Error", "no table")];
    assert_eq!(following(&errors).trouble.as_deref(), Some("no table"));
}

#[test]
fn channels_of_users_are_not_ours() {
    assert_eq!(look(&[("Channel_Name", "theirs")]).following, None);
    let mut none = answers(&[]);
    none[2].clear();
    let seen = read(&none).unwrap();
    assert_eq!((seen.following, seen.received), (None, seen.executed));
}

#[test]
fn what_cannot_be_read_is_named() {
    for (change, field) in [
        (("executed", "nonsense"), "executed"),
        (("closed", "maybe"), "closed"),
        (("Replica_IO_Running", "Perhaps"), "Replica_IO_Running"),
        (("Retrieved_Gtid_Set", "x:1"), "Retrieved_Gtid_Set"),
        (("Rpl_semi_sync_source_clients", "-1"), "Rpl_semi_sync_source_clients"),
    ] {
        assert_eq!(read(&answers(&[change])).unwrap_err().0, field);
    }
    let mut short = answers(&[]);
    short[1].clear();
    assert_eq!(read(&short).unwrap_err().0, "Rpl_semi_sync_source_status");
    assert_eq!(read(&short[..2]).unwrap_err().0, "number of answers");
}
