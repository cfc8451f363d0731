//! Whatever a server sends for a watch line or a page: it is read or refused without a panic, and an object is the
//! one that serde finds there.

use model::error::MAX_FOREIGN_CHARS;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::wire::{self, Line};

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn watch_line(input: &[u8]) {
    let (quick, strict) = (wire::line(input), wire::strict_line(input));
    match (&quick, &strict) {
        (Ok(Line::Upsert(object) | Line::Delete(object)), strict) if is_json(object) => {
            let strict = strict.as_ref().expect("what stands around the object is JSON too");
            let (Line::Upsert(found) | Line::Delete(found)) = strict else { panic!("{strict:?}") };
            assert_eq!(object.trim(), *found);
            let is_upsert = |line: &Line<'_>| matches!(line, Line::Upsert(_));
            assert_eq!(quick.as_ref().map(is_upsert).ok(), Some(is_upsert(strict)));
        }
        // The caller cannot read such an object, and asks for the strict reading.
        (Ok(Line::Upsert(_) | Line::Delete(_)), _) => {}
        (Ok(line), Ok(strict)) => assert_eq!(line, strict),
        (Ok(line), Err(error)) => panic!("{line:?} and {error}"),
        (Err(_), strict) => assert!(strict.is_err(), "{strict:?}"),
    }
    if let Ok(Line::Error(refusal)) = &strict {
        let text = refusal.to_string();
        assert!(text.chars().count() <= 2 * MAX_FOREIGN_CHARS + 20, "{text}");
        assert!(!text.contains(char::is_control), "{text:?}");
    }
    let refusal = wire::refusal(500, input).to_string();
    assert!(refusal.chars().count() <= 2 * MAX_FOREIGN_CHARS + 20, "{refusal}");
    assert!(!refusal.contains(char::is_control), "{refusal:?}");
}

fn list_page(input: &[u8]) {
    let Ok(page) = wire::page(input) else { return };
    assert!(page.items.iter().all(|item| is_json(item)));
    assert_ne!(page.continue_token.as_deref(), Some(""));
    // It gives up on what is nested deeply.
    let Ok(value) = serde_json::from_slice::<Value>(input) else { return };
    let items: Vec<Value> = page.items.iter().map(|i| serde_json::from_str(i).unwrap()).collect();
    let found = value["items"].as_array().cloned().unwrap_or_default();
    assert_eq!(items, found);
    let version = value["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    assert_eq!(page.resource_version, version);
}

#[test]
fn watch_lines() {
    ::fuzz::fuzz!("watch_lines", watch_line);
}

#[test]
fn list_pages() {
    ::fuzz::fuzz!("list_pages", list_page);
}
