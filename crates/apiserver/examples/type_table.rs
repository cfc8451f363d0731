//! Writes the table of built-in types from the Go sources that define them:
//!
//! ```sh
//! cargo run -p leasehold-apiserver --example type_table -- K8S_IO_API K8S_IO_APIMACHINERY \
//!     > crates/apiserver/src/types/table.txt
//! ```
//!
//! The arguments are checkouts of the modules `k8s.io/api` and `k8s.io/apimachinery`.
//! `src/types/mod.rs` describes the table. It contains only types that can be reached from
//! [`ROOTS`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;

const PACKAGES: &str = "apps/v1 authentication/v1 authorization/v1 autoscaling/v1 autoscaling/v2 \
                        batch/v1 coordination/v1 core/v1 discovery/v1 events/v1 networking/v1 \
                        policy/v1 rbac/v1 scheduling/v1 scheduling/v1alpha3 storage/v1";

const ROOTS: &str = "apps.v1.ControllerRevision apps.v1.DaemonSet apps.v1.Deployment \
                     apps.v1.ReplicaSet apps.v1.StatefulSet authentication.v1.SelfSubjectReview \
                     authentication.v1.TokenRequest authentication.v1.TokenReview \
                     authorization.v1.LocalSubjectAccessReview \
                     authorization.v1.SelfSubjectAccessReview \
                     authorization.v1.SelfSubjectRulesReview authorization.v1.SubjectAccessReview \
                     autoscaling.v1.Scale autoscaling.v2.HorizontalPodAutoscaler batch.v1.CronJob \
                     batch.v1.Job coordination.v1.Lease core.v1.ConfigMap core.v1.Endpoints \
                     core.v1.Event core.v1.LimitRange core.v1.Namespace core.v1.Node \
                     core.v1.PersistentVolume core.v1.PersistentVolumeClaim core.v1.Pod \
                     core.v1.PodTemplate core.v1.ResourceQuota core.v1.Secret core.v1.Service \
                     core.v1.ServiceAccount discovery.v1.EndpointSlice events.v1.Event \
                     meta.v1.DeleteOptions networking.v1.Ingress networking.v1.NetworkPolicy \
                     policy.v1.Eviction policy.v1.PodDisruptionBudget rbac.v1.ClusterRole \
                     rbac.v1.ClusterRoleBinding rbac.v1.Role rbac.v1.RoleBinding \
                     scheduling.v1.PriorityClass storage.v1.StorageClass";

/// Types with a special wire form.
const SPECIAL: &[(&str, &str)] = &[
    ("authentication.v1.AttestationValue", "texts"),
    ("authentication.v1.ExtraValue", "texts"),
    ("authorization.v1.ExtraValue", "texts"),
    ("intstr.IntOrString", "intstr"),
    ("meta.v1.Duration", "duration"),
    ("meta.v1.FieldsV1", "fields"),
    ("meta.v1.MicroTime", "microtime"),
    ("meta.v1.Time", "time"),
    ("resource.Quantity", "quantity"),
    ("runtime.RawExtension", "raw"),
    ("types.UID", "string"),
    ("types.NodeName", "string"),
];

const SCALARS: &str = "bool float64 int32 int64 string time microtime duration quantity intstr \
                       fields raw bytes texts";

#[derive(Default)]
struct Sources {
    structs: BTreeMap<String, Vec<Field>>,
    named: BTreeMap<String, String>,
}

struct Field {
    number: u32,
    name: String,
    kind: String,
    kept_when_zero: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(api), Some(machinery)) = (args.next(), args.next()) else {
        return Err("give the folders of k8s.io/api and k8s.io/apimachinery".into());
    };
    let mut sources = Sources::default();
    for package in PACKAGES.split(' ') {
        sources
            .read(&Path::new(&api).join(package).join("types.go"), &package.replace('/', "."))?;
    }
    sources.read(&Path::new(&machinery).join("pkg/apis/meta/v1/types.go"), "meta.v1")?;
    let mut wanted: Vec<String> = ROOTS.split(' ').map(str::to_owned).collect();
    let mut written = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if written.insert(name.clone()) {
            let fields = sources.structs.get(&name).ok_or(format!("no struct {name}"))?;
            wanted.extend(fields.iter().filter_map(|f| sources.message(&f.kind)));
        }
    }
    for name in written {
        println!("{name}");
        for field in &sources.structs[&name] {
            let kept = if field.kept_when_zero { "!" } else { "" };
            let kind = sources.resolve(&field.kind);
            println!("  {} {} {kept}{kind}", field.number, field.name);
        }
    }
    Ok(())
}

impl Sources {
    fn read(&mut self, path: &Path, package: &str) -> Result<(), Box<dyn std::error::Error>> {
        let open = Regex::new(r"^type (\w+) struct \{")?;
        let named = Regex::new(r"^type (\w+) ([\w.\[\]*]+)$")?;
        let field = Regex::new(r"^\s+(?:\w+\s+)?([\w.*\[\]]+)\s+`(.*)`")?;
        let json = Regex::new(r#"json:"([^"]*)""#)?;
        let wire = Regex::new(r#"protobuf:"\w+,(\d+),"#)?;
        let mut current: Option<String> = None;
        for line in std::fs::read_to_string(path)?.lines() {
            if let Some(found) = open.captures(line) {
                let name = format!("{package}.{}", &found[1]);
                self.structs.insert(name.clone(), Vec::new());
                current = Some(name);
            } else if line == "}" {
                current = None;
            } else if let Some(found) = named.captures(line) {
                let kind = qualified(&found[2], package);
                self.named.insert(format!("{package}.{}", &found[1]), kind);
            } else if let (Some(name), Some(found)) = (&current, field.captures(line)) {
                let (Some(json), Some(wire)) = (json.captures(&found[2]), wire.captures(&found[2]))
                else {
                    continue;
                };
                let (label, options) = json[1].split_once(',').unwrap_or((&json[1], ""));
                let optional = options.contains("omitempty") || options.contains("omitzero");
                self.structs.entry(name.clone()).or_default().push(Field {
                    number: wire[1].parse()?,
                    name: if label.is_empty() { "." } else { label }.to_owned(),
                    kind: qualified(&found[1], package),
                    kept_when_zero: !optional && options != "inline" && !found[1].starts_with('*'),
                });
            }
        }
        Ok(())
    }

    /// A field's kind with named types replaced by what they are.
    fn resolve(&self, kind: &str) -> String {
        if let Some(rest) = kind.strip_prefix('*') {
            return format!("*{}", self.resolve(rest));
        }
        if let Some(rest) = kind.strip_prefix("[]") {
            return format!("[]{}", self.resolve(rest));
        }
        if let Some(rest) = kind.strip_prefix("map[") {
            let value = rest.split_once(']').map_or(rest, |(_, value)| value);
            return format!("map[]{}", self.resolve(value));
        }
        match self.named.get(kind) {
            Some(target) => self.resolve(target),
            None => kind.to_owned(),
        }
    }

    /// The message to which a field's kind leads, if any.
    fn message(&self, kind: &str) -> Option<String> {
        let resolved = self.resolve(kind);
        let bare = resolved.trim_start_matches(['*', '[', ']']).trim_start_matches("map[]");
        let bare = bare.trim_start_matches(['*', '[', ']']);
        (!is_scalar(bare)).then(|| bare.to_owned())
    }
}

fn is_scalar(kind: &str) -> bool {
    SCALARS.split(' ').any(|scalar| scalar == kind)
}

/// A Go type's name in the table: with its package, or the word of a special type.
fn qualified(kind: &str, package: &str) -> String {
    for prefix in ["*", "[]"] {
        if let Some(rest) = kind.strip_prefix(prefix) {
            if prefix == "[]" && rest == "byte" {
                return "bytes".into();
            }
            return format!("{prefix}{}", qualified(rest, package));
        }
    }
    if let Some(rest) = kind.strip_prefix("map[") {
        let value = rest.split_once(']').map_or(rest, |(_, value)| value);
        return format!("map[]{}", qualified(value, package));
    }
    if is_scalar(kind) {
        return kind.to_owned();
    }
    let full = match kind.split_once('.') {
        None => format!("{package}.{kind}"),
        Some(("metav1", name)) => format!("meta.v1.{name}"),
        Some(("v1" | "apiv1" | "corev1", name)) => format!("core.v1.{name}"),
        Some((package, name)) if package.starts_with("schedulingv1") => {
            format!("scheduling.{}.{name}", &package["scheduling".len()..])
        }
        Some(_) => kind.to_owned(),
    };
    let special = SPECIAL.iter().find(|(name, _)| *name == full);
    special.map_or(full, |(_, word)| (*word).to_owned())
}
