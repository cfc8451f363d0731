//! The dashboards for Grafana, from tables of panels: the fleet, one cluster, one controller, the engine.
//!
//! The fleet's has no panel for each cluster: it names the first twenty by each measure, and these lead to the
//! dashboard of one cluster. So it shows 10,000 clusters as fast as ten.

mod engine;
mod fleet;
mod grafana;
mod one;

use grafana::{Board, Kind, Panel, Row, Variable};

/// How many clusters a table names.
const FIRST: u32 = 20;

/// The files of all dashboards, by their names.
pub(crate) fn files() -> impl Iterator<Item = (String, String)> {
    boards().into_iter().map(|board| (format!("{}.json", board.uid), grafana::file(&board)))
}

fn boards() -> [Board; 4] {
    [fleet::board(), one::cluster(), one::controller(), engine::board()]
}

/// The label matchers of a series: of the fleet, which is a scrape job in a namespace, and of what is chosen besides.
const FLEET: &str = r#"{job=~"$job", namespace=~"$namespace"}"#;
const FAILED: &str = r#"{job=~"$job", namespace=~"$namespace", result="error"}"#;
const CONTROLLER: &str = r#"{job=~"$job", namespace=~"$namespace", controller="$controller"}"#;
const CLUSTER: &str = r#"{job=~"$job", namespace=~"$namespace", cluster="$cluster"}"#;

/// The variables that choose the fleet.
fn fleet() -> [Variable; 2] {
    [("job", "Job"), ("namespace", "Namespace")].map(|(name, label)| Variable {
        name,
        label,
        series: "leasehold_shards_unowned".to_owned(),
        is_one: false,
    })
}

/// The variables that choose the fleet, and one that chooses a value of a label of this series.
fn fleet_and(name: &'static str, label: &'static str, series: String) -> Vec<Variable> {
    fleet().into_iter().chain([Variable { name, label, series, is_one: true }]).collect()
}

fn sum(by: &str, series: &str, of: &str) -> String {
    format!("sum by ({by}) ({series}{of})")
}

fn max(by: &str, series: &str, of: &str) -> String {
    format!("max by ({by}) ({series}{of})")
}

fn rate(by: &str, series: &str, of: &str) -> String {
    format!("sum by ({by}) (rate({series}{of}[$__rate_interval]))")
}

/// Of a histogram.
fn mean(by: &str, series: &str, of: &str) -> String {
    let [time, count] = ["sum", "count"].map(|part| rate(by, &format!("{series}_{part}"), of));
    format!("{time} / ({count} > 0)")
}

fn quantile(part: &str, by: &str, series: &str, of: &str) -> String {
    let by = if by.is_empty() { "le".to_owned() } else { format!("le, {by}") };
    format!("histogram_quantile({part}, {})", rate(&by, &format!("{series}_bucket"), of))
}

fn p99(by: &str, series: &str, of: &str) -> String {
    quantile("0.99", by, series, of)
}

/// A query by a label, whose values are the legend.
fn by(
    of: fn(&str, &str, &str) -> String,
    label: &str,
    series: &str,
    matchers: &str,
) -> (String, String) {
    (of(label, series, matchers), format!("{{{{{label}}}}}"))
}

fn first(of: &str) -> String {
    format!("topk({FIRST}, {of})")
}

fn panel<L: Into<String>, const N: usize>(
    (kind, title, unit): (Kind, &'static str, &'static str),
    about: &'static str,
    queries: [(String, L); N],
) -> Panel {
    let queries = queries.map(|(query, legend)| (query, legend.into())).into();
    Panel { title, about, unit, kind, queries }
}

fn number(
    title: &'static str,
    (least, bad_from): (u32, Option<u32>),
    about: &'static str,
    query: &str,
) -> Panel {
    panel((Kind::Number { least, bad_from }, title, "none"), about, [(query.to_owned(), "")])
}

fn table(
    (title, unit, column): (&'static str, &'static str, &'static str),
    about: &'static str,
    query: String,
) -> Panel {
    panel((Kind::Table, title, unit), about, [(query, column)])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_panel_says_what_it_shows_and_none_is_repeated_for_each_cluster() {
        let boards = boards();
        let uids: BTreeSet<&str> = boards.iter().map(|board| board.uid).collect();
        assert_eq!(uids.len(), boards.len());
        for board in &boards {
            let file = grafana::file(board);
            assert!(!file.contains("\"repeat\""), "{}", board.uid);
            for (_, rest) in file.match_indices("/d/").map(|(at, _)| file.split_at(at + 3)) {
                let uid = rest.split(['?', '"']).next().unwrap();
                assert!(uids.contains(uid), "{} leads to {uid}", board.uid);
            }
            let panels: Vec<&Panel> = board.rows.iter().flat_map(|row| &row.panels).collect();
            let titles: BTreeSet<&str> = panels.iter().map(|panel| panel.title).collect();
            assert_eq!(titles.len() + usize::from(board.uid == "leasehold-fleet"), panels.len());
            for panel in panels {
                assert!(panel.about.ends_with('.'), "{}: {}", board.uid, panel.title);
                for (query, _) in &panel.queries {
                    // Grafana escapes values for a regular expression only where there may be several.
                    for one in board.variables.iter().filter(|variable| variable.is_one) {
                        assert!(!query.contains(&format!("=~\"${}\"", one.name)), "{query}");
                    }
                    assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
                    // A series for each cluster only where a bound says for how many.
                    let is_bounded = ["topk(20,", "bottomk(20,", "sum(", "count("]
                        .iter()
                        .any(|bound| query.starts_with(bound));
                    let is_by_cluster =
                        query.contains("by (cluster)") || query.contains("le, cluster)");
                    assert!(is_bounded || !is_by_cluster, "{query}");
                }
            }
        }
    }
}
