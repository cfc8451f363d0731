//! Which workloads restart for a ConfigMap or Secret. Pure.
//!
//! A workload uses what the containers of its Pod template, init containers included, mount or take their
//! environment from. Whether it restarts for that is for its own annotations to say, and for those of the object;
//! a ConfigMonitor without a selector asks for all that use the object and do not refuse. A Rollout may run the
//! template of a Deployment: then it uses what that uses, and that says what it does not say itself.
//!
//! `verdict` is the only place that decides. What is watched, and what is cached of a workload, follows
//! from it: `concerned`, `drops`. What an annotation says that cannot be read is told: `unread`.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::core::{DynamicObject, ObjectMeta};
use sdk::error::foreign_to;
use sdk::is_object_name;
use serde_json::Value;

use super::content::ContentKind::{self, ConfigMap, Secret};
use super::content::ContentRef;

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

/// What these begin with.
const PREFIX: &str = "leasehold.dev/restart";
/// Those of workloads.
const OF_WORKLOADS: [&str; 3] = [RESTART, RESTART_FOR, RESTART_EXCEPT];
/// The most characters of an annotation that are repeated.
const MAX_CHARS: usize = 80;

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
    unread: Option<String>,
    asker: Asker,
}

impl Discovery {
    /// Of an object with this metadata.
    pub(crate) fn new(content: ContentRef, metadata: &ObjectMeta, asker: Asker) -> Self {
        let words = |key: &'static str| metadata.annotations.as_ref()?.get(key);
        let flag = |key| words(key).map_or(Some(false), |word| truth(word));
        let unread = |key| {
            let word = words(key).filter(|word| truth(word).is_none())?;
            Some(format!("annotation {key} is {}: write true or false", quoted(word)))
        };
        Self {
            content,
            matches: flag(RESTART_MATCH) == Some(true),
            // Who wrote what cannot be read did not want a restart.
            ignored: flag(RESTART_IGNORE) != Some(false),
            unread: unread(RESTART_IGNORE).or_else(|| unread(RESTART_MATCH)),
            asker,
        }
    }

    /// What changed.
    pub(crate) fn content(&self) -> &ContentRef {
        &self.content
    }

    /// Whether the object itself asks for those that search.
    pub(crate) fn matches(&self) -> bool {
        self.matches && !self.ignored
    }

    /// Whether nobody restarts.
    pub(crate) fn is_ignored(&self) -> bool {
        self.ignored
    }

    /// What of the object's annotations cannot be read, for people.
    pub(crate) fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
    }
}

fn truth(word: &str) -> Option<bool> {
    match word.trim() {
        "true" => Some(true),
        "false" | "" => Some(false),
        _ => None,
    }
}

/// What somebody wrote, for people.
fn quoted(text: &str) -> String {
    format!("{:?}", foreign_to(text, MAX_CHARS))
}

/// Whether a workload restarts, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Restart(&'static str),
    Leave(&'static str),
}

/// What a workload says of restarts, and what its Pods read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asking {
    annotations: BTreeMap<String, String>,
    uses: BTreeSet<ContentRef>,
    /// Whether its Pods are of a template elsewhere that is not read.
    is_blind: bool,
}

impl Asking {
    /// Of a workload.
    pub(crate) fn of(workload: &DynamicObject) -> Self {
        let said = workload.annotations().iter().filter(|(key, _)| key.starts_with(PREFIX));
        let annotations = said.map(|(key, word)| (key.clone(), word.clone())).collect();
        let spec = &workload.data["spec"];
        let is_blind = !spec["workloadRef"].is_null() && referred(workload).is_none();
        Self { annotations, uses: uses(&spec["template"]["spec"]), is_blind }
    }

    /// The same of a workload that runs the template of a Deployment: that says what it does not say itself.
    #[must_use]
    pub(crate) fn running(self, deployment: Option<&Self>) -> Self {
        let Self { mut annotations, mut uses, .. } = deployment.cloned().unwrap_or_default();
        annotations.extend(self.annotations);
        uses.extend(self.uses);
        Self { annotations, uses, ..self }
    }

    /// Whether it says nothing of restarts.
    pub(crate) fn is_silent(&self) -> bool {
        self.annotations.is_empty()
    }

    /// Whether its Pods read a ConfigMap or Secret.
    pub(crate) fn is_user(&self) -> bool {
        !self.uses.is_empty()
    }

    /// Whether its Pods read this one.
    pub(crate) fn is_user_of(&self, content: &ContentRef) -> bool {
        self.uses.contains(content)
    }

    /// Whether the workload restarts for a change.
    pub(crate) fn verdict(&self, changed: &Discovery) -> Verdict {
        let restart = self.annotations.get(RESTART).map(|word| word.trim());
        let has = |key| listed(&self.annotations, key).any(|entry| entry.is(&changed.content));
        match restart {
            _ if changed.ignored => Verdict::Leave("the object says that it is ignored"),
            Some(OFF) => Verdict::Leave("the workload says off"),
            Some(word) if word != AUTO && word != SEARCH => {
                Verdict::Leave("the workload says neither auto nor search nor off")
            }
            _ if has(RESTART_FOR) => Verdict::Restart("the workload names it"),
            _ if !self.is_user_of(&changed.content) => {
                Verdict::Leave("the workload does not use it")
            }
            _ if has(RESTART_EXCEPT) => Verdict::Leave("the workload excepts it"),
            _ if changed.asker == Asker::Monitor => Verdict::Restart("the workload uses it"),
            Some(AUTO) => Verdict::Restart("the workload restarts for all that it uses"),
            Some(_) if changed.matches => Verdict::Restart("the workload searches, and it matches"),
            Some(_) => Verdict::Leave("the workload searches, and it does not match"),
            None => Verdict::Leave("the workload asks for nothing"),
        }
    }

    /// What the workload itself asks for, whatever the annotations of the objects.
    fn asked_for(&self) -> BTreeSet<ContentRef> {
        // Most workloads ask for nothing.
        if self.is_silent() {
            return BTreeSet::new();
        }
        let named = listed(&self.annotations, RESTART_FOR).filter_map(Entry::named);
        let wanted = |content: &ContentRef| {
            let changed = Discovery::new(content.clone(), &ObjectMeta::default(), Asker::Workload);
            matches!(self.verdict(&changed), Verdict::Restart(_))
        };
        self.uses.iter().cloned().chain(named).filter(wanted).collect()
    }

    /// What it asks for, and what it may mean where its annotations cannot be read: there that is told.
    pub(crate) fn concerned(&self) -> BTreeSet<ContentRef> {
        let mut found = self.asked_for();
        if self.problem().is_some() {
            let entries = [RESTART_FOR, RESTART_EXCEPT].into_iter();
            let entries = entries.flat_map(|key| malformed(&self.annotations, key));
            let names = entries.map(|entry| entry.rsplit('/').next().unwrap_or(entry).trim());
            let meant = names.filter(|name| is_object_name(name));
            let meant =
                meant.flat_map(|name| [ContentRef::config_map(name), ContentRef::secret(name)]);
            found.extend(self.uses.iter().cloned().chain(meant));
        }
        found
    }

    /// What of its annotations cannot be read and may concern an object, for people. What it wants to restart for and
    /// nobody knows may be any object.
    pub(crate) fn unread(&self, content: &ContentRef) -> Option<String> {
        let problem = self.problem().filter(|_| self.concerned().contains(content));
        problem.or_else(|| {
            let names = self.annotations.contains_key(RESTART_FOR);
            let word = self.annotations.get(RESTART).filter(|_| self.is_blind && !names)?;
            let asks = [AUTO, SEARCH].contains(&word.trim());
            asks.then(|| {
                format!(
                    "annotation {RESTART} is {}, and what its Pods use is known only where workloadRef names a \
                     Deployment: name that in {RESTART_FOR}",
                    quoted(word)
                )
            })
        })
    }

    /// The first of its annotations that cannot be read.
    fn problem(&self) -> Option<String> {
        let word = self.annotations.get(RESTART);
        let word = word.filter(|word| ![AUTO, SEARCH, OFF].contains(&word.trim()));
        let word = word.map(|word| {
            format!("annotation {RESTART} is {}: write {AUTO}, {SEARCH} or {OFF}", quoted(word))
        });
        let entry = |key| {
            let entry = malformed(&self.annotations, key).next()?;
            let entry = quoted(entry);
            Some(format!("annotation {key} has {entry}: write configmap/NAME or secret/NAME"))
        };
        let other = || unknown(self.annotations.keys(), &OF_WORKLOADS, "workloads");
        word.or_else(|| entry(RESTART_FOR)).or_else(|| entry(RESTART_EXCEPT)).or_else(other)
    }
}

/// What to say of the first of these annotations that begins as ours do and is none of the `known`.
pub(crate) fn unknown<'a>(
    mut keys: impl Iterator<Item = &'a String>,
    known: &[&str],
    of: &str,
) -> Option<String> {
    let key = keys.find(|key| key.starts_with(PREFIX) && !known.contains(&key.as_str()))?;
    Some(format!("annotation {key} is none of those of {of}: write {}", known.join(", ")))
}

/// Where a Rollout names the workload whose template it runs.
const REFERENCE: [&str; 2] = ["spec", "workloadRef"];

/// The name of the Deployment whose template a Rollout runs. It may name a ReplicaSet or a PodTemplate too, which are not
/// read.
pub(crate) fn referred(workload: &DynamicObject) -> Option<&str> {
    let reference = &workload.data["spec"]["workloadRef"];
    let (group, _) = reference["apiVersion"].as_str()?.split_once('/')?;
    let is_deployment = group == "apps" && reference["kind"] == "Deployment";
    reference["name"].as_str().filter(|_| is_deployment)
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

/// The entries of an annotation, and which text each is. Where that is none, nothing is: so is `*` in [`RESTART_FOR`], as
/// somebody must say which objects these are.
fn entries<'a>(
    annotations: &'a BTreeMap<String, String>,
    key: &'a str,
) -> impl Iterator<Item = (&'a str, Option<Entry<'a>>)> {
    let entries = annotations.get(key).into_iter().flat_map(|text| text.split(','));
    let entries = entries.map(str::trim).filter(|entry| !entry.is_empty());
    entries.map(move |text| {
        let entry = text.split_once('/').and_then(|(kind, name)| {
            let kind = match kind {
                "configmap" => ConfigMap,
                "secret" => Secret,
                _ => return None,
            };
            let is_all = name == "*" && key == RESTART_EXCEPT;
            (is_all || is_object_name(name)).then_some(Entry { kind, name })
        });
        (text, entry)
    })
}

/// The entries of an annotation that can be read.
fn listed<'a>(
    annotations: &'a BTreeMap<String, String>,
    key: &'a str,
) -> impl Iterator<Item = Entry<'a>> {
    entries(annotations, key).filter_map(|(_, entry)| entry)
}

/// The entries of an annotation that cannot be read.
fn malformed<'a>(
    annotations: &'a BTreeMap<String, String>,
    key: &'a str,
) -> impl Iterator<Item = &'a str> {
    entries(annotations, key).filter_map(|(text, entry)| entry.is_none().then_some(text))
}

/// Where a Pod's spec names the ConfigMaps and Secrets that its containers read: `*` is any element of a list.
/// Ephemeral containers are not here: they end with what they were made for.
const READ: [(&[&str], ContentKind); 12] = [
    (&["volumes", "*", "configMap", "name"], ConfigMap),
    (&["volumes", "*", "secret", "secretName"], Secret),
    (&["volumes", "*", "projected", "sources", "*", "configMap", "name"], ConfigMap),
    (&["volumes", "*", "projected", "sources", "*", "secret", "name"], Secret),
    (&["containers", "*", "envFrom", "*", "configMapRef", "name"], ConfigMap),
    (&["containers", "*", "envFrom", "*", "secretRef", "name"], Secret),
    (&["containers", "*", "env", "*", "valueFrom", "configMapKeyRef", "name"], ConfigMap),
    (&["containers", "*", "env", "*", "valueFrom", "secretKeyRef", "name"], Secret),
    (&["initContainers", "*", "envFrom", "*", "configMapRef", "name"], ConfigMap),
    (&["initContainers", "*", "envFrom", "*", "secretRef", "name"], Secret),
    (&["initContainers", "*", "env", "*", "valueFrom", "configMapKeyRef", "name"], ConfigMap),
    (&["initContainers", "*", "env", "*", "valueFrom", "secretKeyRef", "name"], Secret),
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
            [field, key] if field == "annotations" => !key.starts_with(PREFIX),
            _ => false,
        },
        "spec" => {
            let refers = REFERENCE.iter().zip(path).all(|(one, other)| one == other);
            let reads = READ.iter().any(|(read, _)| {
                let read = TEMPLATE.iter().chain(*read);
                read.zip(path).all(|(one, other)| one == other)
            });
            !refers && !reads
        }
        _ => true,
    }
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
