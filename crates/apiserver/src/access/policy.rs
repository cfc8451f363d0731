//! RBAC: which rules a user's bindings grant, and whether they allow a request. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::attributes::Attributes;
use super::user::{User, service_account_name};
use crate::objects::meta;

/// The objects that decide.
#[derive(Debug, Default)]
pub struct Policy {
    /// Rules by namespace and name; the namespace of a ClusterRole is empty.
    roles: BTreeMap<(String, String), Vec<Rule>>,
    /// Bindings by namespace; that of a ClusterRoleBinding is empty.
    bindings: BTreeMap<String, Vec<Binding>>,
}

/// What is allowed to whom a role is bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Verbs, or `*`.
    pub verbs: Vec<String>,
    /// API groups, or `*`.
    pub groups: Vec<String>,
    /// Resources such as `pods`, `pods/log`, `*/scale` or `*`.
    pub resources: Vec<String>,
    /// Object names; empty means all of them.
    pub names: Vec<String>,
    /// Paths, which may end in `*`.
    pub paths: Vec<String>,
}

#[derive(Debug)]
struct Binding {
    name: String,
    namespace: String,
    role_kind: String,
    role: String,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// Whether a request is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is.
    pub allowed: bool,
    /// Why, in words; may be empty.
    pub reason: String,
}

/// A binding that applies to a user, the subject by which it does, and the rules it grants.
struct Grant<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
    rules: Result<&'a [Rule], String>,
}

// === impl Policy ===

impl Policy {
    /// Reads Roles and ClusterRoles, RoleBindings and ClusterRoleBindings.
    pub fn build<'a>(
        roles: impl Iterator<Item = &'a Value>,
        bindings: impl Iterator<Item = &'a Value>,
    ) -> Self {
        let mut policy = Self::default();
        for role in roles {
            let key = (meta(role, "namespace").to_owned(), meta(role, "name").to_owned());
            policy.roles.insert(key, items(&role["rules"]).map(Rule::read).collect());
        }
        for binding in bindings.map(Binding::read) {
            policy.bindings.entry(binding.namespace.clone()).or_default().push(binding);
        }
        policy
    }

    /// Decides a request.
    pub fn authorize(&self, user: &User, attributes: &Attributes) -> Verdict {
        let mut failures = Vec::new();
        for grant in self.grants(user, &attributes.namespace) {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    let reason = format!("RBAC: allowed by {}", grant.describe());
                    return Verdict { allowed: true, reason };
                }
                Ok(_) => {}
                Err(failure) => failures.push(failure.clone()),
            }
        }
        let reason = aggregated(failures).map(|all| format!("rbac: RBAC: {all}"));
        Verdict { allowed: false, reason: reason.unwrap_or_default() }
    }

    /// The rules of a user in a namespace, and what went wrong in finding them.
    pub fn rules_of(&self, user: &User, namespace: &str) -> (Vec<&Rule>, Option<String>) {
        let (mut rules, mut failures) = (Vec::new(), Vec::new());
        for grant in self.grants(user, namespace) {
            match grant.rules {
                Ok(granted) => rules.extend(granted),
                Err(failure) => failures.push(failure),
            }
        }
        (rules, aggregated(failures))
    }

    fn grants<'p>(&'p self, user: &User, namespace: &str) -> impl Iterator<Item = Grant<'p>> {
        let local = (!namespace.is_empty()).then_some(namespace);
        let bindings = std::iter::once("").chain(local);
        bindings.filter_map(|ns| self.bindings.get(ns)).flatten().filter_map(move |binding| {
            let subject = binding.subjects.iter().find(|s| s.is(user, &binding.namespace))?;
            Some(Grant { binding, subject, rules: self.rules(binding) })
        })
    }

    fn rules(&self, binding: &Binding) -> Result<&[Rule], String> {
        let namespace = match binding.role_kind.as_str() {
            "Role" => binding.namespace.as_str(),
            "ClusterRole" => "",
            other => return Err(format!("unsupported role reference kind: {other:?}")),
        };
        let key = (namespace.to_owned(), binding.role.clone());
        self.roles.get(&key).map(Vec::as_slice).ok_or_else(|| {
            let kind = binding.role_kind.to_lowercase();
            format!("{kind}.rbac.authorization.k8s.io {:?} not found", binding.role)
        })
    }
}

/// Several failures as one text, each of them once.
fn aggregated(failures: Vec<String>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let once: Vec<String> = failures.into_iter().filter(|f| seen.insert(f.clone())).collect();
    match once.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

// === impl Rule ===

impl Rule {
    fn read(value: &Value) -> Self {
        Self {
            verbs: texts(&value["verbs"]),
            groups: texts(&value["apiGroups"]),
            resources: texts(&value["resources"]),
            names: texts(&value["resourceNames"]),
            paths: texts(&value["nonResourceURLs"]),
        }
    }

    /// Whether it allows a request.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        if !has(&self.verbs, &attributes.verb) {
            return false;
        }
        match &attributes.path {
            Some(path) => self.paths.iter().any(|allowed| path_matches(allowed, path)),
            None => {
                has(&self.groups, &attributes.group)
                    && self.has_resource(attributes)
                    && (self.names.is_empty() || self.names.contains(&attributes.name))
            }
        }
    }

    fn has_resource(&self, attributes: &Attributes) -> bool {
        let sub = attributes.subresource.as_str();
        has(&self.resources, &attributes.full_resource())
            || !sub.is_empty()
                && self.resources.iter().any(|r| r.strip_prefix("*/").is_some_and(|of| of == sub))
    }
}

/// Whether a list has a text, or `*`.
fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|item| item == "*" || item == text)
}

fn path_matches(allowed: &str, path: &str) -> bool {
    allowed == path || allowed.ends_with('*') && path.starts_with(allowed.trim_end_matches('*'))
}

// === impl Binding, Subject, Grant ===

impl Binding {
    fn read(value: &Value) -> Self {
        let role = &value["roleRef"];
        Self {
            name: meta(value, "name").into(),
            namespace: meta(value, "namespace").into(),
            role_kind: text(&role["kind"]),
            role: text(&role["name"]),
            subjects: items(&value["subjects"]).map(Subject::read).collect(),
        }
    }
}

impl Subject {
    fn read(value: &Value) -> Self {
        Self {
            kind: text(&value["kind"]),
            name: text(&value["name"]),
            namespace: text(&value["namespace"]),
        }
    }

    /// A ServiceAccount without a namespace is in that of the binding.
    fn namespace<'a>(&'a self, binding: &'a str) -> &'a str {
        if self.namespace.is_empty() { binding } else { &self.namespace }
    }

    fn is(&self, user: &User, binding: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == user.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => {
                let namespace = self.namespace(binding);
                !namespace.is_empty() && user.name == service_account_name(namespace, &self.name)
            }
            _ => false,
        }
    }
}

impl Grant<'_> {
    fn describe(&self) -> String {
        let Binding { name, namespace, role_kind, role, .. } = self.binding;
        let (kind, place) = match namespace.as_str() {
            "" => ("ClusterRoleBinding", name.clone()),
            _ => ("RoleBinding", format!("{name}/{namespace}")),
        };
        let subject = match self.subject.kind.as_str() {
            "ServiceAccount" => {
                format!("{}/{}", self.subject.name, self.subject.namespace(namespace))
            }
            _ => self.subject.name.clone(),
        };
        let subject_kind = &self.subject.kind;
        format!("{kind} {place:?} of {role_kind} {role:?} to {subject_kind} {subject:?}")
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text; an empty one if there is none.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The texts of a list.
pub fn texts(value: &Value) -> Vec<String> {
    items(value).map(text).collect()
}

#[cfg(test)]
mod tests;
