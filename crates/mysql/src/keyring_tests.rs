use serde_json::json;

use super::*;
use crate::testkit::cluster;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn numbered(prefix: &str) -> impl FnMut() -> String {
    let mut count = 0;
    move || {
        count += 1;
        format!("{prefix}{count}")
    }
}

fn never() -> String {
    panic!("none is missing")
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    Some(String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).unwrap())
}

fn own(keyring: &Keyring) -> Vec<String> {
    keyring.own().into_iter().map(|Password(text)| text).collect()
}

#[test]
fn each_phase_is_read_as_it_was_written() {
    let cluster = cluster(json!({}));
    let settled = Keyring::new(Phase::Settled, at(1), numbered("a"));
    let next = settled.begun(Some("now"), at(2), numbered("b"));
    let changed = next.changed(at(3));
    let lost = Keyring::new(Phase::Lost, at(4), numbered("c"));
    for (keyring, passwords) in [
        (&settled, &["a1"][..]),
        (&next, &["b1", "a1"]),
        (&changed, &["b1", "a1"]),
        (&changed.settled(at(5)), &["b1"]),
        (&lost, &["c1"]),
        (&lost.changed(at(6)), &["c1"]),
    ] {
        let secret = keyring.secret(&cluster, Some("7"));
        assert_eq!(secret.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(Keyring::read(&secret, at(9), never), *keyring);
        assert_eq!(own(keyring), passwords);
        let file = text(&secret, EXPORTER_FILE).unwrap();
        assert!(file.contains(&format!("password={}\n", keyring.of(Account::Exporter).0)));
    }
    assert_eq!((next.rotated, changed.rotated), (at(1), at(3)));
    assert_eq!(next.newest(), changed.newest());
    assert_eq!(changed.settled(at(5)).request.as_deref(), Some("now"));
}

#[test]
fn what_is_remembered_of_a_secret_is_short() {
    let cluster = cluster(json!({}));
    let mut secret = Keyring::new(Phase::Settled, at(1), numbered("a")).secret(&cluster, None);
    let long = "x".repeat(1 << 20);
    secret.annotations_mut().insert(names::ROTATE.to_owned(), long.clone());
    let read = Keyring::read(&secret, at(2), never);
    assert_eq!(read.request.map(|request| request.len()), Some(64));
    let key = Account::Replication.name().to_owned();
    secret.data.as_mut().unwrap().insert(key, k8s_openapi::ByteString(long.into_bytes()));
    let read = Keyring::read(&secret, at(2), numbered("b"));
    assert_eq!((read.phase, own(&read)), (Phase::Lost, vec!["b1".to_owned(), "a1".to_owned()]));
}

#[test]
fn pods_have_the_passwords_in_use_under_the_same_keys_always() {
    let cluster = cluster(json!({}));
    let settled = Keyring::new(Phase::Settled, at(1), numbered("a"));
    let next = settled.begun(None, at(2), numbered("b"));
    for (keyring, expect) in [(&settled, "a3"), (&next, "a3"), (&next.changed(at(3)), "b3")] {
        assert_eq!(text(&keyring.secret(&cluster, None), "probe").as_deref(), Some(expect));
    }
}

#[test]
fn if_one_is_missing_all_are_made_anew() {
    let cluster = cluster(json!({}));
    let next = Keyring::new(Phase::Settled, at(1), numbered("a")).begun(None, at(2), || "b".into());
    for (key, value) in [
        ("probe", None),
        ("backup", Some("a'b")),
        ("exporter-next", None),
        ("probe-next", Some("")),
    ] {
        let mut torn = next.secret(&cluster, None);
        let data = torn.data.as_mut().unwrap();
        data.remove(key);
        data.extend(value.map(|value| (key.to_owned(), ByteString(value.into()))));
        let read = Keyring::read(&torn, at(9), numbered("n"));
        assert_eq!((read.phase, read.since), (Phase::Lost, at(9)), "{key}");
        // Servers still know the former one.
        assert_eq!(own(&read), ["n1", "a1"], "{key}");
    }
}

#[test]
fn what_is_noted_of_the_future_began_now() {
    let later = Keyring::new(Phase::Settled, Timestamp::MAX, numbered("a"));
    let read = Keyring::read(&later.secret(&cluster(json!({})), None), at(9), never);
    assert_eq!((read.since, read.rotated), (at(9), at(9)));
}

#[test]
fn a_secret_without_notes_has_been_rotated_never() {
    let mut secret =
        Keyring::new(Phase::Settled, at(1), numbered("a")).secret(&cluster(json!({})), None);
    secret.metadata.annotations = None;
    let read = Keyring::read(&secret, at(9), never);
    assert_eq!((read.phase, read.rotated, read.request), (Phase::Settled, at(9), None));
}
