//! The kubeconfigs of the clusters, in a folder that the managers watch: they come and go, get other names and other
//! tokens.
//!
//! # Invariants
//! - Only files that begin with [`MARK`], as all that it writes do, are removed.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client};

/// The first line of each kubeconfig.
const MARK: &str = "# Made by a load test, which removes it.\n";
/// The user of a cluster, once its credentials have been renewed.
const USER: &str = "load";
/// Where that user is: a namespace that each cluster has from its start.
const NAMESPACE: &str = "kube-system";
/// How long a token is valid that nobody renews.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// The folder, and what is in it.
pub struct Kubeconfigs {
    /// Where it is.
    pub dir: PathBuf,
    clusters: Mutex<Vec<Entry>>,
}

/// One cluster.
#[derive(Clone)]
struct Entry {
    client: Client,
    /// The kubeconfig of its server, and the name and token in it.
    text: String,
    name: String,
    token: String,
    /// How often it got another name.
    renamed: u32,
    /// How often it got another token, and the last one.
    renewed: u32,
    current: Option<String>,
    is_there: bool,
}

impl Entry {
    fn name(&self) -> String {
        match self.renamed {
            0 => self.name.clone(),
            times => format!("{}-{times}", self.name),
        }
    }

    fn text(&self) -> String {
        let text = self.text.replace(&self.name, &self.name());
        match &self.current {
            Some(token) => text.replace(&self.token, token),
            None => text,
        }
    }
}

impl Kubeconfigs {
    /// In this folder. What an earlier run has left there goes: its clusters are no more.
    ///
    /// # Errors
    /// If something there is not of a load test, or the folder cannot be emptied and created.
    pub fn new(dir: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let files = std::fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))?;
        let files =
            files.map(|file| Ok(file?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
        for file in &files {
            let is_ours = std::fs::read(file).is_ok_and(|text| text.starts_with(MARK.as_bytes()));
            ensure!(
                is_ours,
                "{} is not of a load test, which needs this folder for itself: move it away, or give another --out",
                file.display()
            );
        }
        for file in &files {
            std::fs::remove_file(file).with_context(|| format!("remove {}", file.display()))?;
        }
        Ok(Self { dir, clusters: Mutex::default() })
    }

    /// Adds a cluster whose kubeconfig stays as it is.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&self, name: &str, text: &str) -> anyhow::Result<()> {
        // Nobody reads half of it.
        let (file, new) = (self.file(name), self.dir.with_extension("new"));
        let written = std::fs::write(&new, format!("{MARK}{text}"));
        let written = written.and_then(|()| std::fs::rename(&new, &file));
        written.with_context(|| format!("write {}", file.display()))
    }

    /// Adds the next cluster of those that have numbers, from 1, with its kubeconfig.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add_numbered(&self, name: &str, client: Client, text: String) -> anyhow::Result<()> {
        self.add(name, &text)?;
        let token = text.lines().find_map(|line| line.trim().strip_prefix("token: "));
        let token = token.context("the kubeconfig has no token")?.trim_matches('"').to_owned();
        self.all().push(Entry {
            client,
            text,
            name: name.to_owned(),
            token,
            renamed: 0,
            renewed: 0,
            current: None,
            is_there: true,
        });
        Ok(())
    }

    /// Removes a cluster's kubeconfig.
    ///
    /// # Errors
    /// If there is none.
    pub fn remove(&self, number: u32) -> anyhow::Result<()> {
        let name = self.change(number, |entry| entry.is_there = false)?.name();
        let file = self.file(&name);
        std::fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))
    }

    /// Adds a cluster's kubeconfig again, with another name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add_renamed(&self, number: u32) -> anyhow::Result<()> {
        let entry = self.change(number, |entry| {
            entry.renamed += 1;
            entry.is_there = true;
        })?;
        self.add(&entry.name(), &entry.text())
    }

    /// Gives each kubeconfig another token. Tokens of the time before last are no longer valid.
    ///
    /// # Errors
    /// If a server refuses, or a file cannot be written.
    pub async fn renew(&self) -> anyhow::Result<()> {
        let entries = self.all().clone();
        let tokens = entries.iter().map(|entry| renewed(&entry.client, entry.renewed));
        let tokens = try_join_all(tokens).await.context("renew credentials")?;
        for (number, token) in (1..).zip(tokens) {
            let entry = self.change(number, |entry| {
                entry.renewed += 1;
                entry.current = Some(token);
            })?;
            if entry.is_there {
                self.add(&entry.name(), &entry.text())?;
            }
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.yaml"))
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, number: u32, change: impl FnOnce(&mut Entry)) -> anyhow::Result<Entry> {
        let mut all = self.all();
        let entry = (number as usize).checked_sub(1).and_then(|place| all.get_mut(place));
        let entry = entry.with_context(|| format!("there is no cluster {number}"))?;
        change(entry);
        Ok(entry.clone())
    }
}

/// A new token, bound to a Secret of its own. The Secret of the token before the last one goes, and that token with it.
async fn renewed(client: &Client, times: u32) -> anyhow::Result<String> {
    let create = PostParams::default();
    let named = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    if times == 0 {
        let account = ServiceAccount { metadata: named(USER), ..ServiceAccount::default() };
        accounts.create(&create, &account).await?;
        let binding = ClusterRoleBinding {
            metadata: named(USER),
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".into()),
                kind: "ClusterRole".into(),
                name: "cluster-admin".into(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".into(),
                name: USER.into(),
                namespace: Some(NAMESPACE.into()),
                ..Subject::default()
            }]),
        };
        Api::<ClusterRoleBinding>::all(client.clone()).create(&create, &binding).await?;
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let name = |times: u32| format!("{USER}-{times}");
    let secret = Secret { metadata: named(&name(times)), ..Secret::default() };
    let secret = secrets.create(&create, &secret).await?;
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Secret".into()),
                name: secret.metadata.name,
                uid: secret.metadata.uid,
            }),
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let issued = accounts.create_token_request(USER, &create, &request).await?;
    if let Some(old) = times.checked_sub(2) {
        secrets.delete(&name(old), &DeleteParams::default()).await?;
    }
    let token = issued.status.and_then(|status| status.token);
    token.context("a request for a token was not answered")
}

#[cfg(test)]
mod tests {
    use apiserver::Server;

    use super::*;

    async fn works(text: &str) -> bool {
        let config = kube::config::Kubeconfig::from_yaml(text).unwrap();
        let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await;
        let client = Client::try_from(config.unwrap()).unwrap();
        Api::<Secret>::all(client).list(&Default::default()).await.is_ok()
    }

    #[tokio::test]
    async fn a_cluster_gets_other_names_and_other_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::builder().name("cluster-001").start().await.unwrap();
        let kubeconfigs = Kubeconfigs::new(dir.path().join("clusters")).unwrap();
        kubeconfigs.add_numbered("cluster-001", server.client(), server.kubeconfig()).unwrap();
        let files = || {
            let files = std::fs::read_dir(&kubeconfigs.dir).unwrap();
            let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            names.collect::<Vec<_>>()
        };
        let read = || std::fs::read_to_string(kubeconfigs.dir.join(&files()[0])).unwrap();
        let mut tokens = vec![read()];
        for _ in 0..3 {
            kubeconfigs.renew().await.unwrap();
            tokens.push(read());
        }
        let mut valid = Vec::new();
        for text in &tokens {
            valid.push(works(text).await);
        }
        assert_eq!(valid, [true, false, true, true], "the first is the administrator's");
        kubeconfigs.remove(1).unwrap();
        assert!(files().is_empty());
        kubeconfigs.renew().await.unwrap();
        assert!(files().is_empty(), "it stays away");
        kubeconfigs.add_renamed(1).unwrap();
        assert_eq!(files(), ["cluster-001-1.yaml"]);
        assert!(read().contains("current-context: cluster-001-1\n"), "{}", read());
        assert!(works(&read()).await);
        assert!(kubeconfigs.remove(2).is_err());
        Kubeconfigs::new(kubeconfigs.dir.clone()).unwrap();
        assert!(files().is_empty(), "the next run has other clusters");
        server.shutdown().await;
    }

    #[test]
    fn files_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("clusters");
        Kubeconfigs::new(folder.clone()).unwrap().add("cluster-001", "apiVersion: v1").unwrap();
        std::fs::write(folder.join("mine.yaml"), "apiVersion: v1").unwrap();
        let error = Kubeconfigs::new(folder.clone()).err().unwrap().to_string();
        assert!(error.contains("mine.yaml is not of a load test"), "{error}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    }
}
