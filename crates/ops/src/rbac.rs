//! `leasehold rbac`: the rights that people need for the other commands, as manifests. Pure.

use std::str::FromStr;

use clap::ValueEnum;
use k8s_openapi::api::rbac::v1::PolicyRule;
use model::uid_hash;
use sdk::rbac::rule;
use serde_json::{Value, json};

/// Arguments of `leasehold rbac`.
#[derive(Debug, clap::Args)]
pub(crate) struct RbacArgs {
    /// Who gets them: a user's name, `group:NAME` or `serviceaccount:NAMESPACE/NAME`.
    #[arg(long = "for", value_name = "USER")]
    subject: Subject,
    /// What they do.
    #[arg(long = "as", value_enum, default_value_t = Role::Viewer)]
    role: Role,
    /// The namespace of Leases, Members and ShardMaps.
    #[arg(long, short, value_name = "NAME", default_value = crate::home::DEFAULT_NAMESPACE)]
    namespace: String,
}

/// What somebody does with a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Look: status, explain, top, console, events, doctor, support-bundle.
    Viewer,
    /// Also drain members and write policies: drain, pause, resume, pin, avoid, weigh, limit, lift.
    Operator,
    /// Also add clusters and remove them, which needs their Secrets.
    Admin,
}

/// Who gets rights.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} names nobody: write a user, group:NAME or serviceaccount:NAMESPACE/NAME"
            )
        };
        let subject = match text.split_once(':') {
            Some(("group", name)) => Self::Group(name.to_owned()),
            Some(("serviceaccount", name)) => {
                let (namespace, name) = name.split_once('/').ok_or_else(wrong)?;
                Self::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            _ => Self::User(text.to_owned()),
        };
        let is_empty = match &subject {
            Self::User(name) | Self::Group(name) => name.is_empty(),
            Self::ServiceAccount { namespace, name } => namespace.is_empty() || name.is_empty(),
        };
        if is_empty { Err(wrong()) } else { Ok(subject) }
    }
}

impl Subject {
    fn manifest(&self) -> Value {
        let group = "rbac.authorization.k8s.io";
        match self {
            Self::User(name) => json!({"apiGroup": group, "kind": "User", "name": name}),
            Self::Group(name) => json!({"apiGroup": group, "kind": "Group", "name": name}),
            Self::ServiceAccount { namespace, name } => {
                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
            }
        }
    }
}

/// The manifests, as YAML.
///
/// # Errors
/// None that is known of: what is printed are plain values.
pub(crate) fn yaml(args: &RbacArgs) -> anyhow::Result<String> {
    let mut text = String::new();
    for manifest in manifests(args) {
        text += &format!("---\n{}\n", serde_saphyr::to_string(&manifest)?.trim_end());
    }
    Ok(text)
}

fn manifests(args: &RbacArgs) -> Vec<Value> {
    let RbacArgs { subject, role, namespace } = args;
    let name = format!("leasehold-{}", name_of(*role));
    // Each subject in each fleet has a binding of its own: the next one must not take its rights away.
    let whose = uid_hash(&format!("{} {namespace}", subject.manifest()));
    let binding = format!("{name}-{:08x}", whose & 0xffff_ffff);
    // What replicas show of themselves has no namespace.
    let debug = PolicyRule {
        non_resource_urls: Some(
            ["/debug", "/debug/*", "/console", "/metrics", "/livez", "/readyz"]
                .map(Into::into)
                .to_vec(),
        ),
        verbs: vec!["get".into()],
        ..PolicyRule::default()
    };
    let bound = |kind: &str, metadata: &Value| {
        let mut metadata = metadata.clone();
        metadata["name"] = json!(binding);
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
            "metadata": metadata, "subjects": [subject.manifest()],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}})
    };
    let role_of = |kind: &str, metadata: &Value, rules: &[PolicyRule]| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
            "rules": rules})
    };
    let here = json!({"name": name, "namespace": namespace});
    let everywhere = json!({"name": name});
    vec![
        role_of("Role", &here, &rules(*role, namespace)),
        bound("Role", &here),
        role_of("ClusterRole", &everywhere, &[debug]),
        bound("ClusterRole", &everywhere),
    ]
}

fn name_of(role: Role) -> String {
    role.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The rights in the namespace of the fleet.
fn rules(role: Role, namespace: &str) -> Vec<PolicyRule> {
    const LOOK: &[&str] = &["get", "list", "watch"];
    let mut rules = vec![
        rule("leasehold.dev", &["members", "shardmaps", "fleetpolicies"], LOOK),
        rule("coordination.k8s.io", &["leases"], LOOK),
        rule("events.k8s.io", &["events"], LOOK),
        rule("", &["pods", "pods/log"], LOOK),
        // A support bundle has the Deployment and the configuration.
        rule("apps", &["deployments"], LOOK),
        rule("", &["configmaps"], LOOK),
        sdk::rbac::port_forward(),
    ];
    if role != Role::Viewer {
        rules.push(rule("leasehold.dev", &["members"], &["patch"]));
        rules.push(rule("leasehold.dev", &["fleetpolicies"], &["create", "patch", "delete"]));
    }
    if role == Role::Admin {
        let write = ["get", "list", "create", "patch", "delete"];
        rules.push(rule("", &["secrets"], &write));
        // By its uid a cluster knows whose it is.
        let names = Some(vec![namespace.to_owned()]);
        rules.push(PolicyRule { resource_names: names, ..rule("", &["namespaces"], &["get"]) });
    }
    rules
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn args(subject: &str, role: Role) -> RbacArgs {
        RbacArgs { subject: subject.parse().unwrap(), role, namespace: "fleet".into() }
    }

    #[test]
    fn somebody_gets_what_their_role_needs_and_no_more() {
        let verbs = |role, resource: &str| -> Vec<String> {
            let all = manifests(&args("alice", role));
            let rules = all[0]["rules"].as_array().unwrap().clone();
            let about =
                |rule: &&Value| rule["resources"].as_array().unwrap().contains(&resource.into());
            let verbs =
                rules.iter().filter(about).flat_map(|rule| rule["verbs"].as_array().unwrap());
            verbs.map(|verb| verb.as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(verbs(Role::Viewer, "members"), ["get", "list", "watch"]);
        assert_eq!(verbs(Role::Operator, "members"), ["get", "list", "watch", "patch"]);
        assert!(verbs(Role::Viewer, "secrets").is_empty());
        for resource in ["configmaps", "deployments"] {
            assert_eq!(verbs(Role::Viewer, resource), ["get", "list", "watch"], "{resource}");
        }
        assert!(verbs(Role::Operator, "secrets").is_empty());
        assert!(verbs(Role::Admin, "secrets").contains(&"delete".to_owned()));
        // What `doctor` and `support-bundle` ask replicas for.
        let asked = &manifests(&args("alice", Role::Viewer))[2]["rules"][0];
        for path in ["/debug/*", "/metrics", "/readyz", "/livez"] {
            assert!(asked["nonResourceURLs"].as_array().unwrap().contains(&path.into()), "{path}");
        }
        assert_eq!(asked["verbs"], json!(["get"]));
    }

    #[test]
    fn subjects_are_users_groups_and_service_accounts() {
        let of = |text: &str| manifests(&args(text, Role::Viewer))[1]["subjects"][0].clone();
        assert_eq!(of("alice@example.com")["kind"], "User");
        assert_eq!(of("group:ops")["name"], "ops");
        assert_eq!(
            of("serviceaccount:tools/bot"),
            json!({"kind": "ServiceAccount", "name": "bot", "namespace": "tools"})
        );
        for wrong in ["", "group:", "serviceaccount:bot", "serviceaccount:/bot"] {
            assert!(wrong.parse::<Subject>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn nobody_takes_the_place_of_another() {
        let names = |subject: &str, role, namespace: &str| -> BTreeSet<String> {
            let args = RbacArgs { namespace: namespace.into(), ..args(subject, role) };
            let bindings = manifests(&args).into_iter().filter(|one| !one["roleRef"].is_null());
            bindings.map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        let alice = names("alice", Role::Viewer, "fleet");
        assert_eq!(alice, names("alice", Role::Viewer, "fleet"), "it is applied again");
        let others = [
            names("bob", Role::Viewer, "fleet"),
            names("group:alice", Role::Viewer, "fleet"),
            names("alice", Role::Operator, "fleet"),
            names("alice", Role::Viewer, "other"),
        ];
        let all: BTreeSet<_> = others.iter().flatten().chain(&alice).collect();
        assert_eq!(all.len(), 5, "{all:?}");
        let roles: Vec<_> = manifests(&args("bob", Role::Viewer))
            .iter()
            .filter(|one| one["roleRef"].is_null())
            .map(|one| one["metadata"]["name"].clone())
            .collect();
        assert_eq!(roles, ["leasehold-viewer", "leasehold-viewer"], "one for all");
    }

    #[test]
    fn what_is_printed_reads_back() {
        let text = yaml(&args("alice", Role::Operator)).unwrap();
        let parts: Vec<Value> =
            text.split("---\n").skip(1).map(|part| serde_saphyr::from_str(part).unwrap()).collect();
        assert_eq!(parts, manifests(&args("alice", Role::Operator)));
    }
}
