use super::*;

fn pod(name: &str, ready: &str, controlled: bool) -> Value {
    let owner = json!([{"controller": true, "uid": "rs"}]);
    json!({
        "metadata": {
            "name": name, "labels": {"app": "x"},
            "ownerReferences": if controlled { owner } else { json!([]) },
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    })
}

fn budget(spec: Value) -> Value {
    json!({"metadata": {"name": "b", "generation": 1}, "spec": spec, "status": {}})
}

fn counts(spec: Value, ready: usize, unready: usize, scale: i64) -> (i64, i64, i64) {
    let ready = (0..ready).map(|at| pod(&format!("r{at}"), "True", true));
    let unready = (0..unready).map(|at| pod(&format!("u{at}"), "False", true));
    let pods: Vec<Value> = ready.chain(unready).collect();
    let health = counted(&budget(spec), &pods, |_| Some(("rs".into(), scale)));
    (health.current, health.desired, health.allowed)
}

#[test]
fn ready_pods_are_counted_against_what_is_expected() {
    let cases = [
        (json!({"minAvailable": 2}), 3, 0, 3, (3, 2, 1)),
        (json!({"minAvailable": 3}), 3, 0, 3, (3, 3, 0)),
        (json!({"minAvailable": 2}), 1, 2, 3, (1, 2, 0)),
        (json!({"minAvailable": "50%"}), 3, 0, 3, (3, 2, 1)),
        (json!({"minAvailable": "0%"}), 3, 0, 3, (3, 0, 3)),
        (json!({"maxUnavailable": 1}), 3, 0, 3, (3, 2, 1)),
        (json!({"maxUnavailable": 1}), 2, 1, 3, (2, 2, 0)),
        (json!({"maxUnavailable": "34%"}), 3, 0, 3, (3, 1, 2)),
        (json!({"maxUnavailable": 9}), 3, 0, 3, (3, 0, 3)),
        // Nothing is expected, so nothing is allowed.
        (json!({"maxUnavailable": 1}), 3, 0, 0, (3, 0, 0)),
        (json!({"minAvailable": 0}), 0, 0, 0, (0, 0, 0)),
        (json!({}), 3, 0, 3, (3, 0, 0)),
    ];
    for (spec, ready, unready, scale, expected) in cases {
        assert_eq!(counts(spec.clone(), ready, unready, scale), expected, "{spec}");
    }
}

#[test]
fn pods_that_end_are_not_ready_and_unknown_controllers_are_a_failure() {
    let mut ending = pod("a", "True", true);
    ending["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
    let pods = [ending, pod("b", "True", true)];
    let by_number = counted(&budget(json!({"minAvailable": 1})), &pods, |_| None);
    assert_eq!((by_number.current, by_number.allowed), (1, 0));
    let by_scale = counted(&budget(json!({"maxUnavailable": 1})), &pods, |_| None);
    assert_eq!(by_scale.failure.as_deref(), Some("found no controllers for pod \"a\""));
    // Pods without a controller are not expected, and do no harm.
    let bare = [pod("c", "True", false)];
    assert_eq!(counted(&budget(json!({"maxUnavailable": 1})), &bare, |_| None).failure, None);
}

#[test]
fn selectors_select_as_in_any_kind() {
    let selects =
        |selector: Value| selects(&budget(json!({"selector": selector})), &pod("a", "True", false));
    assert!(selects(json!({"matchLabels": {"app": "x"}})) && selects(json!({})));
    assert!(!selects(json!({"matchLabels": {"app": "y"}})) && !selects(Value::Null));
}

fn refusal(budget: &Value) -> (u16, String, Option<u32>) {
    let error = check(budget, &written(budget)).unwrap_err();
    let details = error.details.unwrap();
    assert_eq!(details.causes[0].reason, "DisruptionBudget");
    (error.code, details.causes[0].message.clone(), details.retry_after_seconds)
}

#[test]
fn a_written_status_decides() {
    let with =
        |status: Value| json!({"metadata": {"name": "b", "generation": 1}, "status": status});
    let behind = with(json!({"disruptionsAllowed": 3}));
    assert!(is_controlled(&behind) && !is_controlled(&with(json!({"disruptionsAllowed": 0}))));
    let text = "The disruption budget b is still being processed by the server.";
    assert_eq!(refusal(&behind), (429, text.into(), Some(10)));
    let full = with(json!({"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1}));
    let text = "The disruption budget b needs 1 healthy pods and has 1 currently";
    assert_eq!(refusal(&full), (429, text.into(), None));
    let negative = with(json!({"observedGeneration": 1, "disruptionsAllowed": -1}));
    assert_eq!(refusal(&negative).0, 403);
    let failed = with(json!({"observedGeneration": 1, "conditions": [
        {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no"},
    ]}));
    let text =
        "The disruption budget b does not allow evicting pods currently because it failed sync: no";
    assert_eq!(refusal(&failed).1, text);
    let allowed = with(json!({"observedGeneration": 1, "disruptionsAllowed": 1}));
    assert_eq!(check(&allowed, &written(&allowed)), Ok(()));
    let next = disrupted(&allowed, "p", "now");
    assert_eq!(next["status"]["disruptionsAllowed"], 0);
    assert_eq!(next["status"]["disruptedPods"], json!({"p": "now"}));
    assert_eq!(next["status"]["conditions"][0]["reason"], "InsufficientPods");
}

#[test]
fn unready_pods_may_go_while_the_others_suffice() {
    let health = |current, desired| Health { current, desired, ..Health::default() };
    let plain = budget(json!({}));
    assert!(spares_unready(&plain, &health(2, 2)) && !spares_unready(&plain, &health(1, 2)));
    assert!(!spares_unready(&plain, &health(0, 0)));
    let always = budget(json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"}));
    assert!(spares_unready(&always, &health(0, 2)));
}

#[test]
fn the_pod_says_why_it_ends_once() {
    let once = marked(&pod("a", "True", false), "now");
    assert_eq!(once["status"]["conditions"][1]["reason"], "EvictionByEvictionAPI");
    assert_eq!(marked(&once, "later"), once);
}
