use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::source::Source;
use super::*;

const OWNER: &str = "cluster:c-1/shop/orders/u-1";

fn ours() -> Place<'static> {
    super::super::owner::tests::place("c-1", "shop", "orders")
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn desired(adopt: bool) -> Desired {
    Desired {
        name: "shop-orders".to_owned(),
        fifo: false,
        attributes: [("DelaySeconds", "5".to_owned()), ("RedrivePolicy", String::new())].into(),
        tags: map(&[("team", "shop")]),
        adopt,
        source: Source::Given,
    }
}

fn observed(attributes: &[(&str, &str)], tags: &[(&str, &str)]) -> Observed {
    Observed { url: "u".to_owned(), attributes: map(attributes), tags: map(tags) }
}

/// What we left behind at second 0: the queue as it is wanted.
fn status() -> QueueStatus {
    QueueStatus {
        arn: Some("arn".to_owned()),
        attributes: map(&[("DelaySeconds", "5")]),
        tags: map(&[("team", "shop"), ("old", "x"), (OWNER_TAG, OWNER)]),
        last_change: Some(Time(at(0))),
        ..QueueStatus::default()
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A step in a line.
fn told(step: &Step) -> String {
    let changes = |changes: &[Change]| -> String {
        let told = changes.iter().map(|change| {
            let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
            let by = if change.drift { " drift" } else { "" };
            format!("{} {}>{}{by}", change.name, word(&change.from), word(&change.to))
        });
        told.collect::<Vec<_>>().join(", ")
    };
    match step {
        Step::Correct { attributes, tags } => {
            format!("correct [{}] [{}]", changes(attributes), changes(tags))
        }
        Step::Settle { until } => format!("settle until {}", until.as_second()),
        other => format!("{other:?}"),
    }
}

#[test]
fn what_is_done_about_what_is_seen() {
    let our_tags = [("team", "shop"), (OWNER_TAG, OWNER)];
    let (fine, nothing) = (observed(&[("DelaySeconds", "5")], &our_tags), QueueStatus::default());
    let moved = observed(&[("DelaySeconds", "9")], &our_tags);
    let tagged = |tags: &[(&str, &str)]| observed(&[("DelaySeconds", "5")], tags);
    for (seen, status, second, expect) in [
        (None, &nothing, 100, "Create { anew: false }"),
        (None, &status(), 60, "Create { anew: true }"),
        (None, &status(), 59, "settle until 60"),
        (Some(fine.clone()), &status(), 59, "Keep"),
        (Some(moved.clone()), &status(), 60, "correct [DelaySeconds 9>5 drift] []"),
        (Some(moved.clone()), &status(), 59, "settle until 60"),
        (Some(moved), &nothing, 59, "correct [DelaySeconds 9>5] []"),
        (
            Some(observed(&[("DelaySeconds", "5"), ("RedrivePolicy", "{}")], &our_tags)),
            &status(),
            60,
            "correct [RedrivePolicy {}>] []",
        ),
        (
            Some(tagged(&[("old", "x"), ("theirs", "y"), (OWNER_TAG, OWNER)])),
            &status(),
            60,
            "correct [] [team ->shop drift, old x>-]",
        ),
        (
            Some(tagged(&[("team", "shop")])),
            &status(),
            60,
            "Foreign { owner: None, adoptable: true }",
        ),
        (
            Some(tagged(&[(OWNER_TAG, "cluster:c-2/shop/orders/u-0")])),
            &nothing,
            60,
            r#"Foreign { owner: Some("cluster:c-2/shop/orders/u-0"), adoptable: false }"#,
        ),
        // The mark of an earlier version, from before the context got another name.
        (
            Some(tagged(&[("team", "shop"), (OWNER_TAG, "before/shop/orders/u-1")])),
            &status(),
            59,
            "correct [] [leasehold.dev/owner before/shop/orders/u-1>cluster:c-1/shop/orders/u-1]",
        ),
    ] {
        let step = plan(&desired(false), &ours(), seen.as_ref(), status, at(second));
        assert_eq!(told(&step), expect, "{seen:?} at {second}");
    }
}

/// In whatever spelling SQS returns it.
#[test]
fn a_policy_is_compared_by_what_it_says() {
    let written = r#"{"Statement": [{"Principal": {"AWS": "123456789012"}}]}"#;
    let returned = r#"{"Version":"2008-10-17","Statement":[{"Principal":{"AWS":"arn:aws-cn:iam::123456789012:root"}}]}"#;
    let changes = |seen: &str| {
        let attributes = [("Policy", written.to_owned())].into();
        let wanted = Desired { attributes, ..desired(false) };
        let seen = observed(&[("Policy", &normalised("Policy", seen.to_owned()))], &[]);
        let found = attribute_changes(&wanted, &seen, &QueueStatus::default());
        let after = seen.with(&found, &[]);
        assert_eq!(attribute_changes(&wanted, &after, &QueueStatus::default()), []);
        found.into_iter().map(|change| change.to.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(changes(returned), [""; 0]);
    // What is sent is what was written.
    assert_eq!(changes(r#"{"Version":"2012-10-17"}"#), [written]);
}

#[test]
fn only_what_is_nobody_s_is_adopted() {
    let step = |owner: &str| {
        let seen = observed(&[], &[(OWNER_TAG, owner)]);
        plan(&desired(true), &ours(), Some(&seen), &QueueStatus::default(), at(0))
    };
    let before = "cluster:c-1/shop/orders/u-0".to_owned();
    assert_eq!(step(&before), Step::Adopt { from: Some(before) });
    assert_eq!(step(""), Step::Adopt { from: Some(String::new()) });
    let another = "cluster:c-1/shop/returns/u-2".to_owned();
    assert_eq!(step(&another), Step::Foreign { owner: Some(another), adoptable: false });
    assert!(matches!(step(OWNER), Step::Correct { .. }));
}

#[test]
fn what_was_planned_and_done_needs_nothing_more() {
    let seen = observed(&[("DelaySeconds", "9")], &[("old", "x"), (OWNER_TAG, OWNER)]);
    let Step::Correct { attributes, tags } =
        plan(&desired(false), &ours(), Some(&seen), &status(), at(99))
    else {
        panic!("there is something to correct")
    };
    let after = seen.with(&attributes, &tags);
    assert_eq!(plan(&desired(false), &ours(), Some(&after), &status(), at(99)), Step::Keep);
}

#[test]
fn how_a_queue_ends() {
    use DeletionPolicy::{Delete, DeleteIfEmpty, OrphanOnUnmanaged};
    let full = [("ApproximateNumberOfMessages", "2"), ("ApproximateNumberOfMessagesDelayed", "1")];
    let (ours_it_is, others) = (observed(&[], &[(OWNER_TAG, OWNER)]), observed(&[], &[]));
    let full = observed(&full, &[(OWNER_TAG, OWNER)]);
    let by_old_mark = observed(&[], &[(OWNER_TAG, "before/shop/orders/u-1")]);
    let nothing = QueueStatus::default();
    let only_seen = QueueStatus { observed: true, ..status() };
    let past = at(60);
    let empty = |second| QueueStatus { empty_since: Some(Time(at(second))), ..status() };
    for (seen, policy, status, now, expect) in [
        (Some(&ours_it_is), Delete, &status(), past, Ending::Delete),
        (Some(&by_old_mark), Delete, &status(), past, Ending::Delete),
        (Some(&ours_it_is), OrphanOnUnmanaged, &status(), past, Ending::Delete),
        (Some(&ours_it_is), DeleteIfEmpty, &status(), past, Ending::SeemsEmpty { since: past }),
        (Some(&ours_it_is), DeleteIfEmpty, &empty(0), at(89), Ending::SeemsEmpty { since: at(0) }),
        (Some(&ours_it_is), DeleteIfEmpty, &empty(0), at(90), Ending::Delete),
        (Some(&full), DeleteIfEmpty, &empty(0), at(90), Ending::NotEmpty { messages: 3 }),
        // Too long ago to say anything, or by a clock that was set back.
        (
            Some(&ours_it_is),
            DeleteIfEmpty,
            &empty(0),
            at(901),
            Ending::SeemsEmpty { since: at(901) },
        ),
        (Some(&ours_it_is), DeleteIfEmpty, &empty(200), past, Ending::SeemsEmpty { since: past }),
        (Some(&others), DeleteIfEmpty, &empty(0), at(90), Ending::Unmanaged { owner: None }),
        (Some(&full), Delete, &status(), past, Ending::Delete),
        (Some(&full), DeleteIfEmpty, &status(), past, Ending::NotEmpty { messages: 3 }),
        (Some(&others), Delete, &status(), past, Ending::Unmanaged { owner: None }),
        (Some(&others), DeleteIfEmpty, &status(), past, Ending::Unmanaged { owner: None }),
        (Some(&others), OrphanOnUnmanaged, &status(), past, Ending::Orphan { owner: None }),
        (Some(&others), Delete, &nothing, past, Ending::NeverOurs),
        (Some(&others), Delete, &only_seen, past, Ending::NeverOurs),
        (None, Delete, &status(), past, Ending::Gone),
        (None, Delete, &status(), at(59), Ending::Settle { until: at(60) }),
        (None, Delete, &nothing, at(0), Ending::Gone),
    ] {
        assert_eq!(ending(&ours(), policy, seen, status, now), expect, "{seen:?} {policy:?}");
    }
}
