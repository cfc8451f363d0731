//! What `leasehold explain` says: of each way in which an object can stand, by the replicas that can tell of it.

use serde_json::{Value, json};

use crate::{ConfigMap, Fleet, create};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_of_an_object_says_how_it_stands() {
    let fleet = Fleet::start().await;
    let idle = "its key is not queued";
    let lines = [
        idle,
        "shard east/picky/0/1 is owned by replica-0-",
        "controller picky on member replica-0-",
        "the cache has it at resourceVersion",
        "this member holds its shard east/picky/0/1 at epoch 1",
    ];
    fleet.said("east/ConfigMap/default/good", &lines).await;
    let failed = "its last reconcile failed for good";
    let bad = fleet.said("east/configmaps/default/bad", &[failed]).await;
    assert!(bad.contains("no such bucket"), "{bad}");
    fleet.said("east/ConfigMap/default/none", &["it does not exist"]).await;
    fleet
        .said("east/Secret/default/x", &["reconciles the kind Secret; there are: ConfigMap"])
        .await;
    for (wrong, why) in [
        ("west/ConfigMap/default/good", r#"no cluster "west" in the fleet: there is east"#),
        ("east/ConfigMapp/default/good", "reconciles the kind ConfigMapp; there are: ConfigMap"),
        ("east/configmaps/good", "ConfigMap has namespaces: write east/configmaps/NAMESPACE/good"),
    ] {
        fleet.said(wrong, &[why]).await;
        assert_eq!(fleet.explain(wrong).await.status.code(), Some(1), "{wrong}");
    }

    let json = ["explain", "east/ConfigMap/default/bad", "--plaintext", "--output", "json"];
    let json = fleet.leasehold(&json).await;
    assert!(json.status.success(), "{}", String::from_utf8_lossy(&json.stderr));
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["shards"][0]["shard"], "east/picky/0/1", "{json:#}");
    let failure = &json["members"][0]["controllers"][0]["key"]["failure"];
    assert_eq!((&failure["result"], &failure["times"]), (&json!("failed for good"), &json!(1)));

    // TLS is spoken where the replica speaks none, and an object has no name.
    let tls = fleet.leasehold(&["explain", "east/ConfigMap/default/good"]).await;
    let text = String::from_utf8_lossy(&tls.stdout);
    assert_eq!(tls.status.code(), Some(1), "{text}");
    assert!(text.contains("does not say: speak TLS with its admin server"), "{text}");
    let unnamed = fleet.explain("east/good").await;
    let text = String::from_utf8_lossy(&unnamed.stderr).into_owned();
    assert!(text.contains("write CLUSTER/KIND/NAMESPACE/NAME"), "{text}");
    fleet.stop.cancel();
}

/// Of two replicas, each says what it knows of the same object; whoever is asked through home can tell of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_own_an_object_says_why_and_who_does_is_found() {
    let fleet = Fleet::of(&[&["clusters"], &["clusters", "nowhere"]]).await;
    let object = "east/ConfigMap/default/slow";
    let map = json!({"metadata": {"name": "slow"}});
    create::<ConfigMap>(fleet.east.client(), Some("default"), map).await;
    let said = fleet.said(object, &["it has been reconciled for"]).await;
    let owner = usize::from(said.contains("is owned by replica-1-"));
    let (has, other) = (format!("replica-{owner}-"), format!("replica-{}-", 1 - owner));
    let at = |replica: usize| ["--address".to_owned(), fleet.addresses[replica].to_string()];
    let through_home = || ["--plaintext".to_owned(), "--output=table".to_owned()];
    let owned = format!("shard east/picky/0/1 is owned by {has}");
    let by = |member: &str| format!("controller picky on member {member}");
    let holds = "this member holds its shard east/picky/0/1 at epoch";
    let check = async |object: &str, how: [String; 2], lines: &[&str]| {
        fleet.said_to(&["explain", object, &how[0], &how[1]], lines).await
    };
    check(object, at(owner), &[&owned, &by(&has), holds]).await;
    let nothing = "it watches nothing there: this member holds no shard of it, or cannot";
    check(object, at(1 - owner), &[&owned, &by(&other), nothing]).await;

    // Only one of them has that cluster, and cannot use it: it is the one that is asked.
    let down = "west/ConfigMap/default/a";
    let said =
        check(down, through_home(), &["member replica-1-", "cannot use cluster west: "]).await;
    assert!(!said.contains("member replica-0-"), "{said}");

    // Its reconcile does not come to an end, so that the shard stays between the two.
    let drained = fleet.leasehold(&["drain", &format!("replica-{owner}")]).await;
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    let moving = format!("shard east/picky/0/1 is handed over from {has}");
    let still = "it has been reconciled for";
    check(object, through_home(), &[&moving, &by(&has), &by(&other), still]).await;
    fleet.stop.cancel();
}
