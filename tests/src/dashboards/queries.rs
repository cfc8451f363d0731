//! The queries of the dashboards and the rules. Pure: text in, queries out.

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

/// Values for the variables that Grafana or the viewer would fill in: everything, over a window of
/// a few scrapes.
const VARIABLES: [(&str, &str); 8] = [
    // Of these, Grafana fills in one.
    ("=\"$cluster\"", "=~\".*\""),
    ("=\"$controller\"", "=~\".*\""),
    ("$__rate_interval", "15s"),
    ("$__range", "1m"),
    ("$job", ".*"),
    ("$namespace", ".*"),
    ("$cluster", ".*"),
    ("$controller", ".*"),
];

/// One query, and what it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// The panel, variable or rule it belongs to.
    pub title: String,
    /// The expression, ready to be sent.
    pub expr: String,
}

/// Every query of a dashboard: those of its variables and of its panels, also inside rows.
pub fn of_dashboard(text: &str) -> Result<Vec<Query>> {
    let dashboard: Value = serde_json::from_str(text).context("the dashboard is not JSON")?;
    let mut queries = Vec::new();
    for variable in list(&dashboard["templating"]["list"]) {
        if variable["type"] == "query" {
            let title = format!("variable {}", word(&variable["name"]));
            let query = word(&variable["query"]["query"]);
            let expr = label_values(query).with_context(|| format!("{title}: {query}"))?;
            queries.push(Query { title, expr: substitute(&expr)? });
        }
    }
    panels(&dashboard, &mut queries)?;
    Ok(queries)
}

/// Every expression of a dashboard's annotations. Most of the time they mark nothing.
pub fn of_annotations(text: &str) -> Result<Vec<Query>> {
    let dashboard: Value = serde_json::from_str(text).context("the dashboard is not JSON")?;
    let marks = list(&dashboard["annotations"]["list"]).filter(|mark| mark["expr"].is_string());
    let query = |mark: &Value| {
        let title = format!("annotation {}", word(&mark["name"]));
        Ok(Query { title, expr: substitute(word(&mark["expr"]))? })
    };
    marks.map(query).collect()
}

/// Every expression of a file of rules.
pub fn of_rules(text: &str) -> Result<Vec<Query>> {
    let rules: Value = serde_saphyr::from_str(text).context("the rules are not YAML")?;
    let rules = list(&rules["groups"]).flat_map(|group| list(&group["rules"]));
    rules
        .map(|rule| {
            let title = rule["alert"].as_str().or(rule["record"].as_str());
            let title = title.ok_or_else(|| anyhow!("a rule has no name: {rule}"))?.to_owned();
            Ok(Query { title, expr: word(&rule["expr"]).to_owned() })
        })
        .collect()
}

/// The numbers in Prometheus' JSON answer. `NaN`, the quantile of nothing, does not count.
pub fn numbers(answer: &str) -> Result<Vec<f64>> {
    let samples: Value =
        serde_json::from_str(answer).with_context(|| format!("answer {answer:?}"))?;
    let number = |sample: &Value| sample["value"][1].as_str()?.parse::<f64>().ok();
    Ok(list(&samples).filter_map(number).filter(|number| !number.is_nan()).collect())
}

fn panels(parent: &Value, queries: &mut Vec<Query>) -> Result<()> {
    for panel in list(&parent["panels"]) {
        let title = word(&panel["title"]);
        for target in list(&panel["targets"]) {
            let expr = substitute(word(&target["expr"])).with_context(|| title.to_owned())?;
            queries.push(Query { title: format!("panel {title}"), expr });
        }
        panels(panel, queries)?;
    }
    Ok(())
}

/// Translates `label_values(SERIES, LABEL)`, which only Grafana has, to PromQL.
fn label_values(query: &str) -> Result<String> {
    let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
    let (series, label) = inner
        .and_then(|inner| inner.rsplit_once(','))
        .ok_or_else(|| anyhow!("a variable must be label_values(SERIES, LABEL)"))?;
    Ok(format!("count by ({}) ({})", label.trim(), series.trim()))
}

fn substitute(expr: &str) -> Result<String> {
    let expr =
        VARIABLES.iter().fold(expr.to_owned(), |expr, (name, value)| expr.replace(name, value));
    match expr.split_once('$') {
        None => Ok(expr),
        Some((_, rest)) => Err(anyhow!("unknown variable ${rest}")),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expressions(queries: Vec<Query>) -> Vec<String> {
        queries.into_iter().map(|query| query.expr).collect()
    }

    #[test]
    fn a_dashboard_has_queries_in_panels_rows_and_variables() {
        let dashboard = json!({
            "templating": {"list": [
                {"name": "ds", "type": "datasource", "query": "prometheus"},
                {"name": "c", "type": "query",
                 "query": {"query": "label_values(up{job=~\"$job\"}, cluster)"}},
            ]},
            "panels": [
                {"title": "a", "targets": [{"expr": "rate(a{cluster=\"$cluster\"}[$__rate_interval])"}]},
                {"title": "row", "panels": [{"title": "b", "targets": [{"expr": "b"}]}]},
            ],
        });
        let found = of_dashboard(&dashboard.to_string()).unwrap();
        assert_eq!(
            expressions(found),
            [r#"count by (cluster) (up{job=~".*"})"#, r#"rate(a{cluster=~".*"}[15s])"#, "b"]
        );
    }

    #[test]
    fn an_unknown_variable_is_an_error() {
        let dashboard = json!({"panels": [{"title": "a", "targets": [{"expr": "a{x=\"$pod\"}"}]}]});
        let error = of_dashboard(&dashboard.to_string()).unwrap_err();
        assert_eq!(format!("{error:#}"), "a: unknown variable $pod\"}");
    }

    #[test]
    fn alerts_and_recording_rules_have_queries() {
        let rules = "groups:\n- rules:\n  - {alert: A, expr: a > 1}\n  - {record: b, expr: c}\n";
        assert_eq!(expressions(of_rules(rules).unwrap()), ["a > 1", "c"]);
    }

    #[test]
    fn a_quantile_of_nothing_is_not_a_number() {
        for (answer, expect) in [
            (r#"[]"#, false),
            (r#"[{"metric":{},"value":[1,"NaN"]}]"#, false),
            (r#"[{"metric":{},"value":[1,"NaN"]},{"metric":{},"value":[1,"0"]}]"#, true),
        ] {
            assert_eq!(!numbers(answer).unwrap().is_empty(), expect, "{answer}");
        }
    }
}
