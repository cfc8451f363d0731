//! What an object may take once it is decoded, by what its text is made of: `{}` is a text of two bytes and a container
//! of two kilobytes.

use super::brackets::{self, Parts};

/// The most values of an object: each takes up to 64 bytes and more when it is decoded, however short its text. An
/// object of 1.5 MiB has so many if they take six bytes each.
pub(super) const MAX_VALUES: usize = 256 << 10;
/// The most objects within one: each takes up to [`OBJECT_BYTES`] when it is decoded, 40 MB in all.
pub(super) const MAX_OBJECTS: usize = 16 << 10;
/// The most bytes of an object within another, decoded, without what it holds: those of `k8s-openapi`'s Container are
/// 2,336, and few types have more.
const OBJECT_BYTES: usize = 2400;
/// Bytes a decoded value is taken to have for each byte of JSON.
const TEXT_BYTES: usize = 4;
/// What texts up to this length, in bytes, are made of is not counted: it is little enough.
const LITTLE_BYTES: usize = 2 * MAX_OBJECTS;

/// An object that would take far more than its text, once it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooHeavy {
    /// It has too many values.
    #[error("an object of more than {MAX_VALUES} values is too large to cache")]
    Values,
    /// It has too many objects in it.
    #[error("an object with more than {MAX_OBJECTS} objects in it is too large to cache")]
    Objects,
}

/// Whether the text of an object may be decoded.
///
/// # Errors
/// If it would take far more than its text.
pub fn check_weight(text: &str) -> Result<(), TooHeavy> {
    check(text, &[])
}

/// The same of a text out of which these parts are cut.
pub(super) fn check(text: &str, cuts: &[(usize, usize)]) -> Result<(), TooHeavy> {
    let kept = text.len() - cuts.iter().map(|(from, to)| to - from).sum::<usize>();
    if kept <= LITTLE_BYTES {
        return Ok(());
    }
    let starts = std::iter::once(0).chain(cuts.iter().map(|(_, to)| *to));
    let ends = cuts.iter().map(|(from, _)| *from).chain([text.len()]);
    // No cut lies within a string.
    let parts = starts.zip(ends).map(|(from, to)| brackets::parts(&text.as_bytes()[from..to]));
    let sum =
        |a: Parts, b: Parts| Parts { commas: a.commas + b.commas, objects: a.objects + b.objects };
    let Parts { commas, objects } = parts.fold(Parts::default(), sum);
    if commas >= MAX_VALUES {
        Err(TooHeavy::Values)
    } else if objects > MAX_OBJECTS {
        Err(TooHeavy::Objects)
    } else {
        Ok(())
    }
}

/// The bytes that an object may take once it is decoded. An estimate, and rather too high.
pub(super) fn decoded(text: &[u8]) -> usize {
    let objects = brackets::parts(text).objects;
    (TEXT_BYTES * text.len()).max(OBJECT_BYTES * objects)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, Pod};
    use serde_json::json;

    use super::*;

    #[test]
    fn small_texts_of_large_values_weigh_what_they_take() {
        assert!(size_of::<Container>() <= OBJECT_BYTES);
        let containers = vec![json!({}); 1000];
        let text = json!({"spec": {"containers": containers}}).to_string();
        assert!(decoded(text.as_bytes()) >= 1000 * size_of::<Container>(), "{text}");
        serde_json::from_str::<Pod>(&text).expect("it is a Pod all the same");
        let text = json!({"data": {"key": "{},".repeat(1000)}}).to_string();
        assert_eq!(decoded(text.as_bytes()), (4 * text.len()).max(2 * OBJECT_BYTES));
    }
}
