//! The kinds that the server serves: names, scope, subresources and the few rules that differ
//! between kinds.
//!
//! Owns [`KindInfo`] and the table of built-in kinds. `crd.rs` makes the same [`KindInfo`] from the
//! definition of a custom kind.

/// Where the scale subresource finds its three values. Paths are dotted, such as `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// Desired replicas.
    pub spec_replicas: String,
    /// Observed replicas.
    pub status_replicas: String,
    /// Label selector in string or `LabelSelector` form, if the kind has one.
    pub selector: Option<String>,
}

/// One column of `kubectl get`, as a definition declares it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrinterColumn {
    /// Header.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// OpenAPI format, or empty.
    pub format: String,
    /// Help text, or empty.
    pub description: String,
    /// Columns above 0 are shown only in wide output.
    pub priority: i32,
    /// Where the value is, such as `.status.replicas`.
    pub json_path: String,
}

/// A kind in one served version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindInfo {
    /// API group; empty for the core group.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// Kind, such as `ConfigMap`.
    pub kind: String,
    /// Kind of its lists, such as `ConfigMapList`.
    pub list_kind: String,
    /// Plural resource name, as in paths.
    pub plural: String,
    /// Singular resource name.
    pub singular: String,
    /// Abbreviations for kubectl.
    pub short_names: Vec<String>,
    /// Groups of resources that kubectl expands, such as `all`.
    pub categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether `/status` is a subresource.
    pub status: bool,
    /// The scale subresource, if there is one.
    pub scale: Option<ScalePaths>,
    /// Whether an update without resourceVersion is allowed to replace any version.
    pub unconditional_update: bool,
    /// Whether an update of an absent object creates it.
    pub create_on_update: bool,
    /// Whether the server counts changes in `metadata.generation`.
    pub generation: bool,
    /// Whether its objects are kept. Those of other kinds are questions, which can only be created
    /// and are answered at once.
    pub stored: bool,
    /// Whether the kind comes from a CustomResourceDefinition.
    pub custom: bool,
    /// Group under which objects are stored; differs from `group` only for kinds served by two
    /// groups.
    pub storage_group: String,
    /// Columns declared by a definition; empty for built-in kinds.
    pub columns: Vec<PrinterColumn>,
}

impl KindInfo {
    /// `apiVersion` of its objects: `group/version`, or `version` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group`, or `plural` for the core group, as in error texts.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The metadata that a write of the status of a built-in kind leaves as it is.
    pub fn kept_by_status(&self) -> &'static [&'static str] {
        match (self.group.as_str(), self.plural.as_str()) {
            ("", "pods") => &["ownerReferences"],
            ("apps", "deployments") => &["labels"],
            _ => &[],
        }
    }

    /// Whether this is the built-in kind of that group and plural.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        !self.custom && self.group == group && self.plural == plural
    }
}

/// Every built-in kind, in discovery order.
pub fn builtin() -> Vec<KindInfo> {
    let mut kinds = Vec::new();
    kinds.extend(core());
    kinds.extend(apps());
    kinds.extend(reviews());
    kinds.extend(autoscaling_and_batch());
    kinds.extend(policy_and_access());
    kinds.extend(network_and_storage());
    kinds
}

fn core() -> Vec<KindInfo> {
    let core = |kind, plural| Row::new("", "v1", kind, plural);
    let volume = |kind, plural, short| core(kind, plural).short(short).status().unconditional();
    vec![
        core("ConfigMap", "configmaps").short("cm").unconditional().0,
        core("Endpoints", "endpoints").short("ep").unconditional().create_on_update().0,
        core("Event", "events").short("ev").unconditional().create_on_update().0,
        core("LimitRange", "limitranges").short("limits").unconditional().create_on_update().0,
        core("Namespace", "namespaces").short("ns").cluster().status().unconditional().0,
        core("Node", "nodes").short("no").cluster().status().unconditional().0,
        volume("PersistentVolumeClaim", "persistentvolumeclaims", "pvc").0,
        volume("PersistentVolume", "persistentvolumes", "pv").cluster().0,
        core("Pod", "pods").short("po").category("all").status().unconditional().generation().0,
        core("PodTemplate", "podtemplates").unconditional().create_on_update().0,
        core("ResourceQuota", "resourcequotas").short("quota").status().unconditional().0,
        core("Secret", "secrets").unconditional().0,
        core("ServiceAccount", "serviceaccounts").short("sa").0,
        core("Service", "services")
            .short("svc")
            .category("all")
            .status()
            .unconditional()
            .create_on_update()
            .0,
    ]
}

fn apps() -> Vec<KindInfo> {
    let workload = |kind, plural, short| {
        Row::new("apps", "v1", kind, plural)
            .short(short)
            .category("all")
            .status()
            .unconditional()
            .generation()
    };
    vec![
        Row::new("apps", "v1", "ControllerRevision", "controllerrevisions").0,
        workload("DaemonSet", "daemonsets", "ds").0,
        workload("Deployment", "deployments", "deploy").scale().0,
        workload("ReplicaSet", "replicasets", "rs").scale().0,
        workload("StatefulSet", "statefulsets", "sts").scale().0,
    ]
}

/// The group of reviews of users and tokens.
pub const AUTHENTICATION: &str = "authentication.k8s.io";
/// The group of reviews of rights.
pub const AUTHORIZATION: &str = "authorization.k8s.io";

fn reviews() -> Vec<KindInfo> {
    let review = |group, kind, plural| Row::new(group, "v1", kind, plural).question();
    vec![
        review(AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews").cluster().0,
        review(AUTHENTICATION, "TokenReview", "tokenreviews").cluster().0,
        review(AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews").0,
        review(AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews").cluster().0,
        review(AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews").cluster().0,
        review(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews").cluster().0,
    ]
}

/// The kind that the `token` subresource of ServiceAccounts speaks.
pub fn token_request() -> KindInfo {
    Row::new(AUTHENTICATION, "v1", "TokenRequest", "tokenrequests").question().0
}

/// The kind that the `eviction` subresource of Pods speaks.
pub fn eviction() -> KindInfo {
    Row::new("policy", "v1", "Eviction", "evictions").question().0
}

fn autoscaling_and_batch() -> Vec<KindInfo> {
    let batch = |kind, plural| {
        Row::new("batch", "v1", kind, plural).category("all").status().unconditional().generation()
    };
    vec![
        Row::new("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
            .short("hpa")
            .category("all")
            .status()
            .unconditional()
            .0,
        batch("CronJob", "cronjobs").short("cj").0,
        batch("Job", "jobs").0,
    ]
}

fn policy_and_access() -> Vec<KindInfo> {
    let rbac = |kind, plural| {
        Row::new("rbac.authorization.k8s.io", "v1", kind, plural).unconditional().create_on_update()
    };
    vec![
        Row::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", DEFINITIONS)
            .short("crd")
            .short("crds")
            .category("api-extensions")
            .cluster()
            .status()
            .generation()
            .0,
        Row::new("coordination.k8s.io", "v1", "Lease", "leases").create_on_update().0,
        Row::new("events.k8s.io", "v1", "Event", "events")
            .short("ev")
            .unconditional()
            .create_on_update()
            .stored_in("")
            .0,
        Row::new("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
            .short("pdb")
            .status()
            .generation()
            .0,
        rbac("ClusterRoleBinding", "clusterrolebindings").cluster().0,
        rbac("ClusterRole", "clusterroles").cluster().0,
        rbac("RoleBinding", "rolebindings").0,
        rbac("Role", "roles").0,
        Row::new("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses")
            .short("pc")
            .cluster()
            .unconditional()
            .generation()
            .0,
    ]
}

fn network_and_storage() -> Vec<KindInfo> {
    vec![
        Row::new("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
            .unconditional()
            .generation()
            .0,
        Row::new("networking.k8s.io", "v1", "Ingress", "ingresses")
            .short("ing")
            .status()
            .unconditional()
            .generation()
            .0,
        Row::new("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
            .short("netpol")
            .unconditional()
            .generation()
            .0,
        Row::new("storage.k8s.io", "v1", "StorageClass", "storageclasses")
            .short("sc")
            .cluster()
            .unconditional()
            .0,
    ]
}

/// Plural of the kind that defines custom kinds.
pub const DEFINITIONS: &str = "customresourcedefinitions";

/// A line of the table: namespaced and strict by default.
struct Row(KindInfo);

impl Row {
    fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self(KindInfo {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List"),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            namespaced: true,
            stored: true,
            storage_group: group.into(),
            ..KindInfo::default()
        })
    }

    fn short(mut self, name: &str) -> Self {
        self.0.short_names.push(name.into());
        self
    }

    fn category(mut self, name: &str) -> Self {
        self.0.categories.push(name.into());
        self
    }

    fn cluster(mut self) -> Self {
        self.0.namespaced = false;
        self
    }

    fn status(mut self) -> Self {
        self.0.status = true;
        self
    }

    fn scale(mut self) -> Self {
        self.0.scale = Some(ScalePaths {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            selector: Some(".spec.selector".into()),
        });
        self
    }

    fn unconditional(mut self) -> Self {
        self.0.unconditional_update = true;
        self
    }

    fn create_on_update(mut self) -> Self {
        self.0.create_on_update = true;
        self
    }

    fn question(mut self) -> Self {
        self.0.stored = false;
        self
    }

    fn generation(mut self) -> Self {
        self.0.generation = true;
        self
    }

    fn stored_in(mut self, group: &str) -> Self {
        self.0.storage_group = group.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_resource_is_listed_twice() {
        let mut seen = std::collections::HashSet::new();
        for kind in builtin() {
            assert!(seen.insert((kind.group.clone(), kind.plural.clone())), "{kind:?}");
        }
    }

    #[test]
    fn registry_rules_follow_the_real_strategies() {
        let kinds = builtin();
        let find = |plural: &str| kinds.iter().find(|k| k.plural == plural).unwrap();
        assert!(find("leases").create_on_update && !find("leases").unconditional_update);
        assert!(find("configmaps").unconditional_update && !find("configmaps").create_on_update);
        assert!(find("deployments").scale.is_some() && find("deployments").generation);
        assert_eq!(find("deployments").api_version(), "apps/v1");
        assert_eq!(find("deployments").group_resource(), "deployments.apps");
        assert_eq!(find("pods").api_version(), "v1");
    }
}
