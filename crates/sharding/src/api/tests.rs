use super::*;

/// Kubernetes knows no unsigned formats and warns about them at each apply.
#[test]
fn schemas_use_formats_that_kubernetes_knows() {
    for crd in crds() {
        let text = serde_json::to_string(&crd).unwrap();
        assert!(!text.contains("\"uint"), "{text}");
    }
}

#[test]
fn shards_merge_by_name_and_are_bounded() {
    let crd = serde_json::to_value(ShardMap::crd()).unwrap();
    let version = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let shards = &version["properties"]["spec"]["properties"]["shards"];
    assert_eq!(shards["x-kubernetes-list-type"], "map");
    assert_eq!(shards["x-kubernetes-list-map-keys"][0], "shard");
    assert_eq!(shards["maxItems"], MAX_SHARDS);
}

#[test]
fn the_longest_map_stays_below_its_bound() {
    let member = "m".repeat(63);
    let entry = |n: usize| {
        serde_json::json!({
            "shard": format!("{}{n:03}/1023/1024", "g".repeat(60)),
            "epoch": u64::MAX >> 1,
            "phase": "Draining",
            "owner": member,
            "target": member,
            "moved": {"why": "Maintenance", "at": "2026-11-26T04:00:00Z"},
        })
    };
    let shards: Vec<_> = (0..MAX_SHARDS).map(entry).collect();
    let summary = serde_json::json!({
        "shards": 384, "owned": 0, "draining": 384, "unowned": 0, "owners": format!("{member}=1,").repeat(MAX_SHARDS),
    });
    let spec =
        serde_json::json!({"shards": shards, "epochFloor": u64::MAX >> 1, "summary": summary});
    let spec: ShardMapSpec = serde_json::from_value(spec).unwrap();
    let bytes = serde_json::to_vec(&ShardMap::new("c", spec)).unwrap().len();
    assert!((96 * 1024..192 * 1024).contains(&bytes), "{bytes}");
}
