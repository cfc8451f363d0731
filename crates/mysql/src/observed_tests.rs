use serde_json::json;

use super::*;

fn pod(change: impl FnOnce(&mut serde_json::Value)) -> PodSeen {
    let mut pod = json!({
        "metadata": {
            "labels": {ROLE_LABEL: "primary"},
            "annotations": {TEMPLATE: "abc"},
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "exporter", "state": {}, "image": "", "imageID": "", "ready": true,
                 "restartCount": 0},
                {"name": "mysql", "state": {"running": {}}, "image": "", "imageID": "",
                 "ready": true, "restartCount": 0},
            ],
        },
    });
    change(&mut pod);
    PodSeen::of(&serde_json::from_value(pod).unwrap())
}

#[test]
fn a_pod_is_read() {
    let whole = PodSeen {
        is_ready: true,
        is_running: true,
        role: Some(Role::Primary),
        template: "abc".to_owned(),
        ..PodSeen::default()
    };
    assert_eq!(pod(|_| ()), whole);
    let unready = pod(|pod| pod["status"]["conditions"][0]["status"] = json!("False"));
    assert_eq!(unready, PodSeen { is_ready: false, ..whole.clone() });
    let crashed = pod(|pod| pod["status"]["containerStatuses"][1]["state"] = json!({}));
    assert_eq!(crashed, PodSeen { is_running: false, ..whole.clone() });
    let over = pod(|pod| pod["status"]["phase"] = json!("Failed"));
    assert_eq!(over, PodSeen { is_over: true, ..whole.clone() });
    let ends = pod(|pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    assert_eq!(ends, PodSeen { is_deleting: true, ..whole.clone() });
    let odd = pod(|pod| pod["metadata"]["labels"][ROLE_LABEL] = json!("king"));
    assert_eq!(odd, PodSeen { role: None, ..whole });
    assert_eq!(PodSeen::of(&Pod::default()), PodSeen::default());
}

#[test]
fn why_an_instance_does_not_run_is_said() {
    let pulls = pod(|pod| {
        pod["status"]["containerStatuses"][1]["state"] =
            json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
    });
    let waits = pod(|pod| {
        pod["status"]["containerStatuses"] = json!([]);
        pod["status"]["conditions"] =
            json!([{"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"}]);
    });
    let pods = BTreeMap::from([("db-0".to_owned(), pulls), ("db-1".to_owned(), waits)]);
    let found = instances_of("db", 3, &pods, &BTreeMap::new(), BTreeMap::new());
    let why: Vec<_> = found.into_iter().map(|seen| seen.look.unwrap_err().why).collect();
    assert_eq!(why, ["ErrImagePull: not found", "Insufficient cpu", "it was not asked"]);
}

#[test]
fn a_volume_is_read() {
    let volume = |value| VolumeSeen::of(&serde_json::from_value(value).unwrap());
    assert_eq!(volume(json!({"metadata": {}})), VolumeSeen::default());
    let lost = volume(json!({"metadata": {}, "status": {"phase": "Lost"}}));
    assert_eq!(lost, VolumeSeen { is_lost: true, ..VolumeSeen::default() });
    let ends = volume(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(ends, VolumeSeen { is_deleting: true, ..VolumeSeen::default() });
}

#[test]
fn instances_are_put_together_by_ordinal() {
    let pods = BTreeMap::from([("db-1".to_owned(), PodSeen::default())]);
    let volumes = BTreeMap::from([("data-db-0".to_owned(), VolumeSeen::default())]);
    let looks = BTreeMap::from([
        ("db-1".to_owned(), Ok(Look::default())),
        ("db-7".to_owned(), Ok(Look::default())),
    ]);
    let found = instances_of("db", 2, &pods, &volumes, looks);
    let found: Vec<_> = found
        .iter()
        .map(|seen| {
            let (pod, volume) = (seen.pod.is_some(), seen.volume.is_some());
            (seen.name.as_str(), pod, volume, seen.look.is_ok())
        })
        .collect();
    assert_eq!(found, [("db-0", false, true, false), ("db-1", true, false, true)]);
}
