//! Events expire an hour after they were last written.

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

/// How long an Event lives after its last write, as on a real server by default.
pub(crate) const EVENT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// When each Event was last written, in that order.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    order: BTreeSet<(Timestamp, String)>,
    written: HashMap<String, Timestamp>,
}

impl Expiry {
    /// An Event was written.
    pub(crate) fn touch(&mut self, uid: &str, at: Timestamp) {
        self.forget(uid);
        self.written.insert(uid.to_owned(), at);
        self.order.insert((at, uid.to_owned()));
    }

    /// An Event was deleted.
    pub(crate) fn forget(&mut self, uid: &str) {
        if let Some(at) = self.written.remove(uid) {
            self.order.remove(&(at, uid.to_owned()));
        }
    }

    /// Whether this Event has expired.
    pub(crate) fn is_due(&self, uid: &str, now: Timestamp) -> bool {
        self.written.get(uid).is_some_and(|at| now.duration_since(*at) >= EVENT_LIFETIME)
    }

    /// The expired Events, oldest first.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<String> {
        let old = |at: Timestamp| now.duration_since(at) >= EVENT_LIFETIME;
        self.order.iter().take_while(|(at, _)| old(*at)).map(|(_, uid)| uid.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_starts_the_hour_again() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let mut expiry = Expiry::default();
        expiry.touch("a", at(0));
        expiry.touch("b", at(1));
        expiry.touch("a", at(30));
        assert_eq!(expiry.due(at(60)), Vec::<String>::new());
        assert_eq!(expiry.due(at(61)), ["b"]);
        assert!(expiry.is_due("b", at(61)) && !expiry.is_due("a", at(61)));
        assert_eq!(expiry.due(at(90)), ["b", "a"]);
        expiry.forget("b");
        assert_eq!(expiry.due(at(90)), ["a"]);
    }
}
