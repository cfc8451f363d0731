//! Which operations on the home cluster fail at present, for the log and for people. Pure.
//!
//! The writes of one verb go to many objects of a kind, and that of one may fail again and again while the others succeed.
//! So what fails of an object works again when it succeeds of that object, or counts no more when nobody has repeated it
//! for a while, as when the object is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::Moment;

use super::Operation;

/// The most objects of one operation that are kept. While so many fail, others do not matter.
const MAX_OBJECTS: usize = 64;
/// How long the failure of an object counts. A write that fails is repeated sooner: after a pause of 5 s at most, and it
/// takes 5 s at most.
const KEPT: Duration = Duration::from_secs(20);

/// What fails.
#[derive(Debug, Default)]
pub(crate) struct OpenProblems {
    /// What fails of each operation, the first failure first. What is of no single object counts until it works again.
    failing: BTreeMap<Operation, Vec<Failing>>,
    /// Of each operation, the first one.
    shown: Arc<BTreeMap<Operation, String>>,
}

#[derive(Debug)]
struct Failing {
    object: Option<String>,
    text: String,
    at: Moment,
}

/// What people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// An operation fails, for this reason.
    Fails(String),
    /// It works again.
    Works,
}

impl OpenProblems {
    /// Why operations fail.
    pub(crate) fn shown(&self) -> &Arc<BTreeMap<Operation, String>> {
        &self.shown
    }

    /// An operation on an object, or on a whole kind, failed for this reason or succeeded.
    pub(crate) fn note(
        &mut self,
        operation: &Operation,
        object: Option<String>,
        text: Option<String>,
        now: Moment,
    ) -> Option<Change> {
        let failing = self.failing.entry(operation.clone()).or_default();
        let known = failing.iter().position(|one| one.object == object);
        match (text, known) {
            (Some(text), Some(at)) => failing[at] = Failing { object, text, at: now },
            (Some(text), None) if failing.len() < MAX_OBJECTS => {
                failing.push(Failing { object, text, at: now });
            }
            (None, Some(at)) => drop(failing.remove(at)),
            (_, None) => {}
        }
        self.show(operation)
    }

    /// Forgets what nobody has repeated. Returns the operations of which something else is to say now.
    pub(crate) fn expire(&mut self, now: Moment) -> Vec<(Operation, Change)> {
        let mut expired = Vec::new();
        for (operation, failing) in &mut self.failing {
            let before = failing.len();
            failing.retain(|one| one.object.is_none() || now < one.at + KEPT);
            if failing.len() < before {
                expired.push(operation.clone());
            }
        }
        let change = |operation: Operation| {
            let change = self.show(&operation)?;
            Some((operation, change))
        };
        expired.into_iter().filter_map(change).collect()
    }

    /// Brings up to date what is shown of an operation.
    fn show(&mut self, operation: &Operation) -> Option<Change> {
        let first = self.failing.get(operation).and_then(|failing| failing.first());
        match first.map(|one| one.text.clone()) {
            Some(text) if self.shown.get(operation) == Some(&text) => None,
            Some(text) => {
                Arc::make_mut(&mut self.shown).insert(operation.clone(), text.clone());
                Some(Change::Fails(text))
            }
            None => {
                self.failing.remove(operation);
                self.shown.contains_key(operation).then(|| {
                    Arc::make_mut(&mut self.shown).remove(operation);
                    Change::Works
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(s))
    }

    fn update() -> Operation {
        Operation {
            verb: "update",
            resource: "shardmaps.leasehold.dev",
            namespace: "leasehold-system".into(),
        }
    }

    fn note(
        problems: &mut OpenProblems,
        object: &str,
        text: Option<&str>,
        s: u64,
    ) -> Option<Change> {
        let object = Some(object.to_owned()).filter(|object| !object.is_empty());
        problems.note(&update(), object, text.map(str::to_owned), at(s))
    }

    fn fails(text: &str) -> Option<Change> {
        Some(Change::Fails(text.to_owned()))
    }

    #[test]
    fn what_fails_of_one_object_does_not_work_because_others_do() {
        let mut problems = OpenProblems::default();
        assert_eq!(note(&mut problems, "west", None, 1), None);
        assert_eq!(note(&mut problems, "east", Some("too large"), 1), fails("too large"));
        for s in 2..9 {
            assert_eq!(note(&mut problems, "west", None, s), None);
            assert_eq!(note(&mut problems, "east", Some("too large"), s), None);
        }
        assert_eq!(problems.shown().get(&update()).map(String::as_str), Some("too large"));
        assert_eq!(note(&mut problems, "west", Some("refused"), 9), None, "one reason is enough");
        assert_eq!(note(&mut problems, "east", None, 9), fails("refused"));
        assert_eq!(note(&mut problems, "west", None, 9), Some(Change::Works));
        assert!(problems.shown().is_empty() && problems.failing.is_empty());
    }

    #[test]
    fn what_nobody_repeats_counts_no_more() {
        let mut problems = OpenProblems::default();
        note(&mut problems, "east", Some("timed out"), 1);
        note(&mut problems, "west", Some("timed out"), 10);
        assert_eq!(problems.expire(at(21)), [], "west fails for the same reason");
        assert_eq!(problems.expire(at(29)), []);
        assert_eq!(problems.expire(at(30)), [(update(), Change::Works)]);
        // A watch is opened again and again, however long the pauses are.
        note(&mut problems, "", Some("forbidden"), 30);
        assert_eq!(problems.expire(at(900)), []);
        assert_eq!(note(&mut problems, "", None, 901), Some(Change::Works));
    }

    #[test]
    fn what_fails_has_its_bound() {
        let mut problems = OpenProblems::default();
        for n in 0..1_000 {
            note(&mut problems, &format!("c{n}"), Some("no"), 1);
        }
        assert_eq!(problems.failing[&update()].len(), MAX_OBJECTS);
    }
}
