//! The name of a queue. Pure.

use super::owner::Place;
use super::schedule::mixed;

/// The longest name of a queue, `.fifo` included
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>).
pub(super) const MAX_NAME: usize = 80;
/// The end of every FIFO queue's name, and of no other's.
pub(super) const FIFO_SUFFIX: &str = ".fifo";
/// The digits by which default names of different objects differ.
const DIGITS: usize = 16;

/// A name that SQS would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadName {
    /// It is too long.
    #[error(
        "the queue's name {name:?} has {length} characters and SQS allows {MAX_NAME}: \
         give a shorter spec.queueName"
    )]
    Long {
        /// The name.
        name: String,
        /// Its length.
        length: usize,
    },
    /// It has other characters than SQS allows.
    #[error(
        "the queue's name {name:?} has the character {character:?}: spec.queueName may have \
         letters, digits, '-' and '_'"
    )]
    Character {
        /// The name.
        name: String,
        /// The first wrong character.
        character: char,
    },
    /// It is empty.
    #[error(
        "the queue's name is empty: give spec.queueName, or leave it out for a name of its own"
    )]
    Empty,
    /// It is the name of a FIFO queue, and the spec asks for a standard queue.
    #[error(
        "the queue's name {name:?} ends in .fifo: set spec.fifo, or give another spec.queueName"
    )]
    NotFifo {
        /// The name.
        name: String,
    },
}

/// The queue's name: the `given` one, or the default.
///
/// # Errors
/// If SQS would refuse it.
pub(super) fn queue_name(
    given: Option<&str>,
    place: &Place<'_>,
    fifo: bool,
) -> Result<String, BadName> {
    let Some(name) = given else {
        let suffix = if fifo { FIFO_SUFFIX } else { "" };
        return Ok(format!("{}{suffix}", default_stem(place)));
    };
    let name = name.to_owned();
    let stem = match name.strip_suffix(FIFO_SUFFIX) {
        Some(_) if !fifo => return Err(BadName::NotFifo { name }),
        Some(stem) => stem.to_owned(),
        None => name,
    };
    if stem.is_empty() {
        return Err(BadName::Empty);
    }
    let name = if fifo { format!("{stem}{FIFO_SUFFIX}") } else { stem.clone() };
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if let Some(character) = stem.chars().find(|c| !allowed(*c)) {
        return Err(BadName::Character { name, character });
    }
    if name.len() > MAX_NAME {
        return Err(BadName::Long { length: name.len(), name });
    }
    Ok(name)
}

/// Namespace and name, for people, and a hash of cluster, namespace and name, so that two objects never
/// want one queue: neither `a-b`/`c` and `a`/`b-c`, nor objects of two clusters in one account.
fn default_stem(place: &Place<'_>) -> String {
    // Objects' names may have dots, queues' names may not.
    let mut head = format!("{}-{}", place.namespace, place.name).replace('.', "-");
    head.truncate(MAX_NAME - FIFO_SUFFIX.len() - DIGITS - 1);
    let whole = format!("{}/{}/{}", place.cluster(), place.namespace, place.name);
    format!("{head}-{:016x}", mixed(&whole, 0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::owner::tests::place;
    use super::*;

    #[test]
    fn names_follow_the_rules_of_sqs() {
        let long = "a".repeat(76);
        for (given, fifo, expect) in [
            ("Orders_2", false, Ok("Orders_2")),
            ("orders.fifo", true, Ok("orders.fifo")),
            ("orders", true, Ok("orders.fifo")),
            ("orders.fifo", false, Err("ends in .fifo: set spec.fifo")),
            ("orders.new", false, Err("character '.'")),
            ("", false, Err("is empty")),
            (".fifo", true, Err("is empty")),
            ("ordärs", true, Err("character 'ä'")),
            (&*long, true, Err("has 81 characters and SQS allows 80")),
            (&*long, false, Ok(&*long)),
        ] {
            let found = queue_name(Some(given), &place("u-east", "shop", "orders"), fifo);
            match (found.as_deref(), expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found, expect),
                (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
                (found, expect) => panic!("{given:?} {fifo}: {found:?}, not {expect:?}"),
            }
        }
    }

    #[test]
    fn default_names_of_different_objects_differ_and_sqs_takes_them() {
        let (long, longer) = ("x".repeat(252), "x".repeat(253));
        let names: BTreeSet<_> = [
            ("u-east", "a-b", "c"),
            ("u-east", "a", "b-c"),
            ("u-west", "a", "b-c"),
            ("u-east", "a", "b.c"),
            ("u-east", "a", &*long),
            ("u-east", "a", &*longer),
        ]
        .into_iter()
        .flat_map(|(cluster, namespace, name)| {
            [false, true].map(|fifo| queue_name(None, &place(cluster, namespace, name), fifo))
        })
        .map(Result::unwrap)
        .collect();
        assert_eq!(names.len(), 12, "{names:#?}");
        for name in &names {
            let stem = name.strip_suffix(FIFO_SUFFIX).unwrap_or(name);
            assert!(name.len() <= MAX_NAME && name.starts_with("a-"), "{name}");
            assert!(stem.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{name}");
        }
    }
}
