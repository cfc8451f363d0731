//! The table of the chart's values, from the comments in `values.yaml`. Pure.
//!
//! A comment directly above a key describes it. Each value is on the line of its key.

use anyhow::{Result, bail, ensure};

/// The rows for a `values.yaml`, under their heading.
///
/// # Errors
/// If a line is none of: empty, a comment, a key; or a key with a value has no comment.
pub(crate) fn table(values: &str) -> Result<String> {
    let mut table = "| value | default | what |\n|---|---|---|\n".to_owned();
    let mut path: Vec<&str> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in values.lines() {
        let text = line.trim_start();
        if text.is_empty() {
            comment.clear();
            continue;
        }
        if let Some(words) = text.strip_prefix('#') {
            comment.push(words.trim_start());
            continue;
        }
        let Some((key, value)) = text.split_once(':') else {
            bail!("values.yaml: {line:?} is no key")
        };
        path.truncate((line.len() - text.len()) / 2);
        path.push(key);
        let (name, value) = (path.join("."), value.trim());
        let what = std::mem::take(&mut comment).join(" ").replace('|', "\\|");
        ensure!(value.is_empty() || !what.is_empty(), "values.yaml: nothing describes {name}");
        match (value, what) {
            ("", what) if what.is_empty() => {}
            ("", what) => table += &format!("| `{name}` | | {what} |\n"),
            (value, what) => table += &format!("| `{name}` | `{value}` | {what} |\n"),
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_for_each_value_and_each_described_section() {
        let values = "# About the file.\n\n# How many,\n# or none.\nreplicas: 3\nimage:\n  # a|b\n  tag: \"\"\n";
        let rows = "| `replicas` | `3` | How many, or none. |\n| `image.tag` | `\"\"` | a\\|b |\n";
        assert!(table(values).unwrap().ends_with(&format!("|---|---|---|\n{rows}")));
        let error = table("image:\n  tag: x\n").unwrap_err().to_string();
        assert_eq!(error, "values.yaml: nothing describes image.tag");
        assert!(table("- a\n").is_err());
    }
}
