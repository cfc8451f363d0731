use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const B: &str = "4350f323-7565-4e59-8763-4b1b83a0ce0e";

fn set(text: &str) -> GtidSet {
    text.replace('A', A).replace('B', B).parse().unwrap()
}

/// The text of a set, with short names for the uuids.
fn text(set: &GtidSet) -> String {
    set.to_string().replace(A, "A").replace(B, "B")
}

#[test]
fn texts_come_back_in_one_form() {
    let table = [
        ("", ""),
        (" \n", ""),
        ("A:1", "A:1"),
        ("A:1-1", "A:1"),
        ("A:1-3,\nB:1-2:4", "A:1-3,B:1-2:4"),
        ("B:1,A:1", "A:1,B:1"),
        ("A:5:1-3:4,", "A:1-5"),
        ("A:1-3:2-9:11", "A:1-9:11"),
        ("A:1,A:2", "A:1-2"),
        ("A:1-3:red:1-2:4:blue:7", "A:1-3:blue:7:red:1-2:4"),
        ("A:Red:1:2", "A:red:1-2"),
        ("A:_x9:1", "A:_x9:1"),
        (" A : 1 - 3 ", "A:1-3"),
        ("A:9223372036854775806", "A:9223372036854775806"),
    ];
    for (from, to) in table {
        assert_eq!(text(&set(from)), to, "{from:?}");
    }
    assert_eq!(format!("{}:1", A.to_uppercase()).parse(), Ok(set("A:1")));
}

#[test]
fn what_is_no_set_is_refused() {
    let table = [
        "A",
        "A:",
        "A:0",
        "A:3-1",
        "A:-1",
        "A:1-",
        "A:1-2-3",
        "A:red",
        "A:red:blue:1",
        "A:1:red",
        "A:r-d:1",
        "A:9223372036854775807",
        "A:99999999999999999999",
        "A:+1",
        "not a set",
        "3e11fa4771ca11e19e33c80aa9429562:1",
        "3e11fa47-71ca-11e1-9e33-c80aa942956é:1",
    ];
    for from in table {
        let from = from.replace('A', A);
        assert_eq!(from.parse::<GtidSet>(), Err(GtidError::Malformed(from.clone())));
    }
    let tag = format!("{A}:{}:1", "t".repeat(MAX_TAG + 1));
    assert!(matches!(tag.parse::<GtidSet>(), Err(GtidError::Malformed(_))));
}

#[test]
fn texts_without_end_are_refused() {
    let long = " ".repeat(MAX_TEXT + 1);
    assert_eq!(long.parse::<GtidSet>(), Err(GtidError::TooLong(MAX_TEXT + 1)));
    let numbers = (0..=MAX_INTERVALS).map(|number| format!(":{}", number * 2 + 1));
    let many = format!("{A}{}", numbers.collect::<String>());
    assert_eq!(many.parse::<GtidSet>(), Err(GtidError::TooMany));
    let words = "é".repeat(1000).parse::<GtidSet>();
    assert_eq!(words, Err(GtidError::Malformed("é".repeat(MAX_QUOTE))));
}

#[test]
fn owned_transactions_are_read_without_their_threads() {
    let owned = |from: &str| GtidSet::owned(&from.replace('A', A).replace('B', B));
    assert_eq!(owned(""), Ok(set("")));
    assert_eq!(owned("A:4#12:5#13#14,\nB:7#1"), Ok(set("A:4-5,B:7")));
    assert!(owned("A:#12").is_err());
    assert_eq!(owned(&"#".repeat(MAX_TEXT + 1)), Err(GtidError::TooLong(MAX_TEXT + 1)));
}

#[test]
fn a_server_is_left_out_with_its_tags() {
    assert_eq!(text(&set("A:1-3:red:1,B:1").without(A)), "B:1");
    assert_eq!(text(&set("A:1,B:1").without("no uuid")), "A:1,B:1");
    assert!(set("A:1").without(A).is_empty());
}

/// A set as a set of single transactions: slow, and plainly right.
type Plain = BTreeSet<(&'static str, &'static str, u64)>;

fn plain() -> impl Strategy<Value = Plain> {
    let one = (prop_oneof![Just("A"), Just("B")], prop_oneof![Just(""), Just("red:")], 1..12_u64);
    prop::collection::btree_set(one, 0..20)
}

fn dense(plain: &Plain) -> GtidSet {
    let parts = plain.iter().map(|(uuid, tag, number)| format!("{uuid}:{tag}{number}"));
    set(&parts.collect::<Vec<_>>().join(","))
}

proptest! {
    #[test]
    fn sets_are_as_sets_are(a in plain(), b in plain()) {
        let (x, y) = (dense(&a), dense(&b));
        prop_assert_eq!(x.contains(&y), a.is_superset(&b));
        prop_assert_eq!(x.union(&y), dense(&a.union(&b).copied().collect()));
        prop_assert_eq!(x.difference(&y), dense(&a.difference(&b).copied().collect()));
        prop_assert_eq!(x.is_empty(), a.is_empty());
        prop_assert_eq!(x.to_string().parse::<GtidSet>(), Ok(x));
    }
}
