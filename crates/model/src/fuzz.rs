//! Whatever somebody writes as a label selector: it is read or refused without a panic, and what is read means the
//! same when it is printed and read again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::Selector;

fn is_itself_again(selector: &Selector) {
    let text = selector.to_string();
    let again: Selector = text.parse().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again, *selector, "{text}");
}

fn selector(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match text.parse::<Selector>() {
        Ok(selector) => is_itself_again(&selector),
        Err(error) => assert!(error.to_string().chars().count() <= 2_000, "{error}"),
    }
    let Ok(structure) = serde_json::from_slice::<LabelSelector>(input) else { return };
    match Selector::try_from(structure) {
        Ok(selector) => is_itself_again(&selector),
        Err(error) => assert!(error.to_string().chars().count() <= 2_000, "{error}"),
    }
}

#[test]
fn selectors() {
    ::fuzz::fuzz!("selectors", selector);
}
