//! Label values from object names: a name may have 253 characters, a label value 63.

use model::uid_hash;

/// The longest label value, and the longest name part of an annotation key, in bytes.
const MAX_BYTES: usize = 63;
/// A hash in hexadecimal and the dash before it.
const SUFFIX_BYTES: usize = 17;

/// An object's name as a label value: itself if it fits, else shortened and made unique by its hash.
///
/// ```
/// use leasehold_sdk::label_value;
///
/// assert_eq!(label_value("hello-world"), "hello-world");
/// let long = label_value(&"a".repeat(200));
/// assert_eq!(long.len(), 63);
/// assert_ne!(long, label_value(&"a".repeat(201)));
/// ```
pub fn label_value(name: &str) -> String {
    if name.len() <= MAX_BYTES {
        return name.to_owned();
    }
    let head: String = name.chars().take(MAX_BYTES - SUFFIX_BYTES).collect();
    format!("{head}-{:016x}", uid_hash(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_stay_apart() {
        assert_eq!(label_value("tdset-hello-world"), "tdset-hello-world");
        let (one, two) = (label_value(&"a".repeat(200)), label_value(&"a".repeat(201)));
        assert_eq!((one.len(), two.len()), (MAX_BYTES, MAX_BYTES));
        assert_ne!(one, two);
    }
}
