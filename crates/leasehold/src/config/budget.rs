//! How much is kept of clusters: of each, of some by name, of those of one source, and of all together.

use std::collections::BTreeMap;

use model::budget::{BYTES, OBJECTS};
use model::{Budget, Budgets, ClusterName, SourceBudget};
use serde_json::Value;

use super::reader::Section;
use super::values;

/// The budget of each cluster and of all.
pub(super) fn budgets(root: &Section<'_>) -> Budgets {
    let section = root.section("budget");
    let defaults = Budgets::default();
    let each = keys(&section, defaults.each);
    let named = named(&section, each);
    let largest = named.values().map(|budget| budget.max_cache_bytes);
    let largest = largest.fold(each.max_cache_bytes, usize::max);
    let total = section.value("maxTotalCacheBytes", values::bytes(BYTES));
    let max_total_cache_bytes = total.unwrap_or(defaults.max_total_cache_bytes.max(largest));
    if max_total_cache_bytes < largest {
        section.problem(
            "maxTotalCacheBytes",
            format!(
                "found {max_total_cache_bytes} with a maxCacheBytes of {largest}; allowed: at least as much, or \
                 one cluster could never use its own budget"
            ),
        );
    }
    section.finish();
    Budgets { each, named, max_total_cache_bytes }
}

/// The budgets of clusters by their names; what one leaves out is as for `each`.
fn named(section: &Section<'_>, each: Budget) -> BTreeMap<ClusterName, Budget> {
    let clusters = section.section("clusters");
    let mut named = BTreeMap::new();
    for (name, entry) in clusters.named() {
        let budget = keys(&entry, each);
        entry.finish();
        match values::name(&Value::from(name)) {
            Ok(name) => _ = named.insert(name, budget),
            Err(allowed) => {
                clusters.problem(name, format!("no name of a cluster; allowed: {allowed}"));
            }
        }
    }
    named
}

/// The budget of each cluster of one source, if it says anything of it; what it leaves out is as for `each`.
pub(super) fn of_source(entry: &Section<'_>, each: Budget) -> Option<Budget> {
    if !entry.has("budget") {
        return None;
    }
    let section = entry.section("budget");
    let budget = keys(&section, each);
    section.finish();
    Some(budget)
}

/// The same of a source whose authors may ask for another budget of a cluster, and for how much at most: by default for
/// no more than it has.
pub(super) fn of_authors(entry: &Section<'_>, each: Budget) -> SourceBudget {
    let each = of_source(entry, each).unwrap_or(each);
    let section = entry.section("maxBudget");
    let most = keys(&section, each);
    for (key, most, each) in [
        ("maxObjects", most.max_objects, each.max_objects),
        ("maxCacheBytes", most.max_cache_bytes, each.max_cache_bytes),
        ("maxJsonBytes", most.max_json_bytes, each.max_json_bytes),
    ] {
        if most < each {
            let text = format!(
                "found {most} where each of these clusters has {each}; allowed: at least as much"
            );
            section.problem(key, text);
        }
    }
    section.finish();
    SourceBudget { each, most }
}

fn keys(section: &Section<'_>, defaults: Budget) -> Budget {
    let objects = section.value("maxObjects", values::whole(OBJECTS));
    let bytes = |key, default| section.value(key, values::bytes(BYTES)).unwrap_or(default);
    Budget {
        max_objects: objects
            .and_then(|objects| usize::try_from(objects).ok())
            .unwrap_or(defaults.max_objects),
        max_cache_bytes: bytes("maxCacheBytes", defaults.max_cache_bytes),
        max_json_bytes: bytes("maxJsonBytes", defaults.max_json_bytes),
    }
}
