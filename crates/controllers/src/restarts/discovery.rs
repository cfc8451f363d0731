//! Which workloads restart for a ConfigMap or Secret. Pure.
//!
//! A workload uses what the containers of its Pod template, init containers included, mount or take their
//! environment from. Whether it restarts for that is for its own annotations to say, and for those of the object;
//! a ConfigMonitor without a selector asks for all that use the object and do not refuse.
//!
//! `verdict` is the only place that decides. What is watched, and what is cached of a workload, follows
//! from it: `asked_for`, `drops`.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{DynamicObject, ObjectMeta};
use serde_json::Value;

use super::content::{ContentKind, ContentRef};

/// On a workload: `auto`, `search` or `off`.
pub const RESTART: &str = "leasehold.dev/restart";
/// On a workload: what it restarts for, used or not, as in `configmap/a, secret/b`.
pub const RESTART_FOR: &str = "leasehold.dev/restart-for";
/// On a workload: what it does not restart for though it uses it, as in `configmap/a, secret/*`.
pub const RESTART_EXCEPT: &str = "leasehold.dev/restart-except";
/// On a ConfigMap or Secret: `true` has those restart that use it and search.
pub const RESTART_MATCH: &str = "leasehold.dev/restart-match";
/// On a ConfigMap or Secret: `true` has nobody restart who only uses or names it.
pub const RESTART_IGNORE: &str = "leasehold.dev/restart-ignore";

/// The workload restarts for all that it uses.
const AUTO: &str = "auto";
/// It restarts for what it uses and what says that it matches.
const SEARCH: &str = "search";
/// It never restarts for what it uses or names.
const OFF: &str = "off";

/// Who wants a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A ConfigMonitor, of all that use the object.
    Monitor,
    /// The workloads themselves.
    Workload,
}

/// A ConfigMap or Secret that changed, and who wants a restart for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Discovery {
    content: ContentRef,
    matches: bool,
    ignored: bool,
    asker: Asker,
}

impl Discovery {
    /// Of an object with this metadata.
    pub(crate) fn new(content: ContentRef, metadata: &ObjectMeta, asker: Asker) -> Self {
        let says = |key| {
            let annotations = metadata.annotations.as_ref();
            annotations.and_then(|found| found.get(key)).is_some_and(|value| value.trim() == "true")
        };
        Self { content, matches: says(RESTART_MATCH), ignored: says(RESTART_IGNORE), asker }
    }

    /// Whether the object itself asks for those that search.
    pub(crate) fn matches(&self) -> bool {
        self.matches && !self.ignored
    }

    /// Whether nobody restarts.
    pub(crate) fn is_ignored(&self) -> bool {
        self.ignored
    }
}

/// Whether a workload restarts, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Restart(&'static str),
    Leave(&'static str),
}

/// Whether the workload with this Pod template and these annotations restarts for a change.
pub(crate) fn verdict(
    changed: &Discovery,
    annotations: &BTreeMap<String, String>,
    template: &Value,
) -> Verdict {
    let restart = annotations.get(RESTART).map(|word| word.trim());
    let has = |key| listed(annotations, key).any(|entry| entry.is(&changed.content));
    let uses = || uses(template).contains(&changed.content);
    match restart {
        _ if changed.ignored => Verdict::Leave("the object says that it is ignored"),
        Some(OFF) => Verdict::Leave("the workload says off"),
        Some(word) if word != AUTO && word != SEARCH => {
            Verdict::Leave("the workload says neither auto nor search nor off")
        }
        _ if has(RESTART_FOR) => Verdict::Restart("the workload names it"),
        _ if !uses() => Verdict::Leave("the workload does not use it"),
        _ if has(RESTART_EXCEPT) => Verdict::Leave("the workload excepts it"),
        _ if changed.asker == Asker::Monitor => Verdict::Restart("the workload uses it"),
        Some(AUTO) => Verdict::Restart("the workload restarts for all that it uses"),
        Some(_) if changed.matches => Verdict::Restart("the workload searches, and it matches"),
        Some(_) => Verdict::Leave("the workload searches, and it does not match"),
        None => Verdict::Leave("the workload asks for nothing"),
    }
}

/// What a workload itself asks for, whatever the annotations of the objects.
pub(crate) fn asked_for(workload: &DynamicObject) -> BTreeSet<ContentRef> {
    let nothing = BTreeMap::new();
    let annotations = workload.metadata.annotations.as_ref().unwrap_or(&nothing);
    // Most workloads ask for nothing.
    if !annotations.contains_key(RESTART) && !annotations.contains_key(RESTART_FOR) {
        return BTreeSet::new();
    }
    let template = template(workload);
    let named = listed(annotations, RESTART_FOR).filter_map(Entry::named);
    let wanted = |content: &ContentRef| {
        let changed = Discovery::new(content.clone(), &ObjectMeta::default(), Asker::Workload);
        matches!(verdict(&changed, annotations, template), Verdict::Restart(_))
    };
    uses(template).into_iter().chain(named).filter(wanted).collect()
}

/// The spec of a workload's Pods; null if it has none of its own.
pub(crate) fn template(workload: &DynamicObject) -> &Value {
    &workload.data["spec"]["template"]["spec"]
}

/// One entry of a list of objects.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    kind: ContentKind,
    name: &'a str,
}

impl Entry<'_> {
    /// Whether it means this object, or all of its kind.
    fn is(self, content: &ContentRef) -> bool {
        self.kind == content.kind && (self.name == "*" || self.name == content.name)
    }

    /// The object that it names.
    fn named(self) -> Option<ContentRef> {
        let Self { kind, name } = self;
        (name != "*").then(|| ContentRef { kind, name: name.to_owned() })
    }
}

/// The entries of an annotation. What is none counts for nothing, and neither does `*` in [`RESTART_FOR`]:
/// somebody must say which objects these are.
fn listed<'a>(
    annotations: &'a BTreeMap<String, String>,
    key: &'a str,
) -> impl Iterator<Item = Entry<'a>> {
    let entries = annotations.get(key).into_iter().flat_map(|text| text.split(','));
    entries.filter_map(move |entry| {
        let (kind, name) = entry.trim().split_once('/')?;
        let kind = match kind {
            "configmap" => ContentKind::ConfigMap,
            "secret" => ContentKind::Secret,
            _ => return None,
        };
        (name != "*" || key == RESTART_EXCEPT).then_some(Entry { kind, name })
    })
}

/// Where a Pod's spec names the ConfigMaps and Secrets that its containers read: `*` is any element of a list.
/// Ephemeral containers are not here: they end with what they were made for.
const READ: [(&[&str], ContentKind); 12] = [
    (&["volumes", "*", "configMap", "name"], ContentKind::ConfigMap),
    (&["volumes", "*", "secret", "secretName"], ContentKind::Secret),
    (&["volumes", "*", "projected", "sources", "*", "configMap", "name"], ContentKind::ConfigMap),
    (&["volumes", "*", "projected", "sources", "*", "secret", "name"], ContentKind::Secret),
    (&["containers", "*", "envFrom", "*", "configMapRef", "name"], ContentKind::ConfigMap),
    (&["containers", "*", "envFrom", "*", "secretRef", "name"], ContentKind::Secret),
    (
        &["containers", "*", "env", "*", "valueFrom", "configMapKeyRef", "name"],
        ContentKind::ConfigMap,
    ),
    (&["containers", "*", "env", "*", "valueFrom", "secretKeyRef", "name"], ContentKind::Secret),
    (&["initContainers", "*", "envFrom", "*", "configMapRef", "name"], ContentKind::ConfigMap),
    (&["initContainers", "*", "envFrom", "*", "secretRef", "name"], ContentKind::Secret),
    (
        &["initContainers", "*", "env", "*", "valueFrom", "configMapKeyRef", "name"],
        ContentKind::ConfigMap,
    ),
    (
        &["initContainers", "*", "env", "*", "valueFrom", "secretKeyRef", "name"],
        ContentKind::Secret,
    ),
];
/// Where a workload has the spec of its Pods.
const TEMPLATE: [&str; 3] = ["spec", "template", "spec"];

/// The ConfigMaps and Secrets that Pods of this spec read.
fn uses(template: &Value) -> BTreeSet<ContentRef> {
    let mut found = BTreeSet::new();
    for (path, kind) in READ {
        names(template, path, &mut |name| {
            found.insert(ContentRef { kind, name: name.to_owned() });
        });
    }
    found
}

/// Calls `each` with every text at a path.
fn names(value: &Value, path: &[&str], each: &mut impl FnMut(&str)) {
    match (path, value) {
        ([], Value::String(name)) => each(name),
        (["*", rest @ ..], Value::Array(elements)) => {
            elements.iter().for_each(|element| names(element, rest, each));
        }
        ([field, rest @ ..], Value::Object(fields)) => {
            fields.get(*field).into_iter().for_each(|value| names(value, rest, each));
        }
        _ => {}
    }
}

/// Whether a part of a workload is not cached: all that no verdict reads.
pub(crate) fn drops(path: &[String]) -> bool {
    let (first, rest) =
        path.split_first().map_or(("", path), |(first, rest)| (first.as_str(), rest));
    match first {
        "metadata" => match rest {
            [field] => !matches!(field.as_str(), "name" | "namespace" | "annotations"),
            [field, key] if field == "annotations" => {
                ![RESTART, RESTART_FOR, RESTART_EXCEPT].contains(&key.as_str())
            }
            _ => false,
        },
        "spec" => !READ.iter().any(|(read, _)| {
            let read = TEMPLATE.iter().chain(*read);
            read.zip(path).all(|(one, other)| one == other)
        }),
        _ => true,
    }
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
