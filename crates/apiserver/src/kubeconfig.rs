//! Kubeconfigs for clients of servers: one, or many in one file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What a client needs to know of one server. Cluster, user and context all have its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeconfigParts {
    /// The server's name.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// Its certificate authority as PEM.
    pub authority: String,
    /// A bearer token it accepts.
    pub token: String,
}

/// A kubeconfig with a context for each server; the first is current.
pub fn render(parts: &[KubeconfigParts]) -> String {
    let list = |entry: fn(&KubeconfigParts) -> Value| parts.iter().map(entry).collect::<Vec<_>>();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": list(|p| json!({
            "name": p.name,
            "cluster": {
                "server": p.url,
                "certificate-authority-data": STANDARD.encode(&p.authority),
            },
        })),
        "users": list(|p| json!({"name": p.name, "user": {"token": p.token}})),
        "contexts": list(|p| json!({"name": p.name, "context": {"cluster": p.name, "user": p.name}})),
        "current-context": parts.first().map(|p| &p.name),
    });
    // JSON is YAML too, which cannot fail to be written and which every client reads.
    serde_saphyr::to_string(&config).unwrap_or_else(|_| config.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_has_a_context_per_server() {
        let parts = |name: &str| KubeconfigParts {
            name: name.into(),
            url: "https://127.0.0.1:1".into(),
            authority: "pem".into(),
            token: "t".into(),
        };
        let text = render(&[parts("east"), parts("west")]);
        let config: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(config["current-context"], "east");
        assert_eq!(config["contexts"][1]["name"], "west");
        assert_eq!(config["clusters"][0]["cluster"]["certificate-authority-data"], "cGVt");
    }
}
