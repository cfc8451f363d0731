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

/// Whether an object can have that name: lower-case letters, digits, `-` and `.`, at most 253 of them, with a letter or a
/// digit at either end. Another name may make a request of another object, or none.
///
/// ```
/// use leasehold_sdk::is_object_name;
///
/// assert!(is_object_name("web-1.example"));
/// assert!(["", "web ", "web#x", "Web", "-web"].iter().all(|name| !is_object_name(name)));
/// ```
pub fn is_object_name(name: &str) -> bool {
    let is_end = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = name.as_bytes();
    name.len() <= 253
        && bytes.iter().all(|c| is_end(c) || b"-.".contains(c))
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
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
