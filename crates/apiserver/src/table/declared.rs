//! Columns that a definition declares: JSON paths, and types that say how values are printed.

use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::{Value, json};

use super::{Column, Row, age};
use crate::kinds::PrinterColumn;

/// The declared columns with their parsed paths.
pub(crate) struct Columns<'a>(Vec<(&'a PrinterColumn, Option<JpQuery>)>);

impl<'a> Columns<'a> {
    pub(crate) fn new(columns: &'a [PrinterColumn]) -> Self {
        let read = |column: &'a PrinterColumn| (column, path(&column.json_path));
        Self(columns.iter().map(read).collect())
    }

    /// The name and the declared columns, or the age if none are declared.
    pub(crate) fn definitions(&self) -> Vec<Value> {
        let mut definitions = vec![Column::NAME.definition()];
        if self.0.is_empty() {
            let age = Column { kind: "date", ..Column::AGE };
            definitions.push(age.definition());
        }
        definitions.extend(self.0.iter().map(|(column, _)| {
            json!({
                "name": column.name,
                "type": column.kind,
                "format": column.format,
                "description": description(column),
                "priority": column.priority,
            })
        }));
        definitions
    }

    pub(crate) fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let mut cells = vec![(Column::NAME.cell)(row)];
        if self.0.is_empty() {
            cells.push((Column::AGE.cell)(row));
        }
        cells.extend(self.0.iter().map(|(column, path)| {
            let found = path.as_ref().and_then(|path| first(path, row.object));
            found.map_or(Value::Null, |value| cell(&column.kind, &value, row))
        }));
        cells
    }
}

fn description(column: &PrinterColumn) -> String {
    if column.description.is_empty() {
        format!("Custom resource definition column (in JSONPath format): {}", column.json_path)
    } else {
        column.description.clone()
    }
}

fn first(path: &JpQuery, object: &Value) -> Option<Value> {
    let found = js_path_process(path, object).ok()?;
    found.into_iter().next().map(|found| found.val().clone())
}

/// A Kubernetes JSON path in the form of RFC 9535: rooted, and with escaped dots quoted. `None` if
/// it is not a path.
fn path(text: &str) -> Option<JpQuery> {
    let text = text.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    let mut query = String::from("$");
    let mut rest = text.chars().peekable();
    let mut depth = 0_usize;
    while let Some(letter) = rest.next() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if letter != '.' || depth > 0 {
            query.push(letter);
            continue;
        }
        let mut name = String::new();
        while let Some(next) = rest.next_if(|c| !matches!(c, '.' | '[')) {
            match next {
                '\\' => name.extend(rest.next()),
                next => name.push(next),
            }
        }
        match name.as_str() {
            "" => {}
            "*" => query.push_str("[*]"),
            name => query.push_str(&format!("['{}']", name.replace('\'', "\\'"))),
        }
    }
    parse_json_path(&query).ok()
}

fn cell(kind: &str, value: &Value, row: &Row<'_>) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(n)) => {
            n.as_i64().or(n.as_f64().map(|n| n as i64)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", Value::String(_)) => value.clone(),
        ("string", other) => json!(other.to_string()),
        ("date", Value::String(text)) => match text.parse() {
            Ok(at) => json!(age::since(at, row.now)),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}
