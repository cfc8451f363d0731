//! What a write did, by its answer, and how a cache shows it.
//!
//! A write is recognised by its resourceVersion. In Kubernetes these are numbers that rise with every
//! write to a resource, so a cache can be asked for "at least this one". If a server's versions are
//! something else, only the exact version is recognised, and the wait is shorter.
//!
//! What is kept of an answer is bounded: a server may answer a write of a few bytes with megabytes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use cache::{Header, MAX_NAME_BYTES, ResourceVersion, Uid};
use http::Method;
use listwatch::Scope;
use model::{Kind, Selector};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::path::ResourcePath;

/// How long after a write the next reconcile waits for the cache to show it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same if the server's versions cannot be compared.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// The most bytes of labels that are kept of an answer: those of forty labels of the longest kind.
const MAX_LABEL_BYTES: usize = 16 << 10;

/// What a write did, by its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    group: String,
    plural: String,
    /// The object's namespace, if it has one.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    labels: KnownLabels,
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

/// The labels of an object; `None` if nobody knows them, or there are too many to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownLabels(Option<BTreeMap<String, String>>);

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
    labels: KnownLabels,
}

#[derive(Deserialize)]
struct AnswerDetails {
    uid: Option<String>,
}

impl Written {
    /// Reads what a request that succeeded has written; nothing if that cannot be seen in a cache. No cache
    /// takes names, uids and versions above [`MAX_NAME_BYTES`].
    pub fn read(method: &Method, path: &str, query: &str, answer: &[u8]) -> Option<Self> {
        let at = ResourcePath::read(path)?;
        let is_dry = query.split('&').any(|pair| pair.starts_with("dryRun="));
        if is_dry || !matches!(at.subresource, None | Some("status" | "scale")) {
            return None;
        }
        let Answer { kind, metadata, details } = serde_json::from_slice(answer).ok()?;
        let is_short = |text: &str| text.len() <= MAX_NAME_BYTES;
        let (name, trace) = if kind == "Status" {
            let uid = details?.uid.filter(|uid| is_short(uid))?;
            (at.name.filter(|_| *method == Method::DELETE)?, Trace::Gone(Uid::new(&uid)))
        } else if metadata.resource_version.is_empty() || !is_short(&metadata.resource_version) {
            return None;
        } else {
            let version = ResourceVersion::new(&metadata.resource_version);
            (metadata.name.as_str(), Trace::Version(version))
        };
        let namespace = at.namespace.or(metadata.namespace.as_deref());
        if !is_short(name) || !namespace.is_none_or(is_short) {
            return None;
        }
        Some(Self {
            group: at.group.to_owned(),
            plural: at.plural.to_owned(),
            namespace: namespace.map(str::to_owned),
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

    /// Whether its labels are as a watch wants them, as far as they are known; if not, the object must not be
    /// there.
    pub fn is_selected(&self, labels: &Selector) -> bool {
        let KnownLabels(known) = &self.labels;
        let known = known.as_ref();
        known.is_none_or(|known| labels.matches(|key| known.get(key).map(String::as_str)))
    }

    /// The same without its labels, for who knows what selects it.
    #[must_use]
    pub fn without_labels(self) -> Self {
        Self { labels: KnownLabels(None), ..self }
    }

    /// Whether a cache shows it that wants it, or wants it no more, if it holds `found` under the object's
    /// name and has seen everything up to `seen`.
    pub fn is_shown(
        &self,
        is_selected: bool,
        found: Option<&Header>,
        seen: Option<&ResourceVersion>,
    ) -> bool {
        match &self.trace {
            Trace::Gone(uid) => found.is_none_or(|found| found.uid != *uid),
            Trace::Version(_) if found.is_none() && !is_selected => true,
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

impl Default for KnownLabels {
    /// Those of an object without labels.
    fn default() -> Self {
        Self(Some(BTreeMap::new()))
    }
}

impl<'de> Deserialize<'de> for KnownLabels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(LabelsVisitor)
    }
}

struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = KnownLabels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<KnownLabels, A::Error> {
        let (mut labels, mut bytes) = (BTreeMap::new(), 0);
        while let Some((key, value)) = from.next_entry::<String, String>()? {
            bytes += key.len() + value.len();
            if bytes > MAX_LABEL_BYTES {
                while from.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(KnownLabels(None));
            }
            labels.insert(key, value);
        }
        Ok(KnownLabels(Some(labels)))
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
        written.is_shown(written.is_selected(&"app=web".parse().unwrap()), found, seen.as_ref())
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
        assert!(!deleted.is_shown(true, Some(&header(&entry).header), None));
        entry["metadata"]["uid"] = "another".into();
        assert!(deleted.is_shown(true, Some(&header(&entry).header), None));
        assert!(deleted.is_shown(true, None, None));
    }

    #[test]
    fn what_no_cache_takes_is_not_kept() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for field in ["resourceVersion", "name"] {
            let mut answer = pod("7");
            answer["metadata"][field] = long.clone().into();
            assert_eq!(read(Method::PUT, &format!("{PODS}/a"), &answer), None, "{field}");
        }
        let mut answer = pod("7");
        answer["metadata"]["namespace"] = long.clone().into();
        assert_eq!(read(Method::POST, "/api/v1/nodes", &answer), None);
        let status = json!({"kind": "Status", "details": {"uid": long}});
        assert_eq!(read(Method::DELETE, &format!("{PODS}/a-x7"), &status), None);
    }

    /// A server may answer with a million labels, and so may what keeps them for a while.
    #[test]
    fn of_too_many_labels_none_is_kept_and_the_cache_has_to_show_the_version() {
        let of = |count: usize| {
            let labels = (0..count).map(|number| (format!("{number:010}"), Value::from("x")));
            let mut answer = pod("7");
            answer["metadata"]["labels"] = labels.collect::<serde_json::Map<_, _>>().into();
            answer["metadata"]["name"] = "after".into();
            read(Method::PUT, &format!("{PODS}/after"), &answer).unwrap()
        };
        let selector: Selector = "app=web".parse().unwrap();
        assert!(!of(1_000).is_selected(&selector));
        let many = of(100_000);
        assert_eq!((&*many.name, &many.labels), ("after", &KnownLabels(None)));
        let seen = [None, Some(ResourceVersion::new("7"))];
        let shown =
            seen.map(|seen| many.is_shown(many.is_selected(&selector), None, seen.as_ref()));
        assert_eq!(shown, [false, true]);
    }
}
