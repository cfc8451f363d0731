//! What a monitor says over the whole life of a change.

use super::*;
use crate::restarts::{Pending, PodRef};

fn spec(config_map: Option<&str>, lowercase: Option<&str>) -> ConfigMonitorSpec {
    ConfigMonitorSpec {
        config_map: config_map.map(str::to_owned),
        config_map_lowercase: lowercase.map(str::to_owned),
        secret: None,
        pod_selector: Some([("app".to_owned(), "frontend".to_owned())].into()),
        debounce_seconds: 5,
        evict_bare_pods: false,
    }
}

fn monitor() -> ConfigMonitor {
    let mut monitor = ConfigMonitor::new("monitor", spec(None, Some("settings")));
    monitor.metadata.generation = Some(1);
    monitor
}

fn now(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pending(hash: &str) -> Pending {
    let bare = PodRef { name: "pod".into(), uid: "uid-pod".into(), controller: Some("o".into()) };
    Pending { hash: hash.to_owned(), pods: vec![bare], ..Pending::default() }
}

/// Records the outcome of a step.
fn say(monitor: &mut ConfigMonitor, outcome: Outcome, record: Record) {
    let found = Found::Step(ContentRef::config_map("settings"), outcome);
    monitor.status = Some(status(monitor, &found, Some(record), 1, now(100)));
}

#[test]
fn what_is_watched() {
    let missing =
        "spec.configMap is missing: name the ConfigMap to watch, or a Secret in spec.secret";
    let both = "spec.configMap and spec.secret are both given: write a ConfigMonitor for each";
    let differ = r#"spec.configMap is "a" and spec.configmap is "b": give one"#;
    for (config_map, lowercase, secret, expect) in [
        (Some("a"), None, None, "ConfigMap a"),
        (None, Some("a"), None, "ConfigMap a"),
        (Some("a"), Some("a"), None, "ConfigMap a"),
        (None, None, Some("a"), "Secret a"),
        (None, None, None, missing),
        (Some("a"), Some("b"), None, differ),
        (Some("a"), None, Some("a"), both),
        (None, Some("a"), Some("b"), both),
    ] {
        let spec =
            ConfigMonitorSpec { secret: secret.map(str::to_owned), ..spec(config_map, lowercase) };
        let found =
            watched(&spec).map_or_else(|error| error.to_string(), |found| found.to_string());
        assert_eq!(found, expect);
    }
}

#[test]
fn a_record_of_another_object_says_nothing_about_this_one() {
    let mut monitor = monitor();
    let seen = Record { restarts: 2, ..Record::default() }.seen("h".to_owned());
    say(&mut monitor, Outcome::Current, seen.clone());
    assert_eq!(record(&monitor, &ContentRef::config_map("settings")), seen);
    for other in [ContentRef::config_map("others"), ContentRef::secret("settings")] {
        let other = record(&monitor, &other);
        assert_eq!((other.hash, other.restarts), (None, 2));
    }
}

#[test]
fn selection_needs_every_label_and_at_least_one() {
    let labels = |list: &[(&str, &str)]| -> BTreeMap<String, String> {
        list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let mut spec = spec(Some("a"), None);
    assert!(selects(&spec, Some(&labels(&[("app", "frontend"), ("x", "y")]))));
    assert!(!selects(&spec, Some(&labels(&[("app", "backend")]))));
    assert!(!selects(&spec, None));
    for nothing in [Some(BTreeMap::new()), None] {
        spec.pod_selector = nothing;
        assert!(!selects(&spec, Some(&labels(&[("app", "frontend")]))));
    }
}

/// What is said of a restart that never was does not stay.
#[test]
fn only_the_end_of_a_restart_of_this_object_is_told_on() {
    let told = |monitor: &ConfigMonitor| {
        let conditions = monitor.status.iter().flat_map(|status| &status.conditions);
        let mut told = conditions.filter(|found| found.type_ == RESTARTED);
        told.next().map(|found| found.reason.clone())
    };
    let seen = Record::default().seen("h0".to_owned());
    let mut monitor = monitor();
    let changed = seen.clone().changed(now(100));
    say(&mut monitor, Outcome::Settling, changed.clone());
    assert_eq!(told(&monitor).as_deref(), Some("Settling"));
    // The content goes back within the window.
    say(&mut monitor, Outcome::Current, seen.clone());
    assert_eq!(told(&monitor), None);
    for trouble in [None, Some("PodsLeft"), Some("Reverted")] {
        let expect = trouble.unwrap_or("RolledOut");
        let trouble = trouble.map(|reason| Trouble { reason, words: "so it is".to_owned() });
        say(&mut monitor, Outcome::Restarted(pending("h1"), trouble), seen.clone());
        say(&mut monitor, Outcome::Current, seen.clone());
        assert_eq!(told(&monitor).as_deref(), Some(expect));
    }
    let other = Found::Step(ContentRef::config_map("others"), Outcome::Current);
    monitor.status = Some(status(&monitor, &other, Some(seen), 1, now(103)));
    assert_eq!(told(&monitor), None, "that was of another object");
}

#[test]
fn statuses() {
    let mut monitor = monitor();
    let seen = Record::default().seen("h0".to_owned());
    say(&mut monitor, Outcome::Current, seen.clone());
    insta::assert_yaml_snapshot!("watching", monitor.status);
    let decided = seen.decided(pending("h1"));
    say(&mut monitor, Outcome::Decided(pending("h1")), decided.clone());
    insta::assert_yaml_snapshot!("restarting", monitor.status);
    let restarted = decided.restarted(&pending("h1"), now(101));
    say(&mut monitor, Outcome::Restarted(pending("h1"), None), restarted.clone());
    // What the last restart came to is told until the next.
    say(&mut monitor, Outcome::Current, restarted);
    insta::assert_yaml_snapshot!("restarted", monitor.status);
    let invalid = Found::Invalid(InvalidSpec::Nameless);
    monitor.status = Some(status(&monitor, &invalid, None, 1, now(102)));
    insta::assert_yaml_snapshot!("invalid", monitor.status.as_ref().map(|s| &s.conditions));
}
