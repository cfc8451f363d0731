//! Which workloads a TDSet may scale, and what keeps it from one. Pure.
//!
//! A target is in the TDSet's namespace and of a kind that the administrator allows: whoever writes a TDSet
//! uses the manager's rights, and gets no more of them.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use sdk::{Kind, controlled_by, is_object_name};
use serde::Deserialize;
use serde_json::Value;

use super::api::{TDSet, TDSetSpec, TargetRef};
use super::children::may_adopt;
use super::invalid::Invalid;

/// The keys of the configuration's section `controllers.tdset` that are this controller's own.
pub(super) const KEYS: &[&str] = &["targets"];
/// The most kinds of the list.
const MAX_TARGETS: usize = 20;
/// The longest name in it, in bytes: that of a DNS name.
const MAX_NAME: usize = 253;
/// The name of the index of TDSets by their workload. Its values are those of [`value`].
pub(super) const TARGETS: &str = "target";

/// The administrator's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Settings {
    targets: Vec<Entry>,
}

/// A kind with a scale subresource.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    group: String,
    version: String,
    kind: String,
    plural: String,
}

/// What the number of replicas is set of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub kind: Kind,
    pub name: String,
    /// Whether the TDSet makes it.
    pub own: bool,
}

/// Whether the settings can be used.
///
/// # Errors
/// What is wrong with them.
pub(super) fn check(settings: &Value) -> Result<(), String> {
    let Settings { targets } = parse(settings)?;
    if targets.len() > MAX_TARGETS {
        return Err(format!("targets has {} kinds; allowed: at most {MAX_TARGETS}", targets.len()));
    }
    for Entry { group, version, kind, plural } in &targets {
        let parts = [group, version, kind, plural];
        if parts.iter().any(|part| part.is_empty() || part.len() > MAX_NAME || part.contains('/')) {
            return Err(format!(
                "targets has {group:?}, {version:?}, {kind:?}, {plural:?}; allowed: group, version, kind and \
                 plural of a kind outside of the core group, as argoproj.io, v1alpha1, Rollout, rollouts"
            ));
        }
    }
    let mut all: Vec<_> =
        kinds(settings)?.into_iter().map(|kind| (kind.group, kind.kind)).collect();
    all.sort();
    match all.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => {
            let (group, kind) = &twice[0];
            Err(format!("targets has {kind} of {group}, which is allowed already"))
        }
        None => Ok(()),
    }
}

fn parse(settings: &Value) -> Result<Settings, String> {
    if settings.is_null() {
        return Ok(Settings::default());
    }
    Settings::deserialize(settings).map_err(|error| error.to_string())
}

/// The kind that a TDSet makes, and which it may always scale.
pub(super) fn deployment() -> Kind {
    Kind::new("apps", "v1", "Deployment", "deployments", true)
}

/// The kinds that a `targetRef` may name: the built-in ones first.
///
/// # Errors
/// If the settings have another form.
pub(super) fn kinds(settings: &Value) -> Result<Vec<Kind>, String> {
    let listed = parse(settings)?.targets.into_iter();
    let listed = listed.map(|Entry { group, version, kind, plural }| {
        Kind::new(&group, &version, &kind, &plural, true)
    });
    let stateful_set = Kind::new("apps", "v1", "StatefulSet", "statefulsets", true);
    Ok([deployment(), stateful_set].into_iter().chain(listed).collect())
}

impl Target {
    /// The workload of a TDSet.
    ///
    /// # Errors
    /// If the spec names none, several, or one of a kind that is not allowed.
    pub(super) fn of(set: &TDSet, allowed: &[Kind]) -> Result<Self, Invalid> {
        let TDSetSpec { container, template, target_ref, service, .. } = &set.spec;
        let given = [container.is_some(), template.is_some(), target_ref.is_some()];
        let count = given.into_iter().filter(|given| *given).count();
        if count != 1 {
            return Err(Invalid::Workloads { count });
        }
        let Some(TargetRef { api_version, kind, name }) = target_ref else {
            return Ok(Self { kind: deployment(), name: set.name_any(), own: true });
        };
        if service.as_ref().is_some_and(|service| service.port.is_some()) {
            return Err(Invalid::Service);
        }
        if !is_object_name(name) {
            return Err(Invalid::Name { name: name.clone() });
        }
        let (group, _) = api_version.split_once('/').unwrap_or_default();
        let found = allowed.iter().find(|known| (&*known.group, &*known.kind) == (group, kind));
        let Some(found) = found else {
            let allowed: Vec<_> =
                allowed.iter().map(|kind| format!("{} of {}", kind.kind, kind.group)).collect();
            return Err(Invalid::Kind {
                kind: kind.clone(),
                api_version: api_version.clone(),
                allowed: allowed.join(", "),
            });
        };
        Ok(Self { kind: found.clone(), name: name.clone(), own: false })
    }

    /// The target as people write it.
    pub(super) fn label(&self) -> String {
        format!("{}/{}", self.kind.kind, self.name)
    }

    /// The value under which the TDSets are that scale it.
    pub(super) fn value(&self, namespace: &str) -> String {
        value(&self.kind.group, &self.kind.kind, namespace, &self.name)
    }
}

/// The values under which a TDSet is in the index [`TARGETS`].
pub(super) fn values(set: &TDSet) -> Vec<String> {
    let namespace = set.namespace().unwrap_or_default();
    let target = match &set.spec.target_ref {
        Some(TargetRef { api_version, kind, name }) => {
            let (group, _) = api_version.split_once('/').unwrap_or_default();
            value(group, kind, &namespace, name)
        }
        None => value("apps", "Deployment", &namespace, &set.name_any()),
    };
    vec![target]
}

/// The values under which an autoscaler is in that index.
pub(super) fn values_of(autoscaler: &HorizontalPodAutoscaler) -> Vec<String> {
    let to = &autoscaler.spec.scale_target_ref;
    let version = to.api_version.as_deref().unwrap_or_default();
    let (group, _) = version.split_once('/').unwrap_or_default();
    vec![value(group, &to.kind, &autoscaler.namespace().unwrap_or_default(), &to.name)]
}

/// The values under which a Rollout of Argo is in that index: of the workload whose template it runs.
pub(super) fn values_run(rollout: &DynamicObject) -> Vec<String> {
    let run = &rollout.data["spec"]["workloadRef"];
    let text = |field: &str| run[field].as_str().unwrap_or_default();
    let (group, _) = text("apiVersion").split_once('/').unwrap_or_default();
    vec![value(group, text("kind"), &rollout.namespace().unwrap_or_default(), text("name"))]
}

/// Whether these are Rollouts of Argo.
pub(super) fn is_rollout(kind: &Kind) -> bool {
    (&*kind.group, &*kind.kind) == ("argoproj.io", "Rollout")
}

/// The value under which the TDSets are that scale this object.
pub(super) fn value(group: &str, kind: &str, namespace: &str, name: &str) -> String {
    format!("{group}/{kind}/{namespace}/{name}")
}

/// The one of several TDSets of one workload that scales it: the one that makes it, else the first that was
/// made. `None` if it is `set`. One that is suspended leaves a workload of others to others, and one that would make
/// `found`, the Deployment of that name, scales nothing while that is not its own.
pub(super) fn rival<'a>(
    set: &TDSet,
    others: impl Iterator<Item = &'a TDSet>,
    found: Option<&Deployment>,
) -> Option<String> {
    let scales = |set: &TDSet| {
        let makes = |found| controlled_by(found, set) || may_adopt(set, found);
        set.spec.target_ref.is_some() || found.is_none_or(makes)
    };
    if !scales(set) {
        return None;
    }
    let age = |set: &TDSet| {
        let made = set.creation_timestamp().map(|made| made.0);
        (set.spec.target_ref.is_some(), made, set.name_any())
    };
    let yields = |set: &TDSet| set.spec.suspend && set.spec.target_ref.is_some();
    let scaling =
        others.filter(|other| other.meta().deletion_timestamp.is_none() && !yields(other));
    let scaling = scaling.filter(|other| scales(other));
    let first = scaling.filter(|other| other.uid() != set.uid()).min_by_key(|other| age(other))?;
    (age(first) < age(set)).then(|| first.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rollout() -> Value {
        json!({"group": "argoproj.io", "version": "v1alpha1", "kind": "Rollout", "plural": "rollouts"})
    }

    fn set(spec: Value) -> TDSet {
        TDSet::new("web", serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn only_what_the_list_has_may_be_scaled() {
        let to = |version: &str, kind: &str| json!({"targetRef": {"apiVersion": version, "kind": kind, "name": "db"}});
        let container = || json!({"container": {"image": "i", "port": 1}});
        let with = |mut one: Value, other: Value| {
            one.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
            one
        };
        let service = || json!({"service": {"port": 80}});
        for (spec, expect) in [
            (container(), Ok("Deployment/web")),
            (json!({"template": {}}), Ok("Deployment/web")),
            (with(container(), service()), Ok("Deployment/web")),
            (json!({"targetRef": {"kind": "StatefulSet", "name": "db"}}), Ok("StatefulSet/db")),
            (to("apps/v1", "Deployment"), Ok("Deployment/db")),
            (to("argoproj.io/v1alpha1", "Rollout"), Ok("Rollout/db")),
            (to("apps/v1", "DaemonSet"), Err("not DaemonSet of apps/v1")),
            (to("apps/v1", "Rollout"), Err("Rollout of argoproj.io, not Rollout of apps/v1")),
            (to("v1", "ReplicationController"), Err("controllers.tdset.targets")),
            (to("evil.io/v1", "Deployment"), Err("not Deployment of evil.io/v1")),
            (json!({}), Err("spec has 0 of container, template and targetRef")),
            (with(container(), to("apps/v1", "Deployment")), Err("spec has 2 of")),
            (with(to("apps/v1", "Deployment"), service()), Err("remove it, or spec.targetRef")),
            (
                json!({"targetRef": {"kind": "Deployment", "name": "web "}}),
                Err("\"web \", which is no name of an object"),
            ),
        ] {
            let allowed = kinds(&json!({"targets": [rollout()]})).unwrap();
            let found = Target::of(&set(spec.clone()), &allowed);
            match (found, expect) {
                (Ok(target), Ok(label)) => assert_eq!(target.label(), label),
                (Err(problem), Err(words)) => {
                    assert!(problem.to_string().contains(words), "{problem}");
                }
                (found, _) => panic!("{spec}: {found:?}"),
            }
        }
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused() {
        let targets = |targets: Vec<Value>| json!({"targets": targets});
        let many = (0..=MAX_TARGETS).map(|number| {
            let mut one = rollout();
            one["kind"] = format!("K{number}").into();
            one
        });
        let with = |key: &str, value: String| {
            let mut one = rollout();
            one[key] = value.into();
            targets(vec![one])
        };
        for (settings, words) in [
            (json!({"target": []}), "unknown field `target`"),
            (targets(vec![json!({"kind": "Rollout"})]), "missing field `group`"),
            (targets(many.collect()), "targets has 21 kinds; allowed: at most 20"),
            (
                targets(vec![rollout(), rollout()]),
                "Rollout of argoproj.io, which is allowed already",
            ),
            (with("group", String::new()), "outside of the core group"),
            (with("version", "apps/v1".to_owned()), "group, version, kind and plural"),
            (with("plural", "p".repeat(MAX_NAME + 1)), "group, version, kind and plural"),
        ] {
            let problem = check(&settings).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
        assert_eq!(check(&Value::Null), Ok(()));
        assert_eq!(check(&targets(vec![rollout()])), Ok(()));
    }

    #[test]
    fn of_several_for_one_workload_the_first_scales_it() {
        let made = |name: &str, at: &str| {
            let mut set = set(json!({}));
            set.metadata.name = Some(name.to_owned());
            set.metadata.uid = Some(name.to_owned());
            set.metadata.creation_timestamp = Some(serde_json::from_value(json!(at)).unwrap());
            set
        };
        let [a, b] = ["a", "b"].map(|name| made(name, "2026-01-02T00:00:00Z"));
        let old = made("z", "2026-01-01T00:00:00Z");
        let mut guest = made("guest", "2025-01-01T00:00:00Z");
        guest.spec.target_ref = serde_json::from_value(json!({"kind": "D", "name": "n"})).unwrap();
        let all = [a.clone(), b.clone(), old.clone(), guest.clone()];
        assert_eq!(rival(&guest, all.iter(), None).as_deref(), Some("z"));
        assert_eq!(rival(&old, all.iter(), None), None);
        assert_eq!(rival(&a, all.iter(), None).as_deref(), Some("z"));
        assert_eq!(rival(&b, [a, b.clone()].iter(), None).as_deref(), Some("a"));
        // One that is suspended yields, unless it makes the workload.
        let mut suspended = guest.clone();
        suspended.spec.suspend = true;
        let mut later = made("later", "2026-01-03T00:00:00Z");
        later.spec.target_ref = guest.spec.target_ref.clone();
        assert_eq!(rival(&later, [guest].iter(), None).as_deref(), Some("guest"));
        assert_eq!(rival(&later, [suspended.clone()].iter(), None), None);
        assert_eq!(rival(&suspended, [later.clone()].iter(), None), None);
        let maker = TDSet { spec: TDSetSpec { suspend: true, ..old.spec.clone() }, ..old.clone() };
        assert_eq!(rival(&later, [maker].iter(), None).as_deref(), Some("z"));
        let going = TDSet {
            metadata: kube::core::ObjectMeta {
                deletion_timestamp: old.metadata.creation_timestamp.clone(),
                ..old.metadata.clone()
            },
            ..old
        };
        assert_eq!(rival(&b, [going].iter(), None), None);
    }

    /// A manifest of the name of somebody's Deployment stops nobody who scales that.
    #[test]
    fn one_that_makes_nothing_is_nobodys_rival() {
        let mut maker = set(json!({"container": {"image": "i", "port": 1}}));
        maker.metadata.uid = Some("maker".to_owned());
        let mut guest = set(json!({"targetRef": {"kind": "Deployment", "name": "web"}}));
        guest.metadata.name = Some("hours".to_owned());
        guest.metadata.uid = Some("guest".to_owned());
        let owned = |uid: Option<&str>| -> Deployment {
            let owner = uid.map(|uid| {
                json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": true}])
            });
            let spec = json!({"selector": {}, "template": {}});
            serde_json::from_value(json!({"metadata": {"ownerReferences": owner}, "spec": spec}))
                .unwrap()
        };
        let adopting =
            TDSet { spec: TDSetSpec { adopt: true, ..maker.spec.clone() }, ..maker.clone() };
        let (free, theirs, own) = (owned(None), owned(Some("other")), owned(Some("maker")));
        for (maker, found, wins) in [
            (&maker, None, true),
            (&maker, Some(&own), true),
            (&maker, Some(&free), false),
            (&maker, Some(&theirs), false),
            (&adopting, Some(&free), true),
            (&adopting, Some(&theirs), false),
        ] {
            let all = [maker.clone(), guest.clone()];
            let by_guest = rival(&guest, all.iter(), found);
            assert_eq!(by_guest.is_some(), wins, "{maker:?} {found:?}");
            assert_eq!(rival(maker, all.iter(), found), None);
        }
    }
}
