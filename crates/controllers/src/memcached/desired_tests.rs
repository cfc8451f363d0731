//! Children as snapshots, and what makes them differ.

use serde_json::json;

use super::*;

/// A Memcached of this spec, as a server returns it.
fn memcached(spec: Value) -> Memcached {
    let mut memcached = Memcached::new("cache", typed(spec));
    memcached.metadata.namespace = Some("web".to_owned());
    memcached.metadata.uid = Some("cache-uid".to_owned());
    memcached
}

fn pod_of(spec: Value) -> Value {
    let set = desired(&memcached(spec)).unwrap().stateful_set;
    json!(set.spec.template.spec.unwrap())
}

fn refused(spec: Value) -> String {
    desired(&memcached(spec)).unwrap_err().to_string()
}

/// A change of this snapshot restarts every node of every Memcached when Leasehold is upgraded, and each
/// loses its keys: make it only if it is worth that, and say so in CHANGELOG.md.
#[test]
fn the_least_spec() {
    insta::assert_yaml_snapshot!(desired(&memcached(json!({}))).unwrap().stateful_set);
}

#[test]
fn everything_that_a_spec_can_say() {
    let spec = json!({
        "size": 3,
        "image": "registry.example.com/memcached:1",
        "imagePullSecrets": [{"name": "registry"}],
        "memory": "1Gi",
        "connections": 4_096,
        "extraArgs": ["-I", "8m"],
        "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "2Gi", "cpu": 2}},
        "minReadySeconds": 60,
        "antiAffinity": "Required",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}],
        }}},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
        "nodeSelector": {"pool": "cache"},
        "priorityClassName": "high",
        "runAsUser": 1_000,
        "podLabels": {"team": "web"},
        "podAnnotations": {"example.com/a": "b"},
        "exporter": {"resources": {"limits": {"memory": "64Mi"}}},
    });
    let Desired { service, stateful_set, budget } = desired(&memcached(spec)).unwrap();
    insta::assert_yaml_snapshot!("whole_set", stateful_set);
    insta::assert_yaml_snapshot!("whole_service", service);
    insta::assert_yaml_snapshot!("whole_budget", budget);
}

#[test]
fn one_node_has_no_budget() {
    for (size, has) in [(0, false), (1, false), (2, true)] {
        let found = desired(&memcached(json!({"size": size}))).unwrap();
        assert_eq!(found.budget.is_some(), has, "{size}");
        // More or fewer nodes restart none.
        assert_eq!(json!(found.stateful_set.spec.template.spec), pod_of(json!({})));
    }
}

#[test]
fn memory_is_set_aside_and_bounded_unless_the_spec_says_otherwise() {
    for (given, expect) in [
        (json!({}), json!({"requests": {"memory": "168Mi"}, "limits": {"memory": "168Mi"}})),
        (
            json!({"requests": {"memory": "300Mi"}}),
            json!({"requests": {"memory": "300Mi"}, "limits": {"memory": "300Mi"}}),
        ),
        (
            json!({"requests": {"memory": "100Mi"}}),
            json!({"requests": {"memory": "100Mi"}, "limits": {"memory": "168Mi"}}),
        ),
    ] {
        let pod = pod_of(json!({"memory": "64Mi", "resources": given}));
        assert_eq!(pod["containers"][0]["resources"], expect);
    }
    let pod = pod_of(json!({"resources": {"limits": {"memory": "1Gi"}}}));
    assert_eq!(pod["containers"][0]["args"][1], "824");
    assert_eq!(pod["containers"][0]["resources"]["requests"]["memory"], "1023Mi");
}

#[test]
fn affinities_go_together() {
    let term = "preferredDuringSchedulingIgnoredDuringExecution";
    let pod = pod_of(json!({}));
    assert_eq!(pod["affinity"]["podAntiAffinity"][term].as_array().unwrap().len(), 1);
    assert!(pod_of(json!({"antiAffinity": "None"}))["affinity"].is_null());
    let given = json!({"podAntiAffinity": {term: [{"weight": 1, "podAffinityTerm": {
        "topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "noisy"}},
    }}]}});
    let pod = pod_of(json!({"affinity": given}));
    assert_eq!(pod["affinity"]["podAntiAffinity"][term].as_array().unwrap().len(), 2);
    let pod = pod_of(json!({"affinity": given, "antiAffinity": "None"}));
    assert_eq!(pod["affinity"]["podAntiAffinity"][term].as_array().unwrap().len(), 1);
}

#[test]
fn what_cannot_be_carried_out_says_what_to_write() {
    for (spec, expect) in [
        (json!({"extraArgs": ["-m", "1"]}), "use spec.memory"),
        (json!({"memory": "lots"}), "write it like 128Mi"),
        (json!({"resources": {"requests": {"memory": "lots"}}}), "spec.resources.requests.memory"),
        (json!({"affinity": {"podAffinity": "near"}}), "spec.affinity is not that of a Pod"),
        (json!({"podLabels": {LABEL: "x"}}), "spec.podLabels has data.leasehold.dev/memcached"),
    ] {
        let refused = refused(spec.clone());
        assert!(refused.contains(expect), "{spec}: {refused}");
    }
}

#[test]
fn names_fit_pods_and_services() {
    for (name, expect) in [
        ("cache", true),
        ("c", true),
        ("cache-2", true),
        (&"c".repeat(52), true),
        (&"c".repeat(53), false),
        ("2-cache", false),
        ("cache.web", false),
        ("cache-", false),
        ("", false),
    ] {
        assert_eq!(fits(name), expect, "{name}");
    }
    let mut long = memcached(json!({}));
    long.metadata.name = Some("cache.web".to_owned());
    assert!(desired(&long).unwrap_err().to_string().contains("at most 52"));
}
