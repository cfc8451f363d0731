//! What a write did, by its answer, and how a cache shows it.
//!
//! A write is recognised by its resourceVersion. In Kubernetes these are numbers that rise with every
//! write to a resource, so a cache can be asked for "at least this one". If a server's versions are
//! something else, only the exact version is recognised, and the wait is shorter.

use std::collections::BTreeMap;
use std::time::Duration;

use cache::{Header, ResourceVersion, Uid};
use http::Method;
use listwatch::Scope;
use model::{Kind, Selector};
use serde::Deserialize;

use crate::path::ResourcePath;

/// How long after a write the next reconcile waits for the cache to show it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same if the server's versions cannot be compared.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);

/// What a write did, by its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    group: String,
    plural: String,
    /// The object's namespace, if it has one.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    labels: BTreeMap<String, String>,
    trace: Trace,
}

/// How a write is recognised in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trace {
    /// The object has this version or a later one.
    Version(ResourceVersion),
    /// This incarnation is gone.
    Gone(Uid),
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: AnswerMeta,
    details: Option<AnswerDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnswerMeta {
    name: String,
    namespace: Option<String>,
    resource_version: String,
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct AnswerDetails {
    uid: Option<String>,
}

impl Written {
    /// Reads what a request that succeeded has written; nothing if that cannot be seen in a cache.
    pub fn read(method: &Method, path: &str, query: &str, answer: &[u8]) -> Option<Self> {
        let at = ResourcePath::read(path)?;
        let is_dry = query.split('&').any(|pair| pair.starts_with("dryRun="));
        if is_dry || !matches!(at.subresource, None | Some("status" | "scale")) {
            return None;
        }
        let Answer { kind, metadata, details } = serde_json::from_slice(answer).ok()?;
        let (name, trace) = if kind == "Status" {
            let uid = details?.uid?;
            (at.name.filter(|_| *method == Method::DELETE)?, Trace::Gone(Uid::new(&uid)))
        } else if metadata.resource_version.is_empty() {
            return None;
        } else {
            let version = ResourceVersion::new(&metadata.resource_version);
            (metadata.name.as_str(), Trace::Version(version))
        };
        Some(Self {
            group: at.group.to_owned(),
            plural: at.plural.to_owned(),
            namespace: at.namespace.map(str::to_owned).or(metadata.namespace),
            name: name.to_owned(),
            labels: metadata.labels,
            trace,
        })
    }

    /// Whether a watch of that kind and scope would show it.
    pub fn concerns(&self, kind: &Kind, scope: &Scope) -> bool {
        let namespace = scope.namespace.as_ref();
        *kind.group == *self.group
            && *kind.plural == *self.plural
            && namespace.is_none_or(|wanted| self.namespace.as_ref() == Some(wanted))
            // The answer does not show whether a field selector selects the object.
            && scope.fields.is_empty()
    }

    /// Whether its labels are as a watch wants them; if not, the object must not be there.
    fn is_selected(&self, labels: &Selector) -> bool {
        labels.matches(|key| self.labels.get(key).map(String::as_str))
    }

    /// Whether a cache of what `labels` select shows it, if it holds `found` under the object's name
    /// and has seen everything up to `seen`.
    pub fn is_shown(
        &self,
        labels: &Selector,
        found: Option<&Header>,
        seen: Option<&ResourceVersion>,
    ) -> bool {
        match &self.trace {
            Trace::Gone(uid) => found.is_none_or(|found| found.uid != *uid),
            Trace::Version(_) if found.is_none() && !self.is_selected(labels) => true,
            Trace::Version(version) => {
                let found = found.map(|found| &found.resource_version);
                found == Some(version)
                    || [found, seen].into_iter().flatten().any(|one| one.is_at_least(version))
            }
        }
    }

    /// How long after the write the next reconcile waits for the cache to show it.
    pub fn patience(&self) -> Duration {
        match &self.trace {
            Trace::Version(version) if !version.is_number() => SHORT_PATIENCE,
            Trace::Version(_) | Trace::Gone(_) => PATIENCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use cache::StoreWriter;
    use serde_json::{Value, json};

    use super::*;

    fn read(method: Method, path: &str, answer: &Value) -> Option<Written> {
        Written::read(&method, path, "timeout=5s", answer.to_string().as_bytes())
    }

    fn pod(version: &str) -> Value {
        json!({"kind": "Pod", "metadata": {
            "name": "a-x7", "namespace": "web", "uid": "u", "resourceVersion": version,
            "labels": {"app": "web"},
        }})
    }

    const PODS: &str = "/api/v1/namespaces/web/pods";

    #[test]
    fn a_write_is_read_from_its_answer() {
        let created = read(Method::POST, PODS, &pod("7")).unwrap();
        assert_eq!((&*created.plural, &*created.name), ("pods", "a-x7"), "a generated name too");
        assert_eq!(created.trace, Trace::Version(ResourceVersion::new("7")));
        let status = json!({"kind": "Status", "status": "Success", "details": {"uid": "u"}});
        let deleted = read(Method::DELETE, &format!("{PODS}/a"), &status).unwrap();
        assert_eq!(deleted.trace, Trace::Gone(Uid::new("u")));
        for (method, path) in [
            (Method::POST, "/api/v1/namespaces/web/pods/a/eviction"),
            (Method::DELETE, PODS),
            (Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        ] {
            assert_eq!(read(method, path, &status), None, "{path}");
        }
        let dry = Written::read(&Method::POST, PODS, "dryRun=All", pod("7").to_string().as_bytes());
        assert_eq!(dry, None);
    }

    /// Whether a cache with that object, which has seen that version, shows a write of version 7.
    fn shown(written: &Value, found: Option<&Value>, seen: Option<&str>) -> bool {
        let written = read(Method::PUT, &format!("{PODS}/a-x7"), written).unwrap();
        let entry = found.map(|found| StoreWriter::default().parse(&found.to_string()).unwrap());
        let seen = seen.map(ResourceVersion::new);
        let found = entry.as_ref().map(|entry| &entry.header);
        written.is_shown(&"app=web".parse().unwrap(), found, seen.as_ref())
    }

    #[test]
    fn a_write_is_shown_by_its_version_or_any_later_one() {
        assert!(!shown(&pod("7"), None, None));
        assert!(!shown(&pod("7"), Some(&pod("6")), Some("6")));
        assert!(shown(&pod("7"), Some(&pod("7")), None));
        assert!(shown(&pod("7"), Some(&pod("10")), None), "ten is more than seven");
        assert!(shown(&pod("7"), None, Some("7")), "it came and went");
        assert!(!shown(&pod("v7"), Some(&pod("v9")), Some("v9")), "no numbers, no order");
        assert!(shown(&pod("v7"), Some(&pod("v7")), None));
    }

    #[test]
    fn what_is_selected_no_more_is_shown_by_its_absence() {
        let mut other = pod("7");
        other["metadata"]["labels"]["app"] = "api".into();
        assert!(shown(&other, None, None));
        assert!(!shown(&other, Some(&pod("6")), Some("6")));
    }

    #[test]
    fn a_deletion_is_shown_when_that_incarnation_is_gone() {
        let status = json!({"kind": "Status", "details": {"uid": "u"}});
        let deleted = read(Method::DELETE, &format!("{PODS}/a-x7"), &status).unwrap();
        let mut entry = pod("6");
        let header = |object: &Value| StoreWriter::default().parse(&object.to_string()).unwrap();
        let all = Selector::all();
        assert!(!deleted.is_shown(&all, Some(&header(&entry).header), None));
        entry["metadata"]["uid"] = "another".into();
        assert!(deleted.is_shown(&all, Some(&header(&entry).header), None));
        assert!(deleted.is_shown(&all, None, None));
    }
}
