//! What it takes to read the lines of a hostile server, by Rust's allocator. A binary of its own, for the
//! allocator counts everything in the process.

use std::alloc::System;

use cap::Cap;
use leasehold_listwatch::wire;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// The longest line there can be.
const LINE_BYTES: usize = 4 << 20;

/// A line of so many times `part`.
fn line(begin: &str, part: &str, end: &str) -> String {
    let parts = (LINE_BYTES - begin.len() - end.len()) / part.len();
    let mut line = String::with_capacity(LINE_BYTES);
    line.push_str(begin);
    (0..parts).for_each(|_| line.push_str(part));
    // A comma after the last would be no JSON.
    if part.ends_with(',') {
        line.pop();
    }
    line.push_str(end);
    line
}

#[test]
fn no_line_takes_more_than_itself_to_read() {
    let bookmark =
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"#;
    for (begin, part, end) in [
        (r#"{"type":"ERROR","object":{"code":504,"details":{"causes":["#, "{},", "]}}}"),
        (r#"{"code":504,"details":{"causes":["#, "{},", "]}}"),
        (bookmark, r#""a":"true","#, "}}}}"),
        (bookmark, r#""\n":"\n","#, "}}}}"),
        (r#"{"type":"ADDED", "object":{"metadata":{"labels":{"#, r#""a":"","#, "}}}}"),
        (r#"{"more":["#, "[],", r#"],"type":"MODIFIED","object":{}}"#),
        (r#"{"type":"ERROR","object":{"code":504,"message":""#, r"\n", r#" "}}"#),
        (r#"{"type":""#, r"\n", r#" ","object":{}}"#),
    ] {
        let line = line(begin, part, end);
        serde_json::from_str::<serde::de::IgnoredAny>(&line).expect("JSON");
        let before = ALLOCATOR.allocated();
        let _ = wire::line(line.as_bytes());
        let _ = wire::strict_line(line.as_bytes());
        let most = ALLOCATOR.max_allocated();
        assert!(most <= before + LINE_BYTES, "{begin}: {most} bytes, {before} before");
    }
}
