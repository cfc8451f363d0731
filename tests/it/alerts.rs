//! Each alert has a page of the runbook and tests of when it fires and when it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const RUNBOOK: &str = "dashboards/runbooks";
const TESTS: &str = "dashboards/rules/leasehold_test.yaml";

/// The names that the lines of a file hold.
fn names(file: &str, of: impl Fn(&str) -> Option<&str>) -> BTreeSet<String> {
    let text = fs::read_to_string(xtask::root().join(file)).unwrap();
    text.lines().filter_map(|line| of(line.trim())).map(str::to_owned).collect()
}

fn alerts() -> BTreeSet<String> {
    let alerts = names("dashboards/rules/leasehold.yaml", |line| line.strip_prefix("- alert: "));
    assert!(alerts.len() > 10, "{alerts:?}");
    alerts
}

/// The pages of the runbook by their alerts.
fn pages() -> BTreeMap<String, String> {
    let files = fs::read_dir(xtask::root().join(RUNBOOK)).unwrap().map(|file| file.unwrap().path());
    let name = |file: &Path| file.file_stem().unwrap().to_str().unwrap().to_owned();
    let pages = files.map(|file| (name(&file), fs::read_to_string(&file).unwrap()));
    pages.filter(|(name, _)| name != "README").collect()
}

#[test]
fn each_alert_has_a_page_and_each_page_an_alert() {
    let pages = pages();
    for (alert, page) in &pages {
        assert!(page.starts_with(&format!("# {alert}\n")), "{alert}");
    }
    assert_eq!(pages.into_keys().collect::<BTreeSet<_>>(), alerts());
}

#[test]
fn each_page_says_what_it_means_what_it_does_what_to_run_first_and_how_to_mend_it() {
    for page in pages().into_values() {
        let mut rest = page.as_str();
        for part in ["**Meaning:** ", "**Impact:** ", "**First command:** `", "**Fix:**\n\n1. "] {
            let (before, after) = rest.split_once(&format!("\n\n{part}")).unwrap_or_else(|| {
                panic!("no {part:?}, in this order, in\n{page}");
            });
            assert!(!before.is_empty() && !after.contains(part), "{page}");
            rest = after;
        }
    }
}

#[test]
fn each_alert_is_tested_firing_and_silent() {
    let firing = names(TESTS, |line| line.strip_prefix("alertname: "));
    assert_eq!(firing, alerts(), "an `exp_alerts` for each");
    let silent = names(TESTS, |line| {
        let (_, name) = line.strip_prefix("- {eval_time: ")?.split_once("alertname: ")?;
        name.strip_suffix('}')
    });
    assert_eq!(silent, alerts(), "a time without the alert for each");
}
