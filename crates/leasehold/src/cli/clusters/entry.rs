//! The Secrets of the home cluster that `leasehold clusters` writes: one for each cluster.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clusters::LABEL;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use model::{ClusterName, may_be_called};
use serde_json::{Value, json};

use super::rights::MADE;
use ops::{HomeCluster, in_time};

/// The label of what is written, as in the workload clusters. Its value is the field manager too.
const MANAGED_BY: &str = MADE[0];
const MANAGER: &str = MADE[1];
/// The key of the kubeconfig.
const KEY: &str = "kubeconfig";
/// Secrets of one page: one has some kilobytes, and may have 128 of them.
const PAGE: u32 = 100;

/// The Secret of a cluster.
pub(super) fn secret_name(cluster: &ClusterName) -> String {
    format!("cluster-{cluster}")
}

/// A cluster that was added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AddedCluster {
    /// Its server, as replicas reach it.
    pub(super) server: String,
    /// The uid of the fleet's user there, as its token says.
    pub(super) user: Option<String>,
}

impl AddedCluster {
    /// That of a Secret, with its name. A label that is no name of a cluster is passed over.
    fn of(secret: &Secret) -> Option<(ClusterName, Self)> {
        let name = secret.labels().get(LABEL)?.parse().ok()?;
        let kubeconfig = secret.data.as_ref().and_then(|data| data.get(KEY));
        let kubeconfig = kubeconfig.and_then(|ByteString(text)| {
            serde_saphyr::from_str::<Value>(&String::from_utf8_lossy(text)).ok()
        });
        let kubeconfig = kubeconfig.unwrap_or_default();
        let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
        let token = kubeconfig["users"][0]["user"]["token"].as_str();
        Some((name, Self { server: server.to_owned(), user: token.and_then(uid_of) }))
    }
}

/// The uid of the ServiceAccount that a token is for. Nobody checks its signature: home is believed.
fn uid_of(token: &str) -> Option<String> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let asked_for = &claims["kubernetes.io"]["serviceaccount"]["uid"];
    let of_secret = &claims["kubernetes.io/serviceaccount/service-account.uid"];
    asked_for.as_str().or(of_secret.as_str()).map(str::to_owned)
}

/// The Secrets of one fleet.
pub(super) struct Entries {
    api: Api<Secret>,
    namespace: String,
    /// Which home cluster has them, as messages name it.
    home: String,
}

impl Entries {
    /// Those of the fleet at `home`.
    pub(super) fn of(home: &HomeCluster) -> Self {
        let (client, namespace): (Client, _) = (home.client.clone(), home.namespace.clone());
        let api = Api::namespaced(client, &namespace);
        Self { api, namespace, home: home.shown.clone() }
    }

    /// The Secret with the name that one of this cluster has.
    async fn read(&self, cluster: &ClusterName) -> anyhow::Result<Option<Secret>> {
        let name = secret_name(cluster);
        let what = format!("read Secret {name} of {}", self.home);
        in_time(&what, self.api.get_opt(&name)).await?.context(what)
    }

    /// Whether there is no Secret of the cluster yet.
    ///
    /// # Errors
    /// If it may not be written: somebody else has a Secret there.
    pub(super) async fn is_free(&self, cluster: &ClusterName) -> anyhow::Result<bool> {
        let found = self.read(cluster).await?;
        let name = secret_name(cluster);
        ensure!(
            found.as_ref().is_none_or(is_made),
            "Secret {name} is there already and was not made by this command: give the cluster another \
             --name"
        );
        Ok(found.is_none())
    }

    /// Writes the Secret of a cluster.
    pub(super) async fn put(&self, cluster: &ClusterName, kubeconfig: &str) -> anyhow::Result<()> {
        let name = secret_name(cluster);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "labels": {LABEL: cluster, MANAGED_BY: MANAGER}},
            "data": {KEY: ByteString(kubeconfig.into())},
        });
        let params = PatchParams::apply(MANAGER).force();
        let what = format!("write Secret {name} of {}", self.home);
        let patch = Patch::Apply(secret);
        let written = self.api.patch(&name, &params, &patch);
        in_time(&what, written).await?.map(drop).context(what)
    }

    /// Removes the Secret of a cluster that was added.
    pub(super) async fn delete(&self, cluster: &ClusterName) -> anyhow::Result<()> {
        let name = secret_name(cluster);
        let what = format!("delete Secret {name} of {}", self.home);
        let params = DeleteParams::default();
        let deleted = self.api.delete(&name, &params);
        in_time(&what, deleted).await?.map(drop).context(what)
    }

    /// The cluster that was added under this name.
    ///
    /// # Errors
    /// If there is none: with those that there are.
    pub(super) async fn get(&self, cluster: &ClusterName) -> anyhow::Result<AddedCluster> {
        if let Some(added) = self.find(cluster).await? {
            return Ok(added);
        }
        bail!("{}", absent(cluster, &self.all().await?))
    }

    /// The same, if there is one.
    pub(super) async fn find(&self, cluster: &ClusterName) -> anyhow::Result<Option<AddedCluster>> {
        let secret = self.read(cluster).await?.filter(is_made);
        let added = secret.as_ref().and_then(AddedCluster::of);
        Ok(added.filter(|(own, _)| own == cluster).map(|(_, added)| added))
    }

    /// The clusters that were added.
    pub(super) async fn all(&self) -> anyhow::Result<BTreeMap<ClusterName, AddedCluster>> {
        let params = ListParams::default().labels(&format!("{LABEL},{MANAGED_BY}={MANAGER}"));
        let mut all = BTreeMap::new();
        let keep = |secret: Secret| all.extend(AddedCluster::of(&secret));
        let (params, of) = (params.limit(PAGE), ("secrets", &*self.namespace));
        let read = fleet::pages(&self.api, params, of, usize::MAX, keep).await;
        read.with_context(|| format!("list Secrets of {}", self.home))?;
        Ok(all)
    }
}

/// Whether this command made it.
fn is_made(secret: &Secret) -> bool {
    secret.labels().get(MANAGED_BY).is_some_and(|manager| manager == MANAGER)
}

/// What to say of a name under which no cluster was added. A cluster of another source may have the name that replicas
/// would give one of these, so that the user decides.
fn absent(cluster: &ClusterName, added: &BTreeMap<ClusterName, AddedCluster>) -> String {
    let shown: Vec<_> = added.keys().map(ClusterName::as_str).collect();
    let mut text = format!("no cluster {cluster} was added; there are: {}", shown.join(", "));
    if let Some(own) = added.keys().find(|own| may_be_called(own, cluster)) {
        text += &format!(
            "; replicas may call {own} so, by a prefix of clusters.secrets, or it is a cluster of another source: give the \
             name {own} only if you mean that"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use kube::client::Body;

    use super::*;

    fn secret(cluster: &str, token: &str) -> Value {
        let kubeconfig = json!({
            "clusters": [{"name": cluster, "cluster": {"server": format!("https://{cluster}")}}],
            "users": [{"name": "u", "user": {"token": token}}],
        });
        json!({"metadata": {"name": format!("cluster-{cluster}"),
                "labels": {LABEL: cluster, MANAGED_BY: MANAGER}},
            "data": {KEY: ByteString(kubeconfig.to_string().into())}})
    }

    fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[tokio::test]
    async fn more_clusters_than_one_answer_has_room_for_are_read_in_pages() {
        let home = tower::service_fn(|request: Request<Body>| async move {
            let query = request.uri().query().unwrap_or_default();
            let (status, body) = if !query.contains("limit=100") {
                let status = json!({"status": "Failure", "message": "too large", "code": 413});
                (StatusCode::PAYLOAD_TOO_LARGE, status)
            } else {
                let is_last = query.contains("continue=b");
                let (name, next) = if is_last { ("west", "") } else { ("east", "b") };
                let list = json!({"apiVersion": "v1", "kind": "SecretList",
                    "metadata": {"continue": next}, "items": [secret(name, "")]});
                (StatusCode::OK, list)
            };
            let answer = Response::builder().status(status);
            answer.body(Body::from(body.to_string().into_bytes()))
        });
        let client = Client::new(home, "default");
        let home = HomeCluster { client, namespace: "lh".into(), shown: "https://home".into() };
        let all = Entries::of(&home).all().await.unwrap();
        let all: Vec<_> = all.iter().map(|(name, added)| (name.as_str(), &*added.server)).collect();
        assert_eq!(all, [("east", "https://east"), ("west", "https://west")]);
    }

    #[test]
    fn a_token_tells_whose_it_is() {
        let asked_for = json!({"kubernetes.io": {"serviceaccount": {"name": "a", "uid": "u"}}});
        let of_secret = json!({"kubernetes.io/serviceaccount/service-account.uid": "u"});
        for (token, user) in [
            (token(&asked_for), Some("u")),
            (token(&of_secret), Some("u")),
            (token(&json!({"sub": "somebody"})), None),
            ("opaque".to_owned(), None),
        ] {
            let secret = serde_json::from_value(secret("east", &token)).unwrap();
            let (name, added) = AddedCluster::of(&secret).unwrap();
            assert_eq!((name.as_str(), added.user.as_deref()), ("east", user), "{token}");
        }
    }

    #[test]
    fn a_cluster_has_the_name_under_which_it_was_added() {
        let added = ["east", "west"].map(|name| (name.parse().unwrap(), AddedCluster::default()));
        let text = |name: &str| absent(&name.parse().unwrap(), &added.clone().into());
        assert_eq!(text("north"), "no cluster north was added; there are: east, west");
        let prefixed = text("prod.east");
        assert!(prefixed.contains("; replicas may call east so, by a prefix"), "{prefixed}");
    }
}
