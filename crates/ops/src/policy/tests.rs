//! What the verbs take, write and say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use fleet::FleetShard;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use sharding::api::Phase;

use super::*;
use crate::One;

fn of(cluster: &[&str], group: &[&str]) -> FleetPolicySpec {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let (cluster, group) = (owned(cluster), owned(group));
    SomeArgs { cluster, group, shard: Vec::new() }.spec()
}

#[test]
fn a_policy_is_named_after_what_it_selects_in_whatever_order() {
    let name = |spec: &FleetPolicySpec| name("pause", spec).unwrap();
    let one = name(&of(&["east", "west"], &[]));
    assert!(one.starts_with("pause-east-"), "{one}");
    assert_eq!(one, name(&of(&["west", "east"], &[])));
    assert_ne!(one, name(&of(&["east"], &[])));
    assert_ne!(name(&of(&["east"], &[])), name(&of(&[], &["east"])));
    assert!(name(&FleetPolicySpec::default()).starts_with("pause-all-"));
    let limit = |capacity, max_shards| {
        let members = Some(MemberRule { capacity, max_shards, ..MemberRule::default() });
        name(&FleetPolicySpec { members, ..FleetPolicySpec::default() })
    };
    assert_eq!(limit(Some(1), None), limit(Some(2), None), "said again with another value");
    assert_ne!(limit(Some(1), None), limit(None, Some(1)), "another thing of the same members");
    let odd = name(&of(&["Ä-".repeat(60).as_str()], &[]));
    assert!(odd.len() < 63 && odd.is_ascii(), "{odd}");
}

#[test]
fn the_command_line_takes_what_a_verb_can_do() {
    let refused = |line: &str| {
        let line = ["leasehold"].into_iter().chain(line.split(' '));
        One::try_parse_from(line).err().map(|error| error.to_string())
    };
    for right in [
        "pause --all",
        "pause --cluster a --group b --shard c/d/0/1",
        "pin --all --zone eu",
        "weigh --group b --busy 5",
        "limit --cordon --all",
        "limit --member a --cordon",
        "pause --all --dry-run -o json",
        "lift a b --dry-run",
        "resume --all --output yaml",
        "drain m-0 --undo --dry-run",
    ] {
        assert_eq!(refused(right), None, "{right}");
    }
    for (wrong, why) in [
        ("pause", "<--cluster <NAME>|--group <NAME>|--shard <SHARD>|--all>"),
        ("pause --all --cluster a", "cannot be used with"),
        ("weigh --busy 5", "<--cluster <NAME>|--group <NAME>|--shard <SHARD>>"),
        ("weigh --all --busy 5", "unexpected argument '--all'"),
        ("limit --all --member a --cordon", "cannot be used with"),
        ("pause --all --wait --dry-run", "cannot be used with"),
        ("drain m-0 --wait --dry-run", "cannot be used with"),
    ] {
        let text = refused(wrong).unwrap_or_default();
        assert!(text.contains(why), "{wrong}: {text}");
    }
}

/// Nothing of what was said may be left out in silence.
#[test]
fn a_limit_says_all_that_was_asked_for_or_is_refused() {
    let said = |line: &str| {
        let line = ["leasehold", "limit"].into_iter().chain(line.split(' '));
        let crate::Command::Limit(args) = One::try_parse_from(line).unwrap().command else {
            panic!("it is another command");
        };
        args.spec().and_then(|spec| says(&spec)).unwrap_or_else(|why| why.to_string())
    };
    for (line, expect) in [
        ("--member a --capacity 5", "members {\"capacity\":5,\"names\":[\"a\"]}"),
        ("--moves 0", "moves {\"inFleet\":0}"),
        (
            "--max-shards 9 --moves-per-member 1",
            "members {\"maxShards\":9}, moves {\"perMember\":1}",
        ),
        ("--cordon --all", "members {\"cordon\":true}"),
    ] {
        assert_eq!(said(line), expect, "{line}");
    }
    assert!(said("--cordon").starts_with("say whom to cordon"));
    for line in ["--member a --moves 4", "--zone eu --capacity 5 --moves-per-member 4"] {
        assert!(said(line).contains("are of the whole fleet"), "{line}: {}", said(line));
    }
}

/// What a finalizer keeps is not lifted.
#[test]
fn a_policy_that_finalizers_keep_is_not_said_to_be_lifted() {
    let left = |finalizers: &[&str]| -> DynamicObject {
        let metadata = serde_json::json!({"name": "p", "finalizers": finalizers});
        serde_json::from_value(serde_json::json!({"metadata": metadata})).unwrap()
    };
    assert!(check_gone("p", "lh", None).is_ok());
    assert!(check_gone("p", "lh", Some(&left(&[]))).is_ok());
    let kept = check_gone("p", "lh", Some(&left(&["a.b/c", "d"]))).unwrap_err().to_string();
    assert!(kept.contains("its finalizers keep it, and it holds on: a.b/c, d; fix:"), "{kept}");
    let patch = r#"fleetpolicy p --type merge --patch '{"metadata":{"finalizers":null}}'"#;
    assert!(kept.ends_with(&format!("kubectl --namespace lh patch {patch}")), "{kept}");
}

/// A policy as home has it.
fn found(spec: Value) -> FoundPolicy {
    let object = json!({"metadata": {"name": "pause-east-1"}, "spec": spec});
    FoundPolicy::of(serde_json::from_value(object).unwrap())
}

/// Who takes a pause back has looked at what else the policy says. What somebody adds after that stays, and so do the
/// other pauses that were to go with it.
#[tokio::test]
async fn a_pause_that_says_more_by_now_is_not_deleted_nor_are_those_beside_it() {
    let gone = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&gone);
    let server = tower::service_fn(move |request: Request<Body>| {
        let count = Arc::clone(&count);
        async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            let asked: Value = serde_json::from_slice(&body).unwrap();
            let is_bound = asked["preconditions"] == json!({"uid": "u1", "resourceVersion": "7"});
            let (status, code) = if is_bound { ("Failure", 409_u16) } else { ("Success", 200) };
            count.fetch_add(usize::from(!is_bound && asked["dryRun"].is_null()), Ordering::SeqCst);
            let answer = json!({
                "apiVersion": "v1", "kind": "Status", "status": status, "code": code,
                "reason": "Conflict", "message": "it is at 8 by now",
            });
            Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))
        }
    });
    let client = Client::new(server, "default");
    let home = HomeCluster { client, namespace: "lh".into(), shown: "home".into() };
    let metadata = json!({"name": "p", "uid": "u1", "resourceVersion": "7"});
    let said = json!({"metadata": metadata, "spec": {"pause": true}});
    let said: DynamicObject = serde_json::from_value(said).unwrap();
    let line = ["leasehold", "lift", "p"];
    let crate::Command::Lift(args) = One::try_parse_from(line).unwrap().command else {
        panic!("it is another command");
    };
    let (p, q) = (("p", Some(&said)), ("q", None));
    let refused = delete_all(&home, &[q, p], args.form).await.unwrap_err().to_string();
    assert!(refused.contains("it is at 8 by now"), "{refused}");
    assert!(refused.contains("; fix: somebody else writes it too: "), "{refused}");
    assert_eq!(gone.load(Ordering::SeqCst), 0, "some are gone and others not");
    delete_all(&home, &[q], args.form).await.unwrap();
    assert_eq!(gone.load(Ordering::SeqCst), 1);
}

/// Whoever pauses a cluster must not believe that it is paused when somebody else has limited that policy.
#[test]
fn what_others_have_set_in_a_policy_is_told() {
    let asked = FleetPolicySpec { pause: Some(true), ..of(&["east"], &[]) };
    let lift = "leasehold lift pause-east-1";
    let said = |spec: Value| check_said(&found(spec), &asked, false, lift);
    let east = json!({"clusters": ["east"]});
    assert!(said(json!({"pause": true, "shards": east, "reason": "by kubectl"})).is_ok());
    for odd in [
        json!({"pause": true, "shards": {"clusters": ["east"], "groups": ["g"]}}),
        json!({"pause": true, "shards": east, "busy": 5}),
        json!({"pause": true}),
        json!({"pause": "yes", "shards": east}),
    ] {
        let text = said(odd.clone()).unwrap_err().to_string();
        let expect =
            format!("pause-east-1 is written, but says something else than was asked for: {odd}; ");
        assert!(text.starts_with(&expect), "{text}");
        assert!(text.contains("; fix: `leasehold lift pause-east-1`, and say it again"), "{text}");
    }
    let dry = check_said(&found(json!({"pause": true})), &asked, true, lift).unwrap_err();
    let text = dry.to_string();
    assert!(text.starts_with("pause-east-1 would be written, but says something else"), "{text}");
}

/// Whoever takes one of two pauses back must not believe that the work goes on.
#[test]
fn shards_that_others_still_pause_are_told() {
    let shard = |name: &str, by: Option<&str>| FleetShard {
        paused_by: by.map(str::to_owned),
        ..FleetShard::example(name, None, Phase::Unowned)
    };
    let shards = vec![
        shard("east/g/0/1", Some("all")),
        shard("east/h/0/1", None),
        shard("west/g/0/1", Some("night")),
    ];
    let fleet = Fleet { shards, ..Fleet::default() };
    let of = |cluster: &str, pause: bool| {
        found(json!({"pause": pause, "busy": 5, "shards": {"clusters": [cluster]}}))
    };
    let (east, west, none) = (of("east", true), of("west", true), of("east", false));
    let one = Some("1 of 2 shards stay paused, by all: see `leasehold policies`");
    assert_eq!(still_paused(&[&east], &fleet).as_deref(), one);
    let both = Some("2 of 3 shards stay paused, by all, night: see `leasehold policies`");
    assert_eq!(still_paused(&[&west, &east, &east], &fleet).as_deref(), both);
    assert_eq!(still_paused(&[&none], &fleet), None, "it was no pause");
}

#[test]
fn the_same_selection_is_found_again() {
    let (a, b) = (of(&["east", "west"], &["g"]).shards, of(&["west", "east"], &["g"]).shards);
    assert!(same(&a, &b));
    assert!(!same(&a, &of(&["east"], &["g"]).shards));
    assert!(!same(&a, &None));
    assert!(same(&None, &None));
}
