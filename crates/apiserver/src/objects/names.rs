//! Names, label keys and label values: the rules, and the texts that explain them.

use serde_json::Value;

use super::deletion::{FOREGROUND, ORPHAN};
use crate::kinds::{DEFINITIONS, KindInfo};
use crate::status::{FieldError, FieldErrorKind};

/// Longest object name.
pub const MAX_NAME: usize = 253;
/// Longest label, and longest name of kinds that are DNS labels.
pub const MAX_LABEL: usize = 63;
/// The most bytes of all annotations of an object.
pub const MAX_ANNOTATIONS: usize = 256 << 10;

/// The rule for label keys.
pub const QUALIFIED_NAME_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
/// The rule for label values.
pub const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_1035_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// Whether a text is made of `ends` and `between`, with one of `ends` first and last.
fn is_word(text: &str, ends: fn(char) -> bool, between: &str) -> bool {
    text.starts_with(ends)
        && text.ends_with(ends)
        && text.chars().all(|c| ends(c) || between.contains(c))
}

fn is_qualified(text: &str) -> bool {
    is_word(text, |c| c.is_ascii_alphanumeric(), "-_.")
}

fn is_dns_label(text: &str) -> bool {
    is_word(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-")
}

fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_dns_1035(text: &str) -> bool {
    is_dns_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Whether a text can be the name of a namespace.
pub fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_dns_label(text)
}

/// Whether a text can be the name of most objects.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_NAME && is_dns_subdomain(text)
}

/// Whether a text can be the name part of a label key.
pub fn is_qualified_part(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_qualified(text)
}

/// Whether a text can be a label value.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified_part(text)
}

/// What is wrong with an object's name, by its kind's rule.
pub fn check_name(kind: &KindInfo, path: &str, name: &str) -> Vec<FieldError> {
    type Rule = (&'static str, fn(&str) -> bool, usize);
    let (rule, fits, longest): Rule = match (kind.group.as_str(), kind.plural.as_str()) {
        ("rbac.authorization.k8s.io", _) | ("", "events") => return check_path_segment(path, name),
        ("", "namespaces") => (LABEL_RULE, is_dns_label, MAX_LABEL),
        ("", "services") => (DNS_1035_RULE, is_dns_1035, MAX_LABEL),
        _ => (SUBDOMAIN_RULE, is_dns_subdomain, MAX_NAME),
    };
    let mut errors = Vec::new();
    if name.len() > longest {
        let detail = format!("must be no more than {longest} bytes");
        errors.push(FieldError::invalid(path, name, detail));
    }
    if !fits(name) {
        errors.push(FieldError::invalid(path, name, rule));
    }
    errors
}

fn check_path_segment(path: &str, name: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name == "." || name == ".." {
        errors.push(FieldError::invalid(path, name, format!("may not be '{name}'")));
    }
    for part in ["/", "%"] {
        if name.contains(part) {
            errors.push(FieldError::invalid(path, name, format!("may not contain '{part}'")));
        }
    }
    errors
}

/// What is wrong with the key of a label or annotation, or with the name of a finalizer or of who
/// reports an Event.
pub fn check_key(path: &str, key: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            let rule = QUALIFIED_NAME_RULE.trim_start_matches("name part ");
            let detail = format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            );
            return vec![FieldError::invalid(path, key, detail)];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push(FieldError::invalid(path, key, "prefix part must be non-empty"));
            } else if !is_dns_subdomain(prefix) {
                errors.push(FieldError::invalid(
                    path,
                    key,
                    format!("prefix part {SUBDOMAIN_RULE}"),
                ));
            }
            name
        }
    };
    if name.is_empty() {
        errors.push(FieldError::invalid(path, key, "name part must be non-empty"));
    } else if name.len() > MAX_LABEL {
        let detail = format!("name part must be no more than {MAX_LABEL} bytes");
        errors.push(FieldError::invalid(path, key, detail));
    }
    if !is_qualified(name) {
        errors.push(FieldError::invalid(path, key, QUALIFIED_NAME_RULE));
    }
    errors
}

/// What is wrong with a map of labels.
pub fn check_labels(path: &str, labels: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.extend(check_key(path, key));
        let value = value.as_str().unwrap_or_default();
        if value.len() > MAX_LABEL {
            let detail = format!("must be no more than {MAX_LABEL} bytes");
            errors.push(FieldError::invalid(path, value, detail));
        }
        if !value.is_empty() && !is_qualified(value) {
            errors.push(FieldError::invalid(path, value, LABEL_VALUE_RULE));
        }
    }
    errors
}

/// What is wrong with a map of annotations.
pub fn check_annotations(path: &str, annotations: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        errors.extend(check_key(path, &key.to_lowercase()));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_ANNOTATIONS {
        let detail = format!("may not be more than {MAX_ANNOTATIONS} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, path, Value::Null, detail));
    }
    errors
}

/// Finalizers that objects of most built-in kinds may have without a domain.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", ORPHAN, FOREGROUND];

/// Groups whose finalizers may have any name that a label key may have.
const FREE_GROUPS: &[&str] =
    &["admissionregistration.k8s.io", "coordination.k8s.io", "node.k8s.io"];

/// What is wrong with a list of finalizers.
pub fn check_finalizers(kind: &KindInfo, path: &str, finalizers: &Value) -> Vec<FieldError> {
    let names: Vec<&str> =
        finalizers.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut errors: Vec<FieldError> = names.iter().flat_map(|name| check_key(path, name)).collect();
    // Real servers check these kinds by rules that know nothing of built-in kinds.
    let is_free = kind.custom
        || kind.plural == DEFINITIONS
        || kind.is("", "events")
        || FREE_GROUPS.contains(&&*kind.group);
    for (at, name) in names.iter().enumerate() {
        if !is_free && !name.contains('/') && !STANDARD_FINALIZERS.contains(name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("{path}[{at}]"), *name, detail));
        }
    }
    if [FOREGROUND, ORPHAN].iter().all(|name| names.contains(name)) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.push(FieldError::invalid(path, finalizers.clone(), detail));
    }
    errors
}

/// How many characters of a `generateName` are kept.
const MAX_PREFIX: usize = 58;
/// The letters and digits of generated names: no vowels, so that no words appear.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters appended to a `generateName`.
const SUFFIX: usize = 5;

/// A name made from a prefix.
pub fn generate(prefix: &str, rng: &mut fastrand::Rng) -> String {
    let mut name: String = prefix.chars().take(MAX_PREFIX).collect();
    name.extend((0..SUFFIX).map(|_| char::from(ALPHABET[rng.usize(..ALPHABET.len())])));
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    fn errors(plural: &str, name: &str) -> usize {
        let kind = kinds::builtin().into_iter().find(|k| k.plural == plural).unwrap();
        check_name(&kind, "metadata.name", name).len()
    }

    #[test]
    fn each_kind_has_its_rule_for_names() {
        let cases = [
            ("configmaps", "a.b-c", 0),
            ("configmaps", "A", 1),
            ("configmaps", "-a", 1),
            ("configmaps", "a-", 1),
            ("configmaps", "a..b", 1),
            ("configmaps", "a\n", 1),
            ("namespaces", "a.b", 1),
            ("services", "1a", 1),
            ("clusterroles", "system:node", 0),
            ("clusterroles", "a/b", 1),
        ];
        for (plural, name, expected) in cases {
            assert_eq!(errors(plural, name), expected, "{plural} {name}");
        }
        assert_eq!(errors("configmaps", &"a".repeat(254)), 1);
    }

    #[test]
    fn labels_are_qualified_names() {
        let good = json!({"app": "web", "example.com/x": "", "a_b.c": "1"});
        assert!(check_labels("metadata.labels", &good).is_empty());
        for bad in [json!({"": "x"}), json!({"/x": "y"}), json!({"a": "b c"}), json!({"a b": "c"})]
        {
            assert!(!check_labels("metadata.labels", &bad).is_empty(), "{bad}");
        }
    }

    #[test]
    fn finalizers_are_qualified_names() {
        let path = "metadata.finalizers";
        let kinds = kinds::builtin();
        let texts = |plural: &str, finalizers: Value| -> Vec<String> {
            let kind = kinds.iter().find(|kind| kind.plural == plural).unwrap();
            let errors = check_finalizers(kind, path, &finalizers);
            errors.iter().map(ToString::to_string).collect()
        };
        assert!(texts("leases", json!(["kubernetes", "orphan", "example.com/a.B"])).is_empty());
        assert_eq!(
            texts("leases", json!(["a/b/c"])),
            ["metadata.finalizers: Invalid value: \"a/b/c\": a valid label key must consist of \
                 alphanumeric characters, '-', '_' or '.', and must start and end with an \
                 alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used \
                 for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional \
                 DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
        );
        assert_eq!(texts("leases", json!(["/a"])).len(), 1);
        assert_eq!(
            texts("leases", json!(["orphan", "foregroundDeletion"])),
            ["metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: \
                 finalizer orphan and foregroundDeletion cannot be both set"]
        );
        assert_eq!(
            texts("services", json!(["a/b", "hold"])),
            ["metadata.finalizers[1]: Invalid value: \"hold\": name is neither a standard \
                 finalizer name nor is it fully qualified"]
        );
        for free in ["leases", DEFINITIONS] {
            assert_eq!(texts(free, json!(["hold"])), [""; 0]);
        }
    }

    #[test]
    fn generated_names_fit_and_differ() {
        let mut rng = fastrand::Rng::with_seed(1);
        let long = "x".repeat(80);
        let (a, b) = (generate(&long, &mut rng), generate(&long, &mut rng));
        assert_eq!(a.len(), MAX_LABEL);
        assert_ne!(a, b);
    }
}
