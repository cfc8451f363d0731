//! Whatever stands in a kubeconfig or in a Secret: it is read or refused without a panic, and no error, name or debug
//! text repeats a secret of it. The seeds have [`PLANTED`] where secrets belong, and in wrong places.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::config::Kubeconfig;
use model::error::{MAX_FOREIGN_CHARS, chain};
use serde_json::Value;

use crate::kubeconfig::{Contexts, Draft, Origin, drafts, parse};
use crate::terms::Terms;
use crate::trust::Trust;
use crate::{Source, secret};

/// Stands for every secret in the seeds.
pub(crate) const PLANTED: &str = "S3CR3T";
/// The most characters of an error. It names a few things, each as long as foreign text may be.
pub(crate) const MAX_CHARS: usize = 5 * MAX_FOREIGN_CHARS;

/// A text for people is short and has no secret in it.
pub(crate) fn check(text: &str) {
    assert!(!text.contains(PLANTED), "{text}");
    assert!(text.chars().count() <= MAX_CHARS, "{} characters: {text}", text.chars().count());
}

/// Whether a secret stands where errors may repeat a text: an edit has put it into a name, say.
fn is_public(config: &Kubeconfig) -> bool {
    let mut texts = Vec::from_iter(config.current_context.clone());
    for named in &config.contexts {
        let context = named.context.clone().unwrap_or_default();
        texts.extend([named.name.clone(), context.cluster]);
        texts.extend(context.user);
    }
    for named in &config.clusters {
        let cluster = named.cluster.clone().unwrap_or_default();
        texts.push(named.name.clone());
        texts.extend([cluster.server, cluster.certificate_authority].into_iter().flatten());
    }
    for named in &config.auth_infos {
        let user = named.auth_info.clone().unwrap_or_default();
        texts.push(named.name.clone());
        texts.extend(
            [user.client_certificate, user.client_key, user.token_file].into_iter().flatten(),
        );
        texts.extend(user.exec.and_then(|exec| exec.command));
        texts.extend(user.auth_provider.map(|provider| provider.name));
    }
    texts.iter().any(|text| text.contains(PLANTED) || text.chars().count() > MAX_FOREIGN_CHARS)
}

fn of_a_draft(draft: &Draft) {
    check(&format!("{draft:?}"));
    check(&format!("{} {}", draft.name, draft.origin));
    if let Err(error) = &draft.access {
        check(&chain(&**error));
    }
}

fn kubeconfig(input: &[u8]) {
    let path = Path::new("/clusters/kubeconfig");
    let config = match parse(path, input) {
        Ok(config) => config,
        Err(error) => return check(&chain(&error)),
    };
    let is_public = is_public(&config);
    for trust in [Trust::own(), Trust::stranger()] {
        let origin = Origin { path: path.to_owned(), prefix: None, trust };
        for wanted in [Contexts::All, Contexts::Current, Contexts::Chosen(vec!["a".to_owned()])] {
            let drafts = drafts(&origin, &config, &wanted);
            if !is_public {
                drafts.iter().for_each(of_a_draft);
            }
        }
    }
}

fn source(type_: Option<&str>, labels: &[(&str, &str)], data: &[(&str, &[u8])]) -> Option<Source> {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let bytes = |(key, value): &(&str, &[u8])| ((*key).to_owned(), ByteString(value.to_vec()));
    let mut secret = Secret {
        type_: type_.map(str::to_owned),
        data: Some(data.iter().map(bytes).collect::<BTreeMap<_, _>>()),
        ..Secret::default()
    };
    secret.metadata.name = Some("a-kubeconfig".to_owned());
    secret.metadata.labels = Some(labels.collect());
    secret::source(&secret, &Terms::default())
}

fn secrets(input: &[u8]) {
    let labels = [("argocd.argoproj.io/secret-type", "cluster")];
    let sources = [
        source(None, &[], &[("kubeconfig", input)]),
        source(Some("cluster.x-k8s.io/secret"), &[], &[("value", input)]),
        source(None, &labels, &[("server", b"https://a"), ("config", input)]),
    ];
    let config = parse(Path::new("a"), input);
    let argo_cd: Value = serde_json::from_slice(input).unwrap_or_default();
    let command = argo_cd["execProviderConfig"]["command"].as_str().unwrap_or_default();
    if !config.is_ok_and(|config| is_public(&config)) && !command.contains(PLANTED) {
        for source in sources.into_iter().flatten() {
            check(&format!("{source:?}"));
            check(
                &source.access.map_or_else(|error| chain(&*error), |access| format!("{access:?}")),
            );
        }
    }
}

#[test]
fn kubeconfigs() {
    ::fuzz::fuzz!("kubeconfigs", kubeconfig);
}

#[test]
fn secrets_of_clusters() {
    ::fuzz::fuzz!("secrets", secrets);
}
