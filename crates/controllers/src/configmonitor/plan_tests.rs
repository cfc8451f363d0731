//! Decisions over the whole life of a change.

use super::*;
use crate::restarts::PodRef;

fn spec(config_map: Option<&str>, lowercase: Option<&str>) -> ConfigMonitorSpec {
    ConfigMonitorSpec {
        config_map: config_map.map(str::to_owned),
        config_map_lowercase: lowercase.map(str::to_owned),
        pod_selector: [("app".to_owned(), "frontend".to_owned())].into(),
    }
}

fn monitor() -> ConfigMonitor {
    let mut monitor = ConfigMonitor::new("monitor", spec(None, Some("settings")));
    monitor.metadata.generation = Some(1);
    monitor
}

fn content_of(value: &str) -> ConfigMap {
    let data = [("key".to_owned(), value.to_owned())].into();
    ConfigMap { data: Some(data), ..ConfigMap::default() }
}

fn now(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Decides, carries the decision to its end or breaks off after recording it, and returns a word.
fn turn(monitor: &mut ConfigMonitor, config_map: Option<&ConfigMap>, crash: bool) -> &'static str {
    let bare = PodRef { name: "bare".to_owned(), uid: "uid-bare".to_owned() };
    let (word, outcome) = match decide(monitor, config_map) {
        Decision::Restart { config_map, hash } => {
            let pending = Pending { hash, pods: vec![bare], workloads: Vec::new() };
            ("restart", Outcome::Decided { config_map, pending })
        }
        Decision::Resume(pending) => ("resume", Outcome::Restarted(pending)),
        Decision::Missing { config_map } => {
            ("missing", Outcome::Undisturbed(Decision::Missing { config_map }))
        }
        decision => ("leave", Outcome::Undisturbed(decision)),
    };
    monitor.status = Some(status(monitor, &outcome, 1, now(100)));
    if let (Outcome::Decided { pending, .. }, false) = (outcome, crash) {
        monitor.status = Some(status(monitor, &Outcome::Restarted(pending), 1, now(101)));
    }
    word
}

#[test]
fn which_config_map() {
    for (config_map, lowercase, expect) in [
        (Some("a"), None, "a"),
        (None, Some("a"), "a"),
        (Some("a"), Some("a"), "a"),
        (None, None, "spec.configMap is missing: name the ConfigMap to watch"),
        (Some("a"), Some("b"), r#"spec.configMap is "a" and spec.configmap is "b": give one"#),
    ] {
        let spec = spec(config_map, lowercase);
        let found = config_map_name(&spec).map_or_else(|error| error.to_string(), str::to_owned);
        assert_eq!(found, expect);
    }
}

#[test]
fn each_change_restarts_once() {
    let (first, second) = (content_of("1"), content_of("2"));
    let mut monitor = monitor();
    assert_eq!(turn(&mut monitor, None, false), "missing");
    assert_eq!(turn(&mut monitor, Some(&first), false), "leave", "first sight");
    assert_eq!(turn(&mut monitor, Some(&first), false), "leave");
    assert_eq!(turn(&mut monitor, Some(&second), false), "restart");
    assert_eq!(turn(&mut monitor, Some(&second), false), "leave");
    assert_eq!(turn(&mut monitor, None, false), "missing");
    assert_eq!(turn(&mut monitor, Some(&second), false), "leave", "back unchanged");
    assert_eq!(turn(&mut monitor, Some(&first), false), "restart");
    assert_eq!(monitor.status.unwrap().restarts, 2);
}

#[test]
fn a_restart_broken_off_is_resumed_and_not_decided_again() {
    let (first, second) = (content_of("1"), content_of("2"));
    let mut monitor = monitor();
    turn(&mut monitor, Some(&first), false);
    assert_eq!(turn(&mut monitor, Some(&second), true), "restart");
    assert_eq!(turn(&mut monitor, Some(&second), false), "resume");
    assert_eq!(turn(&mut monitor, Some(&second), false), "leave");
    assert_eq!(monitor.status.unwrap().restarts, 1);
}

#[test]
fn content_that_changes_back_while_pending_is_another_change() {
    let (first, second) = (content_of("1"), content_of("2"));
    let mut monitor = monitor();
    turn(&mut monitor, Some(&first), false);
    assert_eq!(turn(&mut monitor, Some(&second), true), "restart");
    assert_eq!(turn(&mut monitor, Some(&first), false), "restart");
    assert_eq!(turn(&mut monitor, Some(&first), false), "leave");
}

#[test]
fn another_config_map_is_seen_for_the_first_time() {
    let mut monitor = monitor();
    turn(&mut monitor, Some(&content_of("1")), false);
    monitor.spec.config_map_lowercase = Some("others".to_owned());
    assert_eq!(turn(&mut monitor, Some(&content_of("2")), false), "leave");
    assert_eq!(turn(&mut monitor, Some(&content_of("3")), false), "restart");
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
    spec.pod_selector.clear();
    assert!(!selects(&spec, Some(&labels(&[("app", "frontend")]))));
}

#[test]
fn statuses() {
    let mut monitor = monitor();
    turn(&mut monitor, Some(&content_of("1")), false);
    insta::assert_yaml_snapshot!("watching", monitor.status);
    turn(&mut monitor, Some(&content_of("2")), true);
    insta::assert_yaml_snapshot!("restarting", monitor.status);
    turn(&mut monitor, Some(&content_of("2")), false);
    insta::assert_yaml_snapshot!("restarted", monitor.status);
    monitor.spec.config_map = Some("other".to_owned());
    turn(&mut monitor, Some(&content_of("2")), false);
    insta::assert_yaml_snapshot!("invalid", monitor.status.as_ref().map(|s| &s.conditions));
}
