//! Whatever a credential program or an issuer answers: it is read or refused without a panic, and no error or debug
//! text repeats a secret of it.

use model::error::chain;

use super::oidc::{Tokens, expiry, json};
use super::program::parse;
use crate::fuzz::{PLANTED, check};

const VERSION: &str = "client.authentication.k8s.io/v1";

fn answer(input: &[u8]) {
    for version in [None, Some(VERSION)] {
        match parse(input, version) {
            Ok(answer) => {
                check(&format!("{answer:?}"));
                match answer.credential("origin") {
                    Ok(credential) => check(&format!("{credential:?}")),
                    Err(error) => check(&chain(&error)),
                }
            }
            // It names the version, wherever an edit has put a secret.
            Err(problem)
                if problem.starts_with("it is in version") && problem.contains(PLANTED) => {}
            Err(problem) => check(&problem),
        }
    }
    if let Err(problem) = json::<Tokens>(input, "its answer") {
        check(&problem);
    }
    let token = String::from_utf8_lossy(input);
    if let Some(end) = expiry(&token) {
        assert_eq!(end.subsec_nanosecond(), 0);
    }
}

#[test]
fn token_answers() {
    ::fuzz::fuzz!("token_answers", answer);
}
