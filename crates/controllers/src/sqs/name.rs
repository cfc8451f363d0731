//! The name of a queue, and the tag that says that it is ours. Pure.

use sdk::label_value;

/// The longest name of a queue, `.fifo` included
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>).
pub(super) const MAX_NAME: usize = 80;
/// The end of every FIFO queue's name, and of no other's.
pub(super) const FIFO_SUFFIX: &str = ".fifo";
/// The tag that says whose a queue is.
pub(super) const OWNER_TAG: &str = "leasehold.dev/owner";
/// The longest value of a tag, in characters
/// (<https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html>).
pub(super) const MAX_TAG_VALUE: usize = 256;
/// The longest key of a tag, likewise.
pub(super) const MAX_TAG_KEY: usize = 128;

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
    /// It is the name of a FIFO queue, and the spec asks for a standard queue.
    #[error(
        "the queue's name {name:?} ends in .fifo: set spec.fifo, or give another spec.queueName"
    )]
    NotFifo {
        /// The name.
        name: String,
    },
}

/// The queue's name: the `given` one, or one from namespace and name.
///
/// # Errors
/// If SQS would refuse it.
pub(super) fn queue_name(
    given: Option<&str>,
    namespace: &str,
    name: &str,
    fifo: bool,
) -> Result<String, BadName> {
    // Objects' names may have dots, queues' names may not.
    let name = given.map_or_else(|| format!("{namespace}-{name}").replace('.', "-"), str::to_owned);
    let stem = match name.strip_suffix(FIFO_SUFFIX) {
        Some(_) if !fifo => return Err(BadName::NotFifo { name }),
        Some(stem) => stem.to_owned(),
        None => name,
    };
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

/// The value of the owner tag: it names one incarnation of one object of one cluster. An object's
/// name that is too long for a tag is shortened and told apart by its hash.
pub(super) fn owner(cluster: &str, namespace: &str, name: &str, uid: &str) -> String {
    let whole = format!("{cluster}/{namespace}/{name}/{uid}");
    if whole.len() <= MAX_TAG_VALUE {
        return whole;
    }
    format!("{}/{namespace}/{}/{uid}", label_value(cluster), label_value(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_sqs() {
        let long = "a".repeat(76);
        for (given, fifo, expect) in [
            (None, false, Ok("shop-orders-v1")),
            (None, true, Ok("shop-orders-v1.fifo")),
            (Some("Orders_2"), false, Ok("Orders_2")),
            (Some("orders.fifo"), true, Ok("orders.fifo")),
            (Some("orders"), true, Ok("orders.fifo")),
            (Some("orders.fifo"), false, Err("ends in .fifo: set spec.fifo")),
            (Some("orders.new"), false, Err("character '.'")),
            (Some("ordärs"), true, Err("character 'ä'")),
            (Some(&*long), true, Err("has 81 characters and SQS allows 80")),
            (Some(&*long), false, Ok(&*long)),
        ] {
            let found = queue_name(given, "shop", "orders.v1", fifo);
            match (found.as_deref(), expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found, expect),
                (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
                (found, expect) => panic!("{given:?} {fifo}: {found:?}, not {expect:?}"),
            }
        }
    }

    #[test]
    fn an_owner_fits_into_a_tag_and_is_one_incarnation() {
        assert_eq!(owner("east", "shop", "orders", "u-1"), "east/shop/orders/u-1");
        let uid = "0123456789abcdef0123456789abcdef0123";
        let [one, two] = ["a", "b"].map(|end| {
            owner(&"c".repeat(63), &"n".repeat(63), &format!("{}{end}", "x".repeat(252)), uid)
        });
        assert!(one.len() <= MAX_TAG_VALUE && one != two, "{one}");
    }
}
