//! Whatever is read for a support bundle: it is cleaned without a panic, and a secret that stands where secrets stand is
//! gone, whatever stands before it.

use serde_json::{Value, json};

use crate::redact;

/// The secret. The seeds have none.
const PLANTED: &str = "0pen-Sesame.42";

fn redaction(input: &[u8]) {
    let check = |clean: &str| assert!(!clean.contains(PLANTED), "{clean}");
    let secrets = [
        format!("password: {PLANTED}"),
        format!("Authorization: Bearer {PLANTED}"),
        format!("run --token={PLANTED} --verbose"),
        format!("dial https://user:{PLANTED}@host/x"),
        format!(r#"{{"level":"INFO","spec":{{"clientSecret":"{PLANTED}"}}}}"#),
    ];
    // Each input is tried in one of these ways: they take long.
    let cleaners = [redact::text, redact::log, redact::metrics];
    let (secret, clean) = (&secrets[input.len() % 5], cleaners[input.len() / 5 % 3]);
    let input = &*String::from_utf8_lossy(input);
    check(&clean(&format!("{input}\n{secret}\n")));
    let mut object = json!({"data": {"config": input}, "password": PLANTED,
        "env": [{"name": "A", "value": PLANTED}], "args": ["--token", PLANTED]});
    object["spec"] = serde_json::from_str(input).unwrap_or(Value::Null);
    redact::json(&mut object);
    check(&object.to_string());
    assert!(object["data"].is_object() && object["args"].is_array(), "{object}");
}

#[test]
fn redactions() {
    ::fuzz::fuzz!("redactions", redaction);
}
