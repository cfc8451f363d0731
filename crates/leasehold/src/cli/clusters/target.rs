//! A workload cluster, reached as an administrator: the fleet's user in it, its rights and its tokens.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clusters::Unusable;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::Cluster;
use kube::core::{ApiResource, Request, Resource};
use kube::{Client, ResourceExt};
use model::ClusterName;
use ops::{in_time, within};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::home::own_kubeconfig;
use super::super::say::say;
use super::rights::{self, CLUSTER, FLEET, MADE, NAMESPACE, USER};
use crate::clock::SystemClock;

/// How long a cluster may take to fill a Secret with its token, and how often it is looked at.
const FILLED_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(100);
/// How long a client may take, whose credential may come from a program that asks people, and definitions until
/// they are served.
const CLIENT_WITHIN: Duration = Duration::from_secs(120);
const DEFINED_WITHIN: Duration = Duration::from_secs(60);
/// What Kubernetes fills with a token of the ServiceAccount in the annotation.
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const TOKEN_OF: &str = "kubernetes.io/service-account.name";

/// A workload cluster.
pub(super) struct Target {
    client: Client,
    cluster: Cluster,
    /// As messages name it.
    context: String,
}

/// The fleet's user in a cluster.
pub(super) struct FleetUser {
    pub(super) uid: String,
    /// Under which name the cluster was added. A user that an earlier release made does not say it.
    pub(super) cluster: Option<ClusterName>,
}

/// A token of the fleet's user.
pub(super) struct Token {
    pub(super) text: String,
    /// The Secret that holds it; none if it ends by itself.
    secret: Option<String>,
}

/// What is read of a list. Each item must have a name: in the client library's types `{}` is an object, too, and takes
/// hundreds of bytes.
#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMetadata,
    #[serde(rename = "type")]
    type_: Option<String>,
}

#[derive(Deserialize)]
struct ItemMetadata {
    name: String,
    namespace: Option<String>,
}

impl Target {
    /// The cluster of a context, whose server the replicas reach at `server`, if that is another URL.
    pub(super) async fn connect(
        kubeconfig: Option<&Path>,
        context: &str,
        server: Option<&str>,
    ) -> anyhow::Result<Self> {
        let own = own_kubeconfig(kubeconfig)?;
        let reason = |unusable: &Unusable| anyhow::anyhow!("{}", unusable.reason());
        let making = own.client(Some(context), Arc::new(SystemClock));
        let client =
            within(CLIENT_WITHIN, &format!("make a client for context {context}"), making).await?;
        let client = client.map_err(|unusable| reason(&unusable))?;
        let cluster = own.cluster(Some(context)).map_err(|unusable| reason(&unusable))?;
        let (_, mut cluster) =
            cluster.with_context(|| format!("{} has no such cluster", own.shown()))?;
        if let Some(file) = cluster.certificate_authority.take() {
            let pem = std::fs::read(&file).with_context(|| format!("read {file}"))?;
            let data = serde_json::to_value(k8s_openapi::ByteString(pem))?;
            cluster.certificate_authority_data = data.as_str().map(str::to_owned);
        }
        if let Some(server) = server {
            cluster.server = Some(server.to_owned());
        }
        Ok(Self { client, cluster, context: context.to_owned() })
    }

    /// What the cluster answers, if that is in time.
    async fn answer<T>(
        &self,
        what: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> anyhow::Result<T> {
        let what = format!("{what}, in context {}", self.context);
        in_time(&what, request).await?.context(what)
    }

    /// Its context, as whoever runs the command calls it.
    pub(super) fn context(&self) -> &str {
        &self.context
    }

    /// The server, as the replicas reach it.
    pub(super) fn server(&self) -> &str {
        self.cluster.server.as_deref().unwrap_or_default()
    }

    /// Whether that is a server of the machine on which it is asked for.
    pub(super) fn is_local(&self) -> bool {
        let uri: Option<http::Uri> = self.server().parse().ok();
        let host = uri.as_ref().and_then(|uri| uri.host()).unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// The user of this fleet there, if it has one.
    ///
    /// # Errors
    /// If the user is another fleet's: its tokens would end and its rights would go.
    pub(super) async fn user(&self, fleet: &str) -> anyhow::Result<Option<FleetUser>> {
        let users: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        let found = self.answer("read the fleet's user", users.get_opt(USER)).await?;
        let Some(found) = found else { return Ok(None) };
        let said = |annotation| found.annotations().get(annotation);
        ensure!(
            said(FLEET).is_none_or(|owner| owner == fleet),
            "ServiceAccount {NAMESPACE}/{USER} there is of another fleet, and a cluster has one: remove the \
             cluster from that fleet with --context first. If that fleet is gone, or is this one restored \
             from a backup, remove the mark: kubectl --namespace {NAMESPACE} annotate serviceaccount {USER} \
             {FLEET}-"
        );
        let cluster = said(CLUSTER).and_then(|name| name.parse().ok());
        Ok(Some(FleetUser { uid: found.uid().unwrap_or_default(), cluster }))
    }

    /// Writes into the user under which name the cluster was added.
    pub(super) async fn name_it(&self, cluster: &ClusterName) -> anyhow::Result<()> {
        let users: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({"metadata": {"annotations": {CLUSTER: cluster}}}));
        let params = PatchParams::default();
        let patched = users.patch(USER, &params, &patch);
        self.answer("write the cluster's name", patched).await.map(drop)
    }

    /// Makes the user, and gives it the rights of these controllers in these namespaces.
    pub(super) async fn authorize(
        &self,
        (fleet, cluster): (&str, &ClusterName),
        controllers: &[String],
        namespaces: &[String],
    ) -> anyhow::Result<()> {
        let mut manifests = rights::user(fleet, cluster);
        manifests.extend(rights::identity());
        manifests.extend(rights::own_marks());
        let mut definitions = Vec::new();
        for named in controllers {
            let (name, more) = named.split_once('+').unwrap_or((named, ""));
            let (mut rules, definition) = builtin(name)?;
            for setting in more.split('+').filter(|setting| !setting.is_empty()) {
                rules.extend(more_rules(name, setting)?);
            }
            manifests.extend(rights::rights(name, rules, namespaces));
            definitions.extend(definition);
        }
        let what = format!("install what controllers need, in context {}", self.context);
        let defined = install::definitions(&self.client, &definitions);
        within(DEFINED_WITHIN, &what, defined).await??;
        for manifest in &manifests {
            let text = manifest.to_string();
            in_time(&what, install::manifest(&self.client, &text)).await??;
        }
        self.sweep_rights(&manifests).await
    }

    /// Removes the rights that were given before and are not among these.
    async fn sweep_rights(&self, wanted: &[Value]) -> anyhow::Result<()> {
        self.sweep::<RoleBinding>(wanted).await?;
        self.sweep::<ClusterRoleBinding>(wanted).await?;
        self.sweep::<Role>(wanted).await?;
        self.sweep::<ClusterRole>(wanted).await
    }

    /// A new token of the user.
    pub(super) async fn token(&self, expires: Option<Duration>) -> anyhow::Result<Token> {
        match expires {
            Some(expires) => self.requested(expires).await,
            None => self.kept().await,
        }
    }

    /// A token that ends by itself.
    async fn requested(&self, expires: Duration) -> anyhow::Result<Token> {
        let users: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        let seconds = i64::try_from(expires.as_secs()).unwrap_or(i64::MAX);
        let spec =
            TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let params = PostParams::default();
        let asked = users.create_token_request(USER, &params, &request);
        let answer = self.answer("request a token of the fleet's user", asked).await?;
        let status = answer.status.unwrap_or_default();
        if let Some(end) = status.expiration_timestamp {
            say(&format!("the token ends at {}", end.0));
        }
        Ok(Token { text: status.token.context("the server gave no token")?, secret: None })
    }

    /// A token that lasts as long as its Secret.
    async fn kept(&self) -> anyhow::Result<Token> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let [key, value] = MADE;
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {
                "generateName": format!("{USER}-token-"), "labels": {key: value},
                "annotations": {TOKEN_OF: USER},
            },
            "type": TOKEN_TYPE,
        }))?;
        let params = PostParams::default();
        let what = "make a Secret for a token of the fleet's user";
        let name = self.answer(what, secrets.create(&params, &secret)).await?.name_any();
        let filled = async {
            loop {
                let data = secrets.get(&name).await?.data.unwrap_or_default();
                if let Some(token) = data.get("token") {
                    return anyhow::Ok(String::from_utf8_lossy(&token.0).into_owned());
                }
                tokio::time::sleep(POLL).await;
            }
        };
        match tokio::time::timeout(FILLED_WITHIN, filled).await {
            Ok(token) => Ok(Token { text: token?, secret: Some(name) }),
            Err(_) => {
                let params = DeleteParams::default();
                let _ = self.answer("delete it", secrets.delete(&name, &params)).await;
                bail!(
                    "the cluster put no token into Secret {NAMESPACE}/{name} within {}s; fix: ask for one \
                     that ends, with --expires",
                    FILLED_WITHIN.as_secs()
                )
            }
        }
    }

    /// Ends all tokens of the fleet's user that Secrets hold, but this one, after `grace`. How many there were. If the
    /// cluster is the home of a fleet, it has that fleet's Secrets too.
    pub(super) async fn end_others(
        &self,
        token: Option<&Token>,
        grace: Duration,
    ) -> anyhow::Result<usize> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let found = self.made::<Secret>("list the fleet's tokens", Some(NAMESPACE)).await?;
        let stays = token.and_then(|token| token.secret.as_ref());
        let others = found.into_iter().filter(|secret| {
            secret.type_.as_deref() == Some(TOKEN_TYPE) && stays != Some(&secret.metadata.name)
        });
        let others: Vec<_> = others.map(|secret| secret.metadata.name).collect();
        if !others.is_empty() {
            tokio::time::sleep(grace).await;
        }
        for name in &others {
            let params = DeleteParams::default();
            let ended = secrets.delete(name, &params);
            self.answer(&format!("delete Secret {NAMESPACE}/{name}"), ended).await?;
        }
        Ok(others.len())
    }

    /// Removes the user, its rights and its tokens.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        self.sweep_rights(&[]).await?;
        self.end_others(None, Duration::ZERO).await?;
        self.sweep::<ServiceAccount>(&[]).await
    }

    /// The objects of a kind that were made here.
    async fn made<K: Resource<DynamicType = ()>>(
        &self,
        what: &str,
        namespace: Option<&str>,
    ) -> anyhow::Result<Vec<Item>> {
        let [key, value] = MADE;
        let made = ListParams::default().labels(&format!("{key}={value}"));
        let request = Request::new(K::url_path(&(), namespace)).list(&made)?;
        let list: List = self.answer(what, self.client.request(request)).await?;
        Ok(list.items)
    }

    /// Removes all objects of a kind that were made here and are not among these.
    async fn sweep<K: Resource<DynamicType = ()>>(&self, wanted: &[Value]) -> anyhow::Result<()> {
        let resource = ApiResource::erase::<K>(&());
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let found = self.made::<K>(&format!("list {}", resource.plural), None).await?;
        for Item { metadata: ItemMetadata { name, namespace }, .. } in found {
            let same = |manifest: &Value| {
                let metadata = &manifest["metadata"];
                manifest["kind"] == *resource.kind
                    && metadata["name"] == *name
                    && metadata["namespace"].as_str() == namespace.as_deref()
            };
            if wanted.iter().any(same) {
                continue;
            }
            let api: Api<DynamicObject> = match &namespace {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
                None => all.clone(),
            };
            let params = DeleteParams::default();
            let deleted = api.delete(&name, &params);
            self.answer(&format!("delete {} {name}", resource.kind), deleted).await?;
        }
        Ok(())
    }

    /// A kubeconfig for the replicas.
    pub(super) fn kubeconfig(&self, name: &ClusterName, token: &str) -> String {
        let mut cluster = serde_json::to_value(&self.cluster).unwrap_or_default();
        if let Value::Object(fields) = &mut cluster {
            fields.retain(|_, value| !value.is_null());
        }
        // JSON is YAML.
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": USER, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": USER}}],
        })
        .to_string()
    }
}

type Builtin = (
    Vec<PolicyRule>,
    Vec<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    >,
);

/// The rights of a built-in controller, and its definitions.
#[cfg(feature = "builtin")]
pub(in super::super) fn builtin(name: &str) -> anyhow::Result<Builtin> {
    let known: Vec<_> = controllers::all().collect();
    let found = controllers::get(name);
    ensure!(found.is_some(), "there is no controller {name}; known here: {}", known.join(", "));
    let definitions =
        |builtin: &controllers::Builtin| builtin.crds.iter().map(|crd| crd()).collect();
    let Some(found) = found else { return Ok(Builtin::default()) };
    Ok(((found.rbac)(), definitions(found)))
}

/// The rights of a built-in controller for a setting of it, or for a kind that a setting lists, as
/// `rollouts.argoproj.io`.
#[cfg(feature = "builtin")]
pub(in super::super) fn more_rules(name: &str, setting: &str) -> anyhow::Result<Vec<PolicyRule>> {
    let Some(found) = controllers::get(name) else { return Ok(Vec::new()) };
    if let Some((plural, group)) = setting.split_once('.') {
        let rights = found.target_rbac;
        let rights = rights.with_context(|| format!("{name} has no setting that lists kinds"))?;
        return Ok(rights(group, plural));
    }
    let known: Vec<_> = found.more_rbac.iter().map(|(setting, _)| *setting).collect();
    let more = found.more_rbac.iter().find(|(known, _)| *known == setting);
    let more = more.with_context(|| {
        let known = known.join(", ");
        format!("{name} has no setting {setting} with rights of its own; it has: {known}")
    })?;
    Ok(more.1())
}

/// There is none.
#[cfg(not(feature = "builtin"))]
pub(in super::super) fn builtin(name: &str) -> anyhow::Result<Builtin> {
    bail!("there is no controller {name}: this build has none")
}

/// There are none.
#[cfg(not(feature = "builtin"))]
pub(in super::super) fn more_rules(_: &str, _: &str) -> anyhow::Result<Vec<PolicyRule>> {
    Ok(Vec::new())
}

#[cfg(all(test, feature = "builtin"))]
mod tests {
    use kube::client::Body;

    use super::*;

    /// A hostile cluster must not fill the memory of an administrator's machine.
    #[tokio::test]
    async fn lists_of_nothing_are_refused() {
        let nothing = tower::service_fn(|_: http::Request<Body>| async {
            let nothing = br#"{"items": [{}, {}], "resources": [{}, {}]}"#;
            http::Response::builder().body(Body::from(nothing.to_vec()))
        });
        let client = Client::new(nothing, "default");
        let target = Target { client, cluster: Cluster::default(), context: "c".to_owned() };
        let tokens = target.end_others(None, Duration::ZERO).await.unwrap_err();
        assert!(format!("{tokens:#}").contains("missing field `metadata`"), "{tokens:#}");
        let name = "east".parse().unwrap();
        let kinds = target.authorize(("f", &name), &[], &[]).await.unwrap_err();
        assert!(format!("{kinds:#}").contains("missing field `name`"), "{kinds:#}");
    }

    #[test]
    fn a_setting_brings_its_rights_and_no_others_do() {
        let reads_secrets = |rules: Vec<PolicyRule>| {
            let secrets = |rule: &PolicyRule| {
                rule.resources.iter().flatten().any(|resource| resource == "secrets")
            };
            rules.iter().any(secrets)
        };
        for name in ["configmonitor", "restart-pods"] {
            assert!(!reads_secrets(builtin(name).unwrap().0), "{name}");
            assert!(reads_secrets(more_rules(name, "watchSecrets").unwrap()), "{name}");
        }
        let refused = more_rules("tdset", "watchSecrets").unwrap_err().to_string();
        assert_eq!(refused, "tdset has no setting watchSecrets with rights of its own; it has: ");
    }

    #[test]
    fn a_kind_that_a_setting_lists_brings_the_rights_to_watch_and_scale_it() {
        let rules = more_rules("tdset", "rollouts.argoproj.io").unwrap();
        let spelled = rules.iter().map(|rule| {
            let [groups, resources] = [&rule.api_groups, &rule.resources]
                .map(|list| list.clone().unwrap_or_default().join(","));
            format!("{groups} {resources} {}", rule.verbs.join(","))
        });
        let spelled: Vec<_> = spelled.collect();
        let expect = ["argoproj.io rollouts list,watch", "argoproj.io rollouts/scale get,patch"];
        assert_eq!(spelled, expect);
        let refused = more_rules("sqs", "rollouts.argoproj.io").unwrap_err().to_string();
        assert_eq!(refused, "sqs has no setting that lists kinds");
    }
}
