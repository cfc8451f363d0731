//! Grafana's form of a dashboard: its JSON model, version 39
//! (<https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/>).

use serde_json::{Value, json};

use super::FLEET;

/// The series whose exemplars lead to traces.
const EXEMPLIFIED: &str = "controller_runtime_reconcile_time_seconds_bucket";

/// The columns of the grid.
const COLUMNS: u32 = 24;

/// A dashboard.
pub(crate) struct Board {
    /// Its name in addresses and of its file.
    pub(crate) uid: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    pub(crate) variables: Vec<Variable>,
    pub(crate) rows: Vec<Row>,
}

/// What the viewer chooses.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    /// The series that have a label of that name.
    pub(crate) series: String,
    /// Whether it is one value, and not any number of them.
    pub(crate) is_one: bool,
}

/// Panels under a heading.
pub(crate) struct Row {
    pub(crate) title: &'static str,
    pub(crate) panels: Vec<Panel>,
}

/// One panel.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// Grafana's name of the unit.
    pub(crate) unit: &'static str,
    pub(crate) kind: Kind,
    /// The queries, each with the legend of its series; of a table, the name of its column of values, if it has one.
    pub(crate) queries: Vec<(String, String)>,
}

/// How a panel shows its numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One number, green or red: red below the first bound, or from the second on. Without one it is neither.
    Number { least: u32, bad_from: Option<u32> },
    /// Lines over time.
    Lines,
    /// Lines over time, one above the other.
    Stack,
    /// The first in a table. The cluster leads to its dashboard.
    Table,
}

/// The file of a dashboard.
pub(crate) fn file(board: &Board) -> String {
    let mut panels = Vec::new();
    let mut top = 0;
    for row in &board.rows {
        let at = json!({"h": 1, "w": COLUMNS, "x": 0, "y": top});
        let id = panels.len() + 1;
        panels.push(json!({
            "id": id, "type": "row", "title": row.title, "collapsed": false, "gridPos": at, "panels": [],
        }));
        top += 1;
        let (mut left, mut height) = (0, 0);
        for shown in &row.panels {
            let (width, high) = size(shown.kind);
            if left + width > COLUMNS {
                (left, top, height) = (0, top + height, 0);
            }
            let at = json!({"h": high, "w": width, "x": left, "y": top});
            panels.push(panel(shown, panels.len() + 1, &at));
            (left, height) = (left + width, height.max(high));
        }
        top += height;
    }
    let mut variables = vec![json!({
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        "current": {}, "refresh": 1, "multi": false, "includeAll": false,
    })];
    variables.extend(board.variables.iter().map(variable));
    let dashboard = json!({
        "uid": board.uid, "title": board.title, "description": board.about, "tags": ["leasehold"],
        "schemaVersion": 39, "editable": true, "graphTooltip": 1, "refresh": "10s", "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{
            "type": "dashboards", "title": "Leasehold", "tags": ["leasehold"], "asDropdown": true,
            "includeVars": true, "keepTime": true, "targetBlank": false, "icon": "external link", "url": "",
        }],
        "annotations": {"list": annotations()},
        "templating": {"list": variables},
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

/// What happened, as marks in every panel.
fn annotations() -> Vec<Value> {
    let mark = |name: &str, color: &str, expr: &str, text: &str| {
        json!({
            "name": name, "enable": true, "iconColor": color, "datasource": source(), "expr": expr,
            "titleFormat": name, "textFormat": text, "step": "30s",
        })
    };
    let moves = format!("sum(increase(leasehold_moves_total{FLEET}[$__rate_interval])) > 0");
    // A new Pod has series of its own, so that nothing of the one before changes.
    let starts = format!("process_start_time_seconds{FLEET} > (time() - 60)");
    let versions = format!("count by (version) (leasehold_build_info{FLEET}");
    let deploys = format!("{versions}) unless {versions} offset 2m)");
    vec![
        mark("Moves", "blue", &moves, "shards changed their owner"),
        mark("Starts", "orange", &starts, "{{instance}} has started"),
        mark("Deploys", "purple", &deploys, "version {{version}} has come"),
    ]
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variable(variable: &Variable) -> Value {
    let Variable { name, label, series, is_one } = variable;
    let query = format!("label_values({series}, {name})");
    let mut found = json!({
        "name": name, "label": label, "type": "query", "datasource": source(), "definition": query,
        "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1,
        "multi": !is_one, "includeAll": !is_one, "current": {},
    });
    if !is_one {
        found["allValue"] = json!(".*");
        found["current"] = json!({"selected": true, "text": ["All"], "value": ["$__all"]});
    }
    found
}

/// Width and height.
fn size(kind: Kind) -> (u32, u32) {
    match kind {
        Kind::Number { .. } => (4, 4),
        Kind::Lines | Kind::Stack | Kind::Table => (8, 8),
    }
}

fn panel(panel: &Panel, id: usize, at: &Value) -> Value {
    let is_momentary = matches!(panel.kind, Kind::Number { .. } | Kind::Table);
    let targets = panel.queries.iter().zip("ABCDEFGH".chars()).map(|((expr, legend), name)| {
        let mut target = json!({
            "refId": name.to_string(), "datasource": source(), "expr": expr, "legendFormat": legend,
            "editorMode": "code",
        });
        target[if is_momentary { "instant" } else { "range" }] = true.into();
        if panel.kind == Kind::Table {
            target["format"] = "table".into();
        }
        if expr.contains(EXEMPLIFIED) {
            target["exemplar"] = true.into();
        }
        target
    });
    let mut shown = json!({
        "id": id, "title": panel.title, "description": panel.about, "datasource": source(), "gridPos": at,
        "targets": targets.collect::<Vec<_>>(),
    });
    let (kind, config, options) = match panel.kind {
        Kind::Number { least, bad_from } => number(least, bad_from),
        Kind::Lines => lines(false),
        Kind::Stack => lines(true),
        Kind::Table => table(),
    };
    shown["type"] = kind.into();
    shown["fieldConfig"] = config;
    shown["fieldConfig"]["defaults"]["unit"] = panel.unit.into();
    shown["fieldConfig"]["defaults"]["noValue"] = "nothing to show".into();
    shown["options"] = options;
    if panel.kind == Kind::Table {
        let (query, column) = panel.queries.first().expect("a table has a query");
        let mut changes = vec![json!({"id": "organize", "options": {
            "excludeByName": {"Time": true, "Value": column.is_empty()}, "renameByName": {"Value": column},
        }})];
        if !column.is_empty() {
            let is_falling = !query.starts_with("bottomk(");
            let sort = json!([{"field": column, "desc": is_falling}]);
            changes.push(json!({"id": "sortBy", "options": {"sort": sort}}));
        }
        shown["transformations"] = changes.into();
    }
    shown
}

fn number(least: u32, bad_from: Option<u32>) -> (&'static str, Value, Value) {
    // The first color is also that of no number.
    let mut steps = vec![json!({"color": "gray", "value": null})];
    if least > 0 {
        steps.push(json!({"color": "red", "value": 0}));
    }
    steps.push(json!({"color": "green", "value": least}));
    steps.extend(bad_from.map(|bad| json!({"color": "red", "value": bad})));
    let config = json!({
        "defaults": {"thresholds": {"mode": "absolute", "steps": steps}}, "overrides": [],
    });
    let options = json!({
        "colorMode": "background", "graphMode": "none", "justifyMode": "auto", "textMode": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
    });
    ("stat", config, options)
}

fn lines(are_stacked: bool) -> (&'static str, Value, Value) {
    let mode = if are_stacked { "normal" } else { "none" };
    let config = json!({
        "defaults": {"min": 0, "custom": {
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": if are_stacked { 20 } else { 5 },
            "showPoints": "never", "spanNulls": false, "stacking": {"mode": mode, "group": "A"},
        }},
        "overrides": [],
    });
    let options = json!({
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true},
        "tooltip": {"mode": "multi", "sort": "desc"},
    });
    ("timeseries", config, options)
}

fn table() -> (&'static str, Value, Value) {
    let link = json!([{
        "title": "${__value.text}",
        "url": "/d/leasehold-cluster?var-cluster=${__value.text}&${job:queryparam}&${namespace:queryparam}&${__url_time_range}",
    }]);
    let config = json!({
        "defaults": {},
        "overrides": [{
            "matcher": {"id": "byName", "options": "cluster"},
            "properties": [{"id": "links", "value": link}],
        }],
    });
    ("table", config, json!({"showHeader": true, "cellHeight": "sm"}))
}
