//! What people write that the controller reads: which annotations of a Service and which keys of the administrator's
//! ConfigMap there are, and what those may say that nothing else judges. Pure.
//!
//! What says something else is told and not guessed: `"False"` may mean what `"false"` does, and nobody knows what a
//! name with a slip in it means.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::names::OPT;

/// What the names of a Service's annotations begin with, but for that by which it opts out.
pub(super) const ANNOTATION: &str = "leasehold.dev/tunnel-";
/// Those that choose something by a text, which is judged where it is used.
const TEXTS: [&str; 5] = ["provider", "region", "size", "endpoint", SECRET];
const SECRET: &str = "token-secret";
/// The key in that Secret.
const SECRET_KEY: &str = "token-secret-key";
/// The only other that says yes or no.
const STABLE: &str = "stable-address";
/// The key of the ConfigMap about Services without a class: those that it does not claim cannot say that it is wrong.
const CLASSLESS: &str = "claimServicesWithoutClass";
/// All keys of the ConfigMap.
const KEYS: &str = "claimServicesWithoutClass clientImage clientImages clientPriorityClass clients endpoint ipv6 \
     maxHosts probe provider ratholeSha256 ratholeSha256Arm64 region size sizes stableAddress tokenSecret \
     tokenSecretKey tokenSecrets";

/// Whether each annotation of a Service that is ours says something that has a meaning. One that is empty says nothing.
///
/// # Errors
/// What one says, and what it may say.
pub(super) fn check(annotations: &BTreeMap<String, String>) -> Result<(), String> {
    let secret = annotations.get(&format!("{ANNOTATION}{SECRET}"));
    for (key, value) in annotations.iter().filter(|(_, value)| !value.is_empty()) {
        let name = key.strip_prefix(ANNOTATION);
        let fault = match name {
            None if key != OPT => continue,
            None | Some(STABLE) if is_switch(value) => continue,
            None | Some(STABLE) => format!("is {}: write \"true\" or \"false\"", shown(value)),
            Some(name) if TEXTS.contains(&name) => continue,
            Some(SECRET_KEY) if secret.is_some_and(|name| !name.is_empty()) => continue,
            Some(SECRET_KEY) => format!("is a key of no Secret: name that by {ANNOTATION}{SECRET}"),
            Some(_) => format!(
                "is not known: there are {ANNOTATION}{}, -{SECRET_KEY} and -{STABLE}",
                TEXTS.join(", -")
            ),
        };
        return Err(format!("annotation {key} {fault}"));
    }
    Ok(())
}

/// What the administrator's ConfigMap says that has no meaning and that no Tunnel tells.
pub(super) fn faults(config_map: &ConfigMap) -> Vec<String> {
    let data = config_map.data.iter().flatten();
    let faults = data.filter_map(|(key, value)| match &**key {
        CLASSLESS if value.is_empty() || is_switch(value) => None,
        CLASSLESS => Some(format!("{CLASSLESS} is {}: write \"true\" or \"false\"", shown(value))),
        known if KEYS.split(' ').any(|key| key == known) => None,
        other => Some(format!("{other} is no key of it")),
    });
    faults.collect()
}

fn is_switch(value: &str) -> bool {
    matches!(value, "true" | "false")
}

/// As much of a value as a message has room for.
pub(super) fn shown(value: &str) -> String {
    format!("{:?}", value.chars().take(64).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_annotation_says_what_is_known_or_is_told() {
        for (key, value, expect) in [
            ("", "true", None),
            ("", "", None),
            (
                "",
                "False",
                Some("annotation leasehold.dev/tunnel is \"False\": write \"true\" or \"false\""),
            ),
            ("-stable-address", "false", None),
            ("-stable-address", "", None),
            ("-stable-address", "True", Some("-stable-address is \"True\": write ")),
            ("-stable-address", "true ", Some("-stable-address is \"true \": write ")),
            ("-stable-address", "1", Some("-stable-address is \"1\": write ")),
            ("-region", "anywhere", None),
            (
                "-regoin",
                "fra1",
                Some("-regoin is not known: there are leasehold.dev/tunnel-provider, -region, "),
            ),
            ("-token-secret", "mine", None),
            (
                "-token-secret-key",
                "password",
                Some("is a key of no Secret: name that by leasehold.dev/tunnel-token-secret"),
            ),
            ("-token-secret-key", "", None),
            // Of others.
            ("s", "yes", None),
            (".example.com/x", "yes", None),
        ] {
            let annotations =
                BTreeMap::from([(format!("leasehold.dev/tunnel{key}"), value.to_owned())]);
            let found = check(&annotations).err();
            let is_told = |told: &String| expect.is_some_and(|expect| told.contains(expect));
            assert!(found.as_ref().map_or(expect.is_none(), is_told), "{key}={value}: {found:?}");
        }
        let both = [("token-secret", "mine"), ("token-secret-key", "password")];
        let both = both.map(|(name, value)| (format!("{ANNOTATION}{name}"), value.to_owned()));
        assert_eq!(check(&BTreeMap::from(both)), Ok(()));
    }

    #[test]
    fn what_no_tunnel_tells_of_the_defaults_is_found() {
        for (key, value, expect) in [
            ("claimServicesWithoutClass", "true", None),
            ("claimServicesWithoutClass", "", None),
            (
                "claimServicesWithoutClass",
                "yes",
                Some("claimServicesWithoutClass is \"yes\": write \"true\" or \"false\""),
            ),
            // A Tunnel tells what it may say.
            ("maxHosts", "many", None),
            ("stableAdress", "true", Some("stableAdress is no key of it")),
        ] {
            let map = json!({"metadata": {}, "data": {key: value}});
            let found = faults(&serde_json::from_value(map).unwrap());
            assert_eq!(found, expect.into_iter().collect::<Vec<_>>(), "{key}: {value}");
        }
    }
}
