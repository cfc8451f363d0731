//! Whatever stands in a spec or in an access list: it can be acted on, or there is the reason why not, and no panic.

use serde_json::{Value, json};

use crate::access::{self, Asked, Settings};
use crate::api::{Queue, QueueSpec};
use crate::desired::desired;
use crate::name::MAX_NAME;
use crate::owner::tests::place;
use crate::source::Source;

fn spec(input: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<QueueSpec>(input) else { return };
    assert_eq!(serde_json::from_value::<QueueSpec>(json!(spec)).unwrap(), spec);
    let mut queue = Queue::new("orders", spec);
    queue.metadata.namespace = Some("shop".to_owned());
    let place = place("c-1", "shop", "orders");
    match desired(&queue, &place, Some("arn:aws:sqs:eu-west-1:1:dead")) {
        Ok(wanted) => {
            assert!(!wanted.name.is_empty() && wanted.name.len() <= MAX_NAME, "{}", wanted.name);
            // What SQS has is compared with this text: it must be stable.
            let again = desired(&queue, &place, Some("arn:aws:sqs:eu-west-1:1:dead"));
            assert_eq!(again.as_ref(), Ok(&wanted));
        }
        Err(invalid) => assert!(!invalid.to_string().is_empty()),
    }
}

/// Nothing is granted by a list that a manager refuses, nor to a namespace that it does not name.
fn list(input: &[u8]) {
    let Ok(settings) = serde_json::from_slice::<Value>(input) else { return };
    if access::check(&settings).is_err() {
        return;
    }
    let settings_read = Settings::parse(&settings).expect("it was checked");
    let place = place("c-1", "not-in-any-list", "orders");
    let names = settings.to_string();
    if names.contains('*') || names.contains("not-in-any-list") {
        return;
    }
    for source in [Source::Own, Source::Given, Source::AssumeRole("arn:aws:iam::1:role/x".into())] {
        let asked = Asked::of(&place, "orders", None, source);
        assert!(settings_read.grant(&asked).is_err(), "{settings}");
    }
}

#[test]
fn queues() {
    fuzz::fuzz!("queues", spec);
}

#[test]
fn access_lists() {
    fuzz::fuzz!("access", list);
}
