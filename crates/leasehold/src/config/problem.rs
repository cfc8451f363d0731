//! What is wrong with a configuration file: every problem, each with its path.

use std::fmt;

use serde_json::Value;

/// The longest piece of a found value that a message repeats, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `controllers.tdset.workers`, or empty for the file as a whole.
    pub path: String,
    /// What was found and what is allowed.
    pub message: String,
}

/// Everything that is wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// The file, as it was named.
    pub file: String,
    /// At least one, in the order of the file's sections.
    pub problems: Vec<Problem>,
}

impl Problem {
    /// A problem at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }

    /// A value that is not allowed.
    pub fn value(path: &str, found: &Value, allowed: &str) -> Self {
        Self::new(path, format!("found {}; allowed: {allowed}", shown(found)))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.problems.len() == 1 { "problem" } else { "problems" };
        write!(f, "{} has {} {noun}:", self.file, self.problems.len())?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// A found value as a message repeats it: whole if small, else its kind.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(map) => format!("a section with {} keys", map.len()),
        scalar => {
            let text = scalar.to_string();
            match text.char_indices().nth(MAX_SHOWN_CHARS) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        }
    }
}
