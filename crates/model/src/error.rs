//! Printing an error with its causes. Errors here never print their source in `Display`, so that a
//! log shows each cause once.

use std::error::Error;
use std::fmt::Write;

/// The error and every cause below it, joined by `": "`.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Foreign errors often repeat their source; say it once.
        if !text.ends_with(&cause_text) {
            write!(text, ": {cause_text}").expect("writing to a String cannot fail");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("list pods in east")]
    struct Outer(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("outer: {0}")]
    struct Repeats(#[source] std::io::Error);

    #[test]
    fn names_each_cause_once() {
        assert_eq!(chain(&Outer(std::io::Error::other("refused"))), "list pods in east: refused");
        assert_eq!(chain(&Repeats(std::io::Error::other("refused"))), "outer: refused");
    }
}
