//! Prints an error with its causes. Errors of this workspace never print their source in `Display`, so
//! that a log shows each cause once.

use std::error::Error;
use std::fmt::Write;

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

/// The error, or the one inside the client library's wrapper, whose own text is only "ServiceError".
fn unwrapped<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Service(inner)) => unwrapped(&**inner),
        _ => error,
    }
}

/// The error by itself. For an API server's answer, its message: the client library's `Display` prints
/// the whole structure.
fn one(error: &(dyn Error + 'static)) -> String {
    match answer(error) {
        Some(status) => format!("the API server answers {}: {}", status.code, status.message),
        None => error.to_string(),
    }
}

/// The cause, unless it only repeats the API server's answer.
fn below<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    if answer(error).is_some() { None } else { error.source() }
}

fn answer<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e kube::core::Status> {
    match error.downcast_ref::<kube::Error>() {
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
