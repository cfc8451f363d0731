//! Defaults of the built-in kinds that controllers, kubectl and the chart write.
//!
//! Fields are only added, never changed, so filling in twice has the same result as once. Addresses
//! of Services are not here, because they depend on which ones are taken.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::kinds::KindInfo;

/// Fills in an object of a built-in kind.
pub fn apply(kind: &KindInfo, object: &mut Value) {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces") => namespace(object),
        ("", "secrets") => secret(object),
        ("", "services") => service(object),
        ("", "pods") => {
            let spec = &mut object["spec"];
            pod_spec(spec);
            // Pods have it, templates do not.
            if spec.is_object() {
                fill(spec, json!({"enableServiceLinks": true}));
            }
        }
        ("apps", "deployments") => deployment(&mut object["spec"]),
        ("apps", "replicasets") => replicas(&mut object["spec"]),
        ("apps", "statefulsets") => stateful_set(&mut object["spec"]),
        ("apps", "daemonsets") => daemon_set(&mut object["spec"]),
        ("batch", "jobs") => job(&mut object["spec"]),
        ("batch", "cronjobs") => cron_job(&mut object["spec"]),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => binding(object),
        _ => {}
    }
}

/// Sets what a real server sets on create besides defaults, such as the first status.
pub fn initial_status(kind: &KindInfo, object: &mut Value) {
    if kind.custom || !kind.status {
        return;
    }
    object["status"] = match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces") => json!({"phase": "Active"}),
        ("", "pods") => json!({"phase": "Pending", "qosClass": qos_class(&object["spec"])}),
        ("", "services") => json!({"loadBalancer": {}}),
        ("", "persistentvolumeclaims" | "persistentvolumes") => json!({"phase": "Pending"}),
        ("apps", "replicasets" | "statefulsets") => json!({"replicas": 0}),
        ("apps", "daemonsets") => json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0,
            "numberMisscheduled": 0, "numberReady": 0,
        }),
        ("policy", "poddisruptionbudgets") => json!({
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        }),
        ("networking.k8s.io", "ingresses") => json!({"loadBalancer": {}}),
        _ => json!({}),
    };
}

/// Adds the fields that are missing.
fn fill(target: &mut Value, defaults: Value) {
    if target.is_null() {
        *target = Value::Object(Map::new());
    }
    let (Some(fields), Value::Object(defaults)) = (target.as_object_mut(), defaults) else {
        return;
    };
    for (key, value) in defaults {
        fields.entry(key).or_insert(value);
    }
}

fn each(list: &mut Value, apply: impl Fn(&mut Value)) {
    list.as_array_mut().into_iter().flatten().for_each(apply);
}

/// A member if it is present; does not create it.
fn member<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    object.as_object_mut()?.get_mut(name)
}

fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    fill(&mut object["metadata"]["labels"], json!({"kubernetes.io/metadata.name": name}));
    fill(&mut object["spec"], json!({}));
}

fn secret(object: &mut Value) {
    fill(object, json!({"type": "Opaque"}));
    let Some(Value::Object(texts)) = object.as_object_mut().and_then(|o| o.remove("stringData"))
    else {
        return;
    };
    fill(&mut object["data"], json!({}));
    for (key, text) in texts {
        let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
        object["data"][key] = json!(encoded);
    }
}

fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    fill(spec, json!({"type": "ClusterIP", "sessionAffinity": "None"}));
    if spec["type"] != "ExternalName" {
        fill(
            spec,
            json!({"internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}),
        );
    }
    if spec["type"] == "NodePort" || spec["type"] == "LoadBalancer" {
        fill(spec, json!({"externalTrafficPolicy": "Cluster"}));
    }
    if let Some(ports) = member(spec, "ports") {
        each(ports, |port| {
            let number = port["port"].clone();
            fill(port, json!({"protocol": "TCP", "targetPort": number}));
        });
    }
}

fn deployment(spec: &mut Value) {
    fill(spec, json!({"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}));
    fill(&mut spec["strategy"], json!({"type": "RollingUpdate"}));
    if spec["strategy"]["type"] == "RollingUpdate" {
        fill(
            &mut spec["strategy"]["rollingUpdate"],
            json!({"maxUnavailable": "25%", "maxSurge": "25%"}),
        );
    }
    template(spec);
}

fn replicas(spec: &mut Value) {
    fill(spec, json!({"replicas": 1}));
    template(spec);
}

fn stateful_set(spec: &mut Value) {
    fill(
        spec,
        json!({
            "replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        }),
    );
    fill(&mut spec["updateStrategy"], json!({"type": "RollingUpdate"}));
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        fill(&mut spec["updateStrategy"]["rollingUpdate"], json!({"partition": 0}));
    }
    template(spec);
}

fn daemon_set(spec: &mut Value) {
    fill(spec, json!({"revisionHistoryLimit": 10}));
    fill(&mut spec["updateStrategy"], json!({"type": "RollingUpdate"}));
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        fill(
            &mut spec["updateStrategy"]["rollingUpdate"],
            json!({"maxUnavailable": 1, "maxSurge": 0}),
        );
    }
    template(spec);
}

fn job(spec: &mut Value) {
    fill(
        spec,
        json!({
            "parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "suspend": false, "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed",
        }),
    );
    template(spec);
}

fn cron_job(spec: &mut Value) {
    fill(
        spec,
        json!({
            "concurrencyPolicy": "Allow", "suspend": false,
            "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
        }),
    );
    if let Some(inner) = member(spec, "jobTemplate").and_then(|t| member(t, "spec")) {
        template(inner);
    }
}

fn binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(role) = member(object, "roleRef") {
        fill(role, json!({"apiGroup": GROUP}));
    }
    if let Some(subjects) = member(object, "subjects") {
        each(subjects, |subject| {
            if subject["kind"] != "ServiceAccount" {
                fill(subject, json!({"apiGroup": GROUP}));
            }
        });
    }
}

fn template(spec: &mut Value) {
    if let Some(template) = member(spec, "template") {
        fill(template, json!({"metadata": {}}));
        if let Some(pod) = member(template, "spec") {
            pod_spec(pod);
        }
    }
}

fn pod_spec(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    fill(
        spec,
        json!({
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "securityContext": {},
        }),
    );
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        fill(spec, json!({"serviceAccount": account}));
    }
    for list in ["initContainers", "containers"] {
        if let Some(containers) = member(spec, list) {
            each(containers, container);
        }
    }
    if let Some(volumes) = member(spec, "volumes") {
        each(volumes, volume);
    }
}

fn container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let pull = if untagged(image) { "Always" } else { "IfNotPresent" };
    fill(
        container,
        json!({
            "imagePullPolicy": pull, "resources": {},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        }),
    );
    if let Some(ports) = member(container, "ports") {
        each(ports, |port| fill(port, json!({"protocol": "TCP"})));
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = member(container, name) {
            fill(
                probe,
                json!({"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}),
            );
            if let Some(get) = member(probe, "httpGet") {
                fill(get, json!({"path": "/", "scheme": "HTTP"}));
            }
        }
    }
    if let Some(env) = member(container, "env") {
        each(env, |variable| {
            if let Some(field) = member(variable, "valueFrom").and_then(|v| member(v, "fieldRef")) {
                fill(field, json!({"apiVersion": "v1"}));
            }
        });
    }
}

fn volume(volume: &mut Value) {
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = member(volume, source) {
            fill(source, json!({"defaultMode": 420}));
        }
    }
}

/// Whether an image has no digest, and the tag `latest` or none.
fn untagged(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or_default();
    !last.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn qos_class(spec: &Value) -> &'static str {
    let containers: Vec<&Value> = ["initContainers", "containers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
        .collect();
    let of = |c: &Value, side: &str, resource: &str| c["resources"][side].get(resource).cloned();
    let any = containers.iter().any(|c| {
        ["requests", "limits"]
            .iter()
            .any(|side| c["resources"][*side].as_object().is_some_and(|r| !r.is_empty()))
    });
    let all = containers.iter().all(|c| {
        ["cpu", "memory"].iter().all(|resource| {
            let limit = of(c, "limits", resource);
            limit.is_some() && of(c, "requests", resource).is_none_or(|r| Some(r) == limit)
        })
    });
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn filled(plural: &str, mut object: Value) -> Value {
        let kind = kinds::builtin().into_iter().find(|k| k.plural == plural).unwrap();
        apply(&kind, &mut object);
        let once = object.clone();
        apply(&kind, &mut object);
        assert_eq!(object, once, "filling in twice is filling in once");
        object
    }

    #[test]
    fn a_deployment_reads_back_filled_in() {
        let object = filled(
            "deployments",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.27", "ports": [{"containerPort": 80}]}]}}}}),
        );
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(object["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
        let container = &object["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(container["ports"][0]["protocol"], "TCP");
    }

    #[test]
    fn what_a_client_sets_stays() {
        let object = filled(
            "deployments",
            json!({"spec": {"replicas": 0, "strategy": {"type": "Recreate"}}}),
        );
        assert_eq!(object["spec"]["replicas"], 0);
        assert_eq!(object["spec"]["strategy"], json!({"type": "Recreate"}));
    }

    #[test]
    fn secrets_take_plain_text() {
        let object = filled("secrets", json!({"stringData": {"a": "b"}}));
        assert_eq!(object, json!({"type": "Opaque", "data": {"a": "Yg=="}}));
    }

    #[test]
    fn images_without_a_tag_are_always_pulled() {
        for (image, expected) in [
            ("nginx", true),
            ("r:5000/nginx", true),
            ("nginx:latest", true),
            ("nginx:1", false),
            ("nginx@sha256:0", false),
        ] {
            assert_eq!(untagged(image), expected, "{image}");
        }
    }

    #[test]
    fn quality_of_service_follows_the_resources() {
        let pod = |resources: Value| json!({"containers": [{"resources": resources}]});
        assert_eq!(qos_class(&pod(json!({}))), "BestEffort");
        assert_eq!(qos_class(&pod(json!({"requests": {"cpu": "1"}}))), "Burstable");
        assert_eq!(qos_class(&pod(json!({"limits": {"cpu": "1", "memory": "1"}}))), "Guaranteed");
    }
}
