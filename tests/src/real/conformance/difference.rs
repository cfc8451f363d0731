//! Where two answers differ. Pure.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::Sequence;

/// One place where the answers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The sequence.
    pub sequence: String,
    /// Which of its requests, from 1.
    pub step: usize,
    /// That request.
    pub request: String,
    /// Where in the answer, as in `body/metadata/name` or `status`.
    pub at: String,
    /// What the real server has there.
    pub real: Option<Value>,
    /// What the embedded one has there.
    pub embedded: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| {
            value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string)
        };
        let Self { sequence, step, request, at, .. } = self;
        write!(f, "{sequence} {step} ({request}) at {at}\n    real      {}", shown(&self.real))?;
        write!(f, "\n    embedded  {}", shown(&self.embedded))
    }
}

/// The differences between the answers to one request.
pub fn between(
    sequence: &Sequence,
    step: usize,
    request: &str,
    real: &Value,
    embedded: &Value,
) -> Vec<Difference> {
    let mut found = Vec::new();
    descend("", Some(real), Some(embedded), &mut found);
    found
        .into_iter()
        .map(|(at, real, embedded)| Difference {
            sequence: sequence.name.clone(),
            step: step + 1,
            request: request.to_owned(),
            at,
            real: real.cloned(),
            embedded: embedded.cloned(),
        })
        .collect()
}

type Pair<'a> = (String, Option<&'a Value>, Option<&'a Value>);

fn descend<'a>(
    at: &str,
    real: Option<&'a Value>,
    embedded: Option<&'a Value>,
    found: &mut Vec<Pair<'a>>,
) {
    let below = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}/{key}") };
    match (real, embedded) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                descend(&below(key), a.get(key), b.get(key), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                descend(&below(&index.to_string()), a.get(index), b.get(index), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push((at.to_owned(), a, b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_place_is_found_once() {
        let sequence = Sequence { name: "s".to_owned(), steps: Vec::new() };
        let real = json!({"status": 200, "body": {"a": [1, 2], "b": {"c": true}}});
        let embedded = json!({"status": 201, "body": {"a": [1], "b": {"d": true}}});
        let found = between(&sequence, 0, "GET /", &real, &embedded);
        let places: Vec<&str> = found.iter().map(|difference| difference.at.as_str()).collect();
        assert_eq!(places, ["body/a/1", "body/b/c", "body/b/d", "status"]);
        assert!(between(&sequence, 0, "GET /", &real, &real).is_empty());
    }
}
