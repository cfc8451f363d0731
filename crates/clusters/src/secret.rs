//! A Secret that names a cluster, as a [`Source`]: pure.
//!
//! | Secret | recognised by | kubeconfig | the cluster's name |
//! |---|---|---|---|
//! | Leasehold's own, or any other | no mark of the others | key `kubeconfig`, or the only key | label `leasehold.dev/cluster`, or else the Secret's name |
//! | of [Cluster API](https://cluster-api.sigs.k8s.io/developer/core/controllers/cluster#secrets) | type `cluster.x-k8s.io/secret` and a name that ends in `-kubeconfig` | key `value` | label `cluster.x-k8s.io/cluster-name` |
//! | of [Argo CD](https://argo-cd.readthedocs.io/en/stable/operator-manual/declarative-setup/#clusters) | label `argocd.argoproj.io/secret-type: cluster` | made of `server` and `config` | key `name` |
//!
//! Its author is trusted no more than that of a folder ([`Trust::stranger`](crate::Trust::stranger)), and
//! names no files at all: there are none beside a Secret. An annotation asks for a budget of the cluster (`budget`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::config::Kubeconfig;
use model::cluster_name;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::budget::asked;
use crate::error::Unusable;
use crate::file;
use crate::kubeconfig::{self, Contexts, Draft, Origin};
use crate::provider::Source;
use crate::terms::Terms;

/// The label of our own Secrets. Its value is the cluster's name; empty for the Secret's.
pub const LABEL: &str = "leasehold.dev/cluster";
/// The most bytes of a kubeconfig in a Secret. One takes some five thousand, with a chain of certificates and a
/// token of Kerberos's size some fifty thousand; parsed, it may take sixteen times as much.
const MAX_KUBECONFIG_BYTES: usize = 128 << 10;
const CLUSTER_API_TYPE: &str = "cluster.x-k8s.io/secret";
const CLUSTER_API_NAME: &str = "cluster.x-k8s.io/cluster-name";
const ARGO_CD: &str = "argocd.argoproj.io/secret-type";

/// The cluster that a Secret names; `None` if it is a Secret of another use, such as Cluster API's for a
/// cluster's certificate authority.
pub(crate) fn source(secret: &Secret, terms: &Terms) -> Option<Source> {
    let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
    let data = Data { secret, path: PathBuf::from(format!("Secret {namespace}/{name}")) };
    let label = |key: &str| secret.labels().get(key).map(String::as_str).filter(|v| !v.is_empty());
    let (called, read) = if label(ARGO_CD) == Some("cluster") {
        (data.text("name"), data.argo_cd())
    } else if secret.type_.as_deref() == Some(CLUSTER_API_TYPE) {
        name.strip_suffix("-kubeconfig")?;
        (label(CLUSTER_API_NAME), data.kubeconfig("value"))
    } else {
        (label(LABEL), data.kubeconfig("kubeconfig"))
    };
    let cluster = cluster_name(terms.prefix.as_ref(), called.unwrap_or(&name));
    let described: Arc<str> = data.path.display().to_string().into();
    let (path, prefix) = (data.path.clone(), terms.prefix.clone());
    let origin = Origin { path, prefix, trust: terms.trust() };
    let draft = read.and_then(|config| data.draft(&origin, config)).unwrap_or_else(|error| {
        Draft::down(cluster.clone(), Arc::clone(&described), Arc::new(error))
    });
    Some(Source { name: cluster, origin: described, asked: asked(secret), ..file::source(draft) })
}

/// The contents of a Secret.
struct Data<'a> {
    secret: &'a Secret,
    /// What it is called in errors, in the place of a kubeconfig's path.
    path: PathBuf,
}

impl<'a> Data<'a> {
    fn broken(&self, problem: impl Into<String>) -> Unusable {
        Unusable::Parse { path: self.path.clone(), problem: problem.into() }
    }

    fn check_size(&self, bytes: usize) -> Result<(), Unusable> {
        let (path, limit_bytes) = (self.path.clone(), MAX_KUBECONFIG_BYTES as u64);
        if bytes > MAX_KUBECONFIG_BYTES {
            return Err(Unusable::TooLarge { path, limit_bytes });
        }
        Ok(())
    }

    fn get(&self, key: &str) -> Option<&'a [u8]> {
        Some(self.secret.data.as_ref()?.get(key)?.0.as_slice())
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        let text = std::str::from_utf8(self.get(key)?).ok()?.trim();
        (!text.is_empty()).then_some(text)
    }

    /// The kubeconfig under `key`, or under the only key.
    fn kubeconfig(&self, key: &str) -> Result<Kubeconfig, Unusable> {
        let only = || {
            let mut values = self.secret.data.iter().flat_map(BTreeMap::values);
            let first = values.next().map(|value| value.0.as_slice());
            first.filter(|_| values.next().is_none())
        };
        let bytes = self.get(key).or_else(only);
        let bytes = bytes.ok_or_else(|| self.broken(format!("it has no key {key}")))?;
        self.check_size(bytes.len())?;
        kubeconfig::parse(&self.path, bytes)
    }

    /// The context that counts: the current one, or the only one.
    fn draft(&self, origin: &Origin, mut config: Kubeconfig) -> Result<Draft, Unusable> {
        if let (None, [only]) = (&config.current_context, &config.contexts[..]) {
            config.current_context = Some(only.name.clone());
        }
        let mut drafts = kubeconfig::drafts(origin, &config, &Contexts::Current);
        let draft = drafts.pop().ok_or_else(|| self.broken("it has no context"))?;
        match draft.references.first() {
            Some(reference) => Err(self.broken(format!(
                "it names a file ({}), and there are none beside a Secret: embed what it holds",
                reference.field
            ))),
            None => Ok(draft),
        }
    }

    /// A kubeconfig that says what a Secret of Argo CD says.
    fn argo_cd(&self) -> Result<Kubeconfig, Unusable> {
        let server = self.text("server").ok_or_else(|| self.broken("it has no key server"))?;
        let config = self.text("config").unwrap_or("{}");
        self.check_size(config.len() + server.len())?;
        let config: ArgoCd = serde_json::from_str(config).map_err(|error| {
            // The library's message may repeat a token.
            let (line, column) = (error.line(), error.column());
            self.broken(format!("its config is not Argo CD's (line {line}, column {column})"))
        })?;
        if config.aws_auth_config.is_some() {
            return Err(self.broken(
                "its awsAuthConfig needs a program of Argo CD: give it a bearerToken instead",
            ));
        }
        serde_json::from_value(config.kubeconfig(server))
            .map_err(|_| self.broken("its config makes no kubeconfig"))
    }
}

/// The `config` of a Secret of Argo CD. What it may hold beside this needs programs of Argo CD's own.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ArgoCd {
    username: Option<String>,
    password: Option<String>,
    bearer_token: Option<String>,
    tls_client_config: ArgoCdTls,
    aws_auth_config: Option<Value>,
    exec_provider_config: Option<ArgoCdProgram>,
}

/// Certificates and keys in base64, as in a kubeconfig.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ArgoCdTls {
    insecure: bool,
    server_name: Option<String>,
    ca_data: Option<String>,
    cert_data: Option<String>,
    key_data: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ArgoCdProgram {
    command: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    api_version: String,
}

impl ArgoCd {
    /// The kubeconfig for `server`.
    fn kubeconfig(self, server: &str) -> Value {
        let ArgoCdTls { insecure, server_name, ca_data, cert_data, key_data } =
            self.tls_client_config;
        let program = self.exec_provider_config.map(|program| {
            let pair = |(name, value): (String, String)| json!({"name": name, "value": value});
            let env: Vec<_> = program.env.into_iter().map(pair).collect();
            json!({"command": program.command, "args": program.args, "env": env,
                "apiVersion": program.api_version, "interactiveMode": "Never"})
        });
        json!({
            "clusters": [{"name": "c", "cluster": {
                "server": server, "insecure-skip-tls-verify": insecure.then_some(true),
                "tls-server-name": server_name, "certificate-authority-data": ca_data,
            }}],
            "users": [{"name": "u", "user": {
                "username": self.username, "password": self.password, "token": self.bearer_token,
                "client-certificate-data": cert_data, "client-key-data": key_data, "exec": program,
            }}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::risk::Risk;

    const KUBECONFIG: &str = "clusters: [{name: c, cluster: {server: 'https://east:6443'}}]\n\
        users: [{name: u, user: {token: sesame}}]\n\
        contexts: [{name: east, context: {cluster: c, user: u}}]\n";

    fn secret(kind: &str, labels: Value, data: &[(&str, &str)]) -> Secret {
        let data: BTreeMap<_, _> = data.iter().copied().collect();
        let mut secret: Secret = serde_json::from_value(json!({
            "metadata": {"namespace": "fleet", "name": "east-kubeconfig", "labels": labels},
            "type": kind,
        }))
        .unwrap();
        let bytes = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
        secret.data = Some(data.into_iter().map(|(k, v)| (k.to_owned(), bytes(v))).collect());
        secret
    }

    #[track_caller]
    fn check(secret: &Secret, expect: Option<(&str, &str)>) {
        let source = source(secret, &Terms::default());
        let found = source.map(|source| {
            let reason = source.access.map_or_else(|error| error.to_string(), |_| "ok".to_owned());
            assert!(!reason.contains("sesame"), "{reason}");
            (source.name.to_string(), reason)
        });
        let found = found.as_ref().map(|(name, reason)| (name.as_str(), reason.as_str()));
        assert_eq!(found, expect);
    }

    #[test]
    fn each_form_gives_a_cluster_with_its_name() {
        let own = |labels, data: &[_]| secret("Opaque", labels, data);
        check(
            &own(json!({LABEL: ""}), &[("kubeconfig", KUBECONFIG)]),
            Some(("east-kubeconfig", "ok")),
        );
        check(&own(json!({LABEL: "east"}), &[("any", KUBECONFIG)]), Some(("east", "ok")));
        let labels = json!({CLUSTER_API_NAME: "prod"});
        let of_api = secret(CLUSTER_API_TYPE, labels.clone(), &[("value", KUBECONFIG)]);
        check(&of_api, Some(("prod", "ok")));
        let mut authority = secret(CLUSTER_API_TYPE, labels, &[("tls.key", "sesame")]);
        authority.metadata.name = Some("prod-ca".into());
        check(&authority, None);

        let config = r#"{"bearerToken": "sesame", "tlsClientConfig": {"caData": "YQ=="}}"#;
        let data = [("name", "west"), ("server", "https://west"), ("config", config)];
        check(&own(json!({ARGO_CD: "cluster"}), &data), Some(("west", "ok")));
    }

    #[test]
    fn what_cannot_be_used_is_a_cluster_that_is_down() {
        fn of(labels: Value, data: &[(&str, &str)], expect: &str) {
            let source = source(&secret("Opaque", labels, data), &Terms::default());
            let error = source.unwrap().access.unwrap_err().to_string();
            assert!(error.contains(expect) && !error.contains("sesame"), "{error}");
            assert!(error.contains("Secret fleet/east-kubeconfig"), "{error}");
        }
        let ours = || json!({LABEL: "east"});
        of(ours(), &[], "no key kubeconfig");
        of(ours(), &[("a", KUBECONFIG), ("b", "")], "no key kubeconfig");
        of(ours(), &[("kubeconfig", "token: [sesame")], "is not a kubeconfig");
        for (field, line) in [
            ("tokenFile", "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"),
            ("client-key", "client-key: k.pem"),
        ] {
            let text = KUBECONFIG.replace("token: sesame", line);
            of(ours(), &[("kubeconfig", &text)], field);
        }
        let long = format!("{KUBECONFIG}#{}", "x".repeat(MAX_KUBECONFIG_BYTES));
        of(ours(), &[("kubeconfig", &long)], "is larger than 131072 bytes");
        let plain = KUBECONFIG.replace("https", "http");
        of(ours(), &[("kubeconfig", &plain)], "http");
        let argo = |config, expect: &str| {
            let data = [("server", "https://a"), ("config", config)];
            of(json!({ARGO_CD: "cluster"}), &data, expect);
        };
        argo(r#"{"bearerToken": sesame}"#, "its config is not Argo CD's (line 1");
        argo(r#"{"awsAuthConfig": {"clusterName": "a"}}"#, "awsAuthConfig");
        argo(
            r#"{"execProviderConfig": {"command": "sh", "apiVersion": "client.authentication.k8s.io/v1"}}"#,
            "sh",
        );
        argo(r#"{"tlsClientConfig": {"insecure": true}}"#, "insecure");
    }

    #[test]
    fn another_budget_is_news_and_leads_nowhere_else() {
        let mut asks = secret("Opaque", json!({LABEL: "east"}), &[("kubeconfig", KUBECONFIG)]);
        let before = source(&asks, &Terms::default()).unwrap();
        asks.annotations_mut().insert("leasehold.dev/budget".to_owned(), "{}".to_owned());
        let after = source(&asks, &Terms::default()).unwrap();
        assert_eq!(before.fingerprint, after.fingerprint);
        assert_ne!(before, after);
    }

    #[test]
    fn a_risk_is_taken_where_it_is_allowed_and_names_begin_with_the_prefix() {
        let plain = KUBECONFIG.replace("https", "http");
        let secret = secret("Opaque", json!({LABEL: "east"}), &[("kubeconfig", &plain)]);
        let (prefix, allow) = ("team-a".parse().ok(), [Risk::PlainHttp].into());
        let source = source(&secret, &Terms { prefix, allow, ..Terms::default() }).unwrap();
        assert_eq!(source.name.as_str(), "team-a.east");
        assert!(source.access.is_ok());
    }
}
