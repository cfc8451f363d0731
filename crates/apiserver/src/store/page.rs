//! Continue tokens: where a list stopped, and the revision all of its pages share.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::Key;

const VERSION: &str = "meta.k8s.io/v1";

/// A place in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continue {
    /// The revision of the list; `None` continues with the newest.
    pub revision: Option<u64>,
    /// The last object that was delivered.
    pub after: Key,
}

#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Continue {
    /// The opaque form.
    pub fn encode(&self, namespaced_list: bool) -> String {
        let start = if namespaced_list || self.after.namespace.is_empty() {
            format!("{}\0", self.after.name)
        } else {
            format!("{}/{}\0", self.after.namespace, self.after.name)
        };
        let rv = self.revision.and_then(|rv| i64::try_from(rv).ok()).unwrap_or(-1);
        let token = Token { v: VERSION.into(), rv, start };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    /// Parses a token, for a list of the given namespace.
    ///
    /// # Errors
    /// Says in the real server's words why the token is unusable.
    pub fn decode(text: &str, namespace: Option<&str>) -> Result<Self, String> {
        let data = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| "continue key is not valid: illegal base64 data".to_owned())?;
        let token: Token = serde_json::from_slice(&data)
            .map_err(|_| "continue key is not valid: not a token of this server".to_owned())?;
        if token.v != VERSION {
            return Err(format!(
                "continue key is not valid: server does not recognize this encoded version \"{}\"",
                token.v
            ));
        }
        let revision = match token.rv {
            0 => return Err("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)".into()),
            rv => u64::try_from(rv).ok(),
        };
        let Some(start) = token.start.strip_suffix('\0').filter(|s| !s.is_empty()) else {
            return Err(
                "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"
                    .into(),
            );
        };
        let (ns, name) = match namespace {
            Some(ns) => (ns, start),
            None => start.split_once('/').unwrap_or(("", start)),
        };
        if name.contains('/') || name.contains("..") {
            return Err(format!("continue key is not valid: {}", token.start));
        }
        Ok(Self { revision, after: Key { namespace: ns.into(), name: name.into() } })
    }
}

/// The key after which the list continues.
pub(super) fn start(namespace: Option<&str>, after: Option<&Key>) -> Key {
    match after {
        Some(key) => key.clone(),
        None => Key { namespace: namespace.unwrap_or_default().into(), name: String::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        Key { namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn a_token_survives_its_encoding() {
        let cases = [
            (Some(7), key("ns", "a"), Some("ns")),
            (Some(7), key("ns", "a"), None),
            (None, key("", "a"), None),
        ];
        for (revision, after, namespace) in cases {
            let token = Continue { revision, after };
            let text = token.encode(namespace.is_some());
            assert_eq!(Continue::decode(&text, namespace), Ok(token));
        }
    }

    #[test]
    fn a_foreign_token_is_refused() {
        for text in ["%%%", "e30", ""] {
            assert!(Continue::decode(text, None).is_err(), "{text:?}");
        }
    }
}
