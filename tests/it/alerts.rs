//! Each alert has a page of the runbook and tests of when it fires and when it does not.

use std::collections::BTreeSet;
use std::fs;

const RULES: &str = "dashboards/rules/leasehold.yaml";
const TESTS: &str = "dashboards/rules/leasehold_test.yaml";
const RUNBOOK: &str = "deploy/charts/leasehold/RUNBOOK.md";

/// What follows a prefix in the lines of a file that begin with it.
fn after(file: &str, prefix: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(xtask::root().join(file)).unwrap();
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix(prefix));
    lines.map(|rest| rest.trim_end_matches('}').to_owned()).collect()
}

#[test]
fn each_alert_has_a_page_and_each_page_an_alert() {
    let alerts = after(RULES, "- alert: ");
    assert!(alerts.len() > 10, "{alerts:?}");
    assert_eq!(after(RUNBOOK, "## "), alerts);
}

#[test]
fn each_alert_is_tested_firing_and_silent() {
    let alerts = after(RULES, "- alert: ");
    assert_eq!(after(TESTS, "alertname: "), alerts, "an `exp_alerts` for each");
    let text = fs::read_to_string(xtask::root().join(TESTS)).unwrap();
    let silent = text.lines().filter(|line| line.trim().starts_with("- {eval_time"));
    let silent = silent.filter_map(|line| line.split_once("alertname: "));
    let silent: BTreeSet<String> =
        silent.map(|(_, name)| name.trim_end_matches('}').to_owned()).collect();
    assert_eq!(silent, alerts, "a time without the alert for each");
}
