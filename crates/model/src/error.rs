//! Prints an error with its causes. Errors of this workspace never print their source in `Display`, so
//! that a log shows each cause once.
//!
//! What a server says may be anything: it is one line here, and short.

use std::error::Error;
use std::fmt::Write;

/// The most characters of what a server says that are repeated.
pub const MAX_FOREIGN_CHARS: usize = 500;

/// Text of somebody else's, fit for a log, an Event or a condition: one line without control characters or
/// marks that reorder it, of at most [`MAX_FOREIGN_CHARS`]. Whoever shows it says whose it is.
pub fn foreign(text: &str) -> String {
    foreign_to(text, MAX_FOREIGN_CHARS)
}

/// [`foreign`], with at most so many characters.
pub fn foreign_to(text: &str, most: usize) -> String {
    let (mut line, mut left) = (String::new(), most);
    for c in text.trim().chars() {
        if left == 0 {
            line.push('…');
            break;
        }
        // An escape sequence loses what makes it one.
        let c = if c.is_control() || c.is_whitespace() || reorders(c) { ' ' } else { c };
        if c == ' ' && line.ends_with(' ') {
            continue;
        }
        line.push(c);
        left -= 1;
    }
    line
}

/// Whether a character is invisible or changes the order in which others are shown (Unicode TR 36).
pub fn reorders(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The error and every cause below it, joined by `": "`.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let error = unwrapped(error);
    let mut text = one(error);
    let mut source = below(error);
    while let Some(cause) = source {
        let cause = unwrapped(cause);
        let cause_text = one(cause);
        // Foreign errors often repeat their source.
        if !text.ends_with(&cause_text) {
            write!(text, ": {cause_text}").expect("writing to a String cannot fail");
        }
        source = below(cause);
    }
    text
}

/// What a text of ours says to be wrong, and what to do, which it says last: `WHAT; fix: FIX`. `otherwise` is what to do if
/// it does not say it.
pub fn split_fix<'t>(text: &'t str, otherwise: &'t str) -> (&'t str, &'t str) {
    text.rsplit_once("; fix: ").unwrap_or((text, otherwise))
}

/// What to do about an API server that answers with this code, or not at all.
pub fn remedy(code: Option<u16>) -> &'static str {
    match code {
        None => "see whether the server runs and can be reached from here",
        Some(401) => "renew the credentials in the kubeconfig: log in again, or get a new token",
        Some(403) => "let this user do that, or use another user's kubeconfig or context",
        Some(_) => "see what answers at this address, and its log",
    }
}

/// The error of the client library, by itself or in a box: most errors keep it in one, because it is large.
fn of_client<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e kube::Error> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(|boxed| &**boxed);
    error.downcast_ref().or_else(boxed)
}

/// The error, or the one inside the client library's wrapper, whose own text is only "ServiceError".
fn unwrapped<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    match of_client(error) {
        Some(kube::Error::Service(inner)) => unwrapped(&**inner),
        _ => error,
    }
}

/// The error by itself. For an API server's answer, its message: the client library's `Display` prints
/// the whole structure.
fn one(error: &(dyn Error + 'static)) -> String {
    match answer(error) {
        Some(status) => {
            format!("the API server answers {}: {}", status.code, foreign(&status.message))
        }
        None => foreign(&error.to_string()),
    }
}

/// The cause, unless it only repeats the API server's answer.
fn below<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    if answer(error).is_some() { None } else { error.source() }
}

fn answer<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e kube::core::Status> {
    match of_client(error) {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("list members")]
    struct Refused(#[source] kube::Error);

    #[test]
    fn an_api_servers_answer_shows_its_message() {
        let status =
            kube::core::Status::failure("members is forbidden", "Forbidden").with_code(403);
        let error = Refused(kube::Error::Api(Box::new(status)));
        assert_eq!(chain(&error), "list members: the API server answers 403: members is forbidden");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("list members")]
    struct InABox(#[source] Box<kube::Error>);

    #[test]
    fn an_error_in_a_box_reads_as_one_without() {
        let refused = || {
            let status = kube::core::Status::failure("Unauthorized", "Unauthorized");
            kube::Error::Api(Box::new(status.with_code(401)))
        };
        let boxed = chain(&InABox(Box::new(refused())));
        assert_eq!(boxed, "list members: the API server answers 401: Unauthorized");
        assert_eq!(boxed, chain(&Refused(refused())));
        let silent = kube::Error::Service(Outer(std::io::Error::other("refused")).into());
        let text = chain(&InABox(Box::new(silent)));
        assert_eq!(text, "list members: list pods in east: refused");
    }

    #[test]
    fn what_a_server_says_is_one_short_line() {
        for (text, expect) in [
            ("no\n", "no".to_owned()),
            ("a\r\n\t b\u{1b}[31mred", "a b [31mred".to_owned()),
            ("abc\u{202e}cba", "abc cba".to_owned()),
            (&"x".repeat(MAX_FOREIGN_CHARS), "x".repeat(MAX_FOREIGN_CHARS)),
            (&"é".repeat(100_000), "é".repeat(MAX_FOREIGN_CHARS) + "…"),
        ] {
            assert_eq!(foreign(text), expect);
        }
        let status =
            kube::core::Status::failure(&"no\n".repeat(10_000), "Forbidden").with_code(403);
        let text = chain(&Refused(kube::Error::Api(Box::new(status))));
        assert!(text.starts_with("list members: the API server answers 403: no no no"), "{text}");
        assert!(text.chars().count() < MAX_FOREIGN_CHARS + 50 && !text.contains('\n'), "{text}");
    }

    #[test]
    fn the_client_librarys_wrapper_is_left_out() {
        let below = kube::Error::Service(Outer(std::io::Error::other("refused")).into());
        assert_eq!(chain(&below), "list pods in east: refused");
        assert_eq!(chain(&Refused(below)), "list members: list pods in east: refused");
    }

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
