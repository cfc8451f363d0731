//! How one object stands with the controllers of its kind: the question, what a replica says, and the same in
//! words. The engine fills it in, the admin server sends it, and `leasehold explain` reads it. Pure.

#![deny(unreachable_pub)]

mod words;

use std::fmt::{self, Display};
use std::str::FromStr;

use model::error::foreign;
use model::{ClusterName, ControllerName, Kind};
use queue::{HeldShard, KeyStatus};
use serde::{Deserialize, Serialize};

pub use words::{time, words};

/// The object that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sought {
    /// Its cluster.
    pub cluster: ClusterName,
    /// Its kind: `Deployment`, `deployments` or `deployments.apps`, in letters of either case.
    pub kind: String,
    /// Its namespace, if its kind has them.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// A text that names no object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no object; write CLUSTER/KIND/NAMESPACE/NAME, or CLUSTER/KIND/NAME for a kind without \
     namespaces"
)]
pub struct NoObject(String);

/// How an object stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// With each controller that reconciles its kind.
    pub controllers: Vec<Explained>,
    /// The kinds that controllers here reconcile, as `group/Kind`.
    pub kinds: Vec<String>,
    /// Why requests to its cluster are held back now, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<HeldBack>,
    /// Why nothing of its cluster is kept now, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
}

/// Why a circuit breaker holds requests back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldBack {
    /// The cause.
    pub cause: String,
    /// Seconds until the cluster is asked again.
    pub retry_seconds: f64,
}

/// How an object stands with one controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// The controller.
    pub controller: ControllerName,
    /// The kind, as `group/Kind`.
    pub kind: String,
    /// How the object is named instead, if a namespace is missing or too much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misnamed: Option<String>,
    /// Whether the controller works in the object's namespace at all.
    pub in_scope: bool,
    /// What is cached of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<CachedObject>,
    /// The watch of its kind, if there is one here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watched>,
    /// The shard that has it, if that is here and known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<HeldShard>,
    /// Why the fence lets nothing of that shard begin; absent if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// For how long the fence lets it run, if the Lease is not renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence_seconds: Option<f64>,
    /// Where its key stands in the queue.
    pub key: KeyStatus,
}

/// What is cached of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedObject {
    /// The hash of its uid, in hexadecimal digits: its place in the ranges.
    pub hash: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether the controller's predicates let its creation count, if it appeared as it is now.
    pub matters: bool,
    /// Why its condition `Ready` is not `True`, as its status says; absent if it is, or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
}

/// What is read of an object's status: Kubernetes' conditions.
#[derive(Debug, Deserialize)]
pub struct Status {
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

impl Status {
    /// Why the condition `Ready` is not `True`, if there is one and it is not.
    pub fn not_ready(self) -> Option<String> {
        let ready = self.conditions.into_iter().find(|condition| condition.kind == "Ready")?;
        let Condition { status, reason, message, .. } = ready;
        (status != "True").then(|| foreign(&format!("{reason}: {message}")))
    }
}

/// A watch of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watched {
    /// Whether its first list is complete.
    pub synced: bool,
    /// Seconds since the server was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// Why its last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of which objects it holds the ranges, as `0/2,5/8`.
    pub ranges: String,
    /// The label and field selectors it is restricted to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
}

impl FromStr for Sought {
    type Err = NoObject;

    fn from_str(text: &str) -> Result<Self, NoObject> {
        let no_object = || NoObject(model::error::foreign(text));
        let parts: Vec<_> = text.split('/').collect();
        let (cluster, kind, namespace, name) = match *parts {
            [cluster, kind, namespace, name] => (cluster, kind, Some(namespace), name),
            [cluster, kind, name] => (cluster, kind, None, name),
            _ => return Err(no_object()),
        };
        let cluster = cluster.parse().map_err(|_| no_object())?;
        if kind.is_empty() || name.is_empty() || namespace.is_some_and(str::is_empty) {
            return Err(no_object());
        }
        let (kind, namespace) = (kind.to_owned(), namespace.map(str::to_owned));
        Ok(Self { cluster, kind, namespace, name: name.to_owned() })
    }
}

/// As it is written.
impl Display for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, kind, namespace, name } = self;
        match namespace {
            Some(namespace) => write!(f, "{cluster}/{kind}/{namespace}/{name}"),
            None => write!(f, "{cluster}/{kind}/{name}"),
        }
    }
}

impl Sought {
    /// How it is named instead, if objects of its kind have namespaces and it names none, or the other way round.
    pub fn misnamed(&self, kind: &Kind) -> Option<String> {
        let Self { cluster, kind: given, namespace, name } = self;
        let kind_ = &kind.kind;
        match (kind.namespaced, namespace) {
            (true, None) => {
                Some(format!("{kind_} has namespaces: write {cluster}/{given}/NAMESPACE/{name}"))
            }
            (false, Some(_)) => {
                Some(format!("{kind_} has no namespaces: write {cluster}/{given}/{name}"))
            }
            _ => None,
        }
    }

    /// Whether it is of that kind.
    pub fn is_of(&self, kind: &Kind) -> bool {
        let (name, group) = match self.kind.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (&*self.kind, None),
        };
        (name.eq_ignore_ascii_case(&kind.kind) || name.eq_ignore_ascii_case(&kind.plural))
            && group.is_none_or(|group| group.eq_ignore_ascii_case(&kind.group))
    }
}

/// What a replica says of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// The member that says it.
    pub member: String,
    /// Whether its configuration has the cluster.
    pub configured: bool,
    /// Why it cannot use the cluster, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
    /// How the object stands with its controllers.
    #[serde(flatten)]
    pub explanation: Explanation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_by_cluster_kind_namespace_and_name() {
        let sought = |text: &str| text.parse::<Sought>();
        let expect = Sought {
            cluster: "east".parse().unwrap(),
            kind: "deployments.apps".into(),
            namespace: Some("shop".into()),
            name: "cart".into(),
        };
        assert_eq!(expect.to_string(), "east/deployments.apps/shop/cart");
        assert_eq!(sought("east/deployments.apps/shop/cart"), Ok(expect));
        assert_eq!(sought("east/Node/n1").unwrap().namespace, None);
        for wrong in
            ["", "east", "east/Node", "east//a/b", "east/Pod//b", "east/Pod/a/", "a/b/c/d/e"]
        {
            let error = sought(wrong).unwrap_err().to_string();
            assert!(error.contains("CLUSTER/KIND/NAMESPACE/NAME"), "{wrong}: {error}");
        }
    }

    #[test]
    fn kinds_are_found_by_each_of_their_names() {
        let kind = Kind::new("apps", "v1", "Deployment", "deployments", true);
        let is = |name: &str| {
            let sought: Sought = format!("east/{name}/shop/cart").parse().unwrap();
            sought.is_of(&kind)
        };
        for right in ["Deployment", "deployment", "deployments", "deployments.apps"] {
            assert!(is(right), "{right}");
        }
        for wrong in ["Deploy", "deployments.extensions", "ReplicaSet", "deployments."] {
            assert!(!is(wrong), "{wrong}");
        }
    }

    #[test]
    fn what_an_object_says_of_its_readiness() {
        let said = |conditions: &str| {
            let status = format!(r#"{{"conditions": [{conditions}], "replicas": 2}}"#);
            serde_json::from_str::<Status>(&status).unwrap().not_ready()
        };
        let ready = |status: &str| {
            let told = r#""reason": "NameTaken", "message": "web is another's""#;
            format!(
                r#"{{"type": "Synced", "status": "False"}}, {{"type": "Ready", "status": "{status}", {told}}}"#
            )
        };
        for status in ["False", "Unknown"] {
            assert_eq!(said(&ready(status)).as_deref(), Some("NameTaken: web is another's"));
        }
        assert_eq!(said(&ready("True")), None);
        assert_eq!(said(""), None);
    }
}
