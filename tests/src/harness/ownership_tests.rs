//! Small histories of ownership, written as audit lines.

use super::*;
use crate::harness::audit::{Renewal, answered, committed, denied, parse, renewals, unattributed};

fn at(second: u32) -> String {
    format!("2026-01-01T00:00:{second:02}.000000Z")
}

/// A ShardMap of `east` committed within second `second`, with `(shard, epoch, owner)` entries.
fn map(second: u32, entries: &[(&str, u64, Option<&str>)]) -> String {
    let shards: Vec<Value> = entries
        .iter()
        .map(|(shard, epoch, owner)| {
            serde_json::json!({"shard": shard, "epoch": epoch, "owner": owner})
        })
        .collect();
    serde_json::json!({
        "verb": "update", "stage": "ResponseComplete", "requestURI": "/shardmaps/east",
        "objectRef": {"resource": "shardmaps", "name": "east"}, "responseStatus": {"code": 200},
        "responseObject": {
            "metadata": {"name": "east", "resourceVersion": second.to_string()},
            "spec": {"shards": shards},
        },
        "requestReceivedTimestamp": at(second), "stageTimestamp": at(second),
    })
    .to_string()
}

fn write(from: u32, to: u32, agent: &str) -> String {
    serde_json::json!({
        "verb": "patch", "stage": "ResponseComplete", "requestURI": "/deployments/web",
        "userAgent": agent, "objectRef": {"resource": "deployments", "name": "web"},
        "user": {"username": "us"}, "responseStatus": {"code": 200},
        "requestReceivedTimestamp": at(from), "stageTimestamp": at(to),
    })
    .to_string()
}

fn by(member: &str, epoch: u64) -> String {
    format!("leasehold/0.1.0 (member={member}; shard=east/tdset/0/1; epoch={epoch}; key=ns/web)")
}

const SHARD: &str = "tdset/0/1";

/// `a` owns the shard from second 10, `b` from second 20, nobody from second 30.
fn history() -> Vec<AuditEvent> {
    parse(
        &[
            map(5, &[(SHARD, 0, None)]),
            map(10, &[(SHARD, 1, Some("a"))]),
            map(15, &[(SHARD, 1, Some("a"))]),
            map(20, &[(SHARD, 2, Some("b"))]),
            map(30, &[(SHARD, 2, None)]),
        ]
        .join("\n"),
    )
}

#[test]
fn a_write_is_allowed_within_its_owners_time_only() {
    for (from, to, agent, expected) in [
        (11, 12, by("a", 1), ""),
        (10, 20, by("a", 1), ""),
        (21, 29, by("b", 2), ""),
        (9, 12, by("a", 1), "before the ownership"),
        (19, 21, by("a", 1), "after the ownership"),
        (25, 31, by("b", 2), "after the ownership"),
        (25, 26, by("a", 2), "b owned it at that epoch"),
        (25, 26, by("b", 3), "nobody owned it at that epoch"),
        (25, 26, by("b", 2).replace("east/", "west/"), "that shard belongs to another cluster"),
    ] {
        let writes = parse(&write(from, to, &agent));
        let report = verify(&history(), &[("east", &writes)]);
        assert_eq!(report.writes, 1, "{agent}");
        let found = report.violations.join("\n");
        match expected {
            "" => assert_eq!(found, "", "{from}..{to} {agent}"),
            _ => assert!(found.contains(expected), "{from}..{to} {agent}: {found}"),
        }
    }
}

#[test]
fn only_writes_of_reconcilers_count() {
    let read = write(11, 12, &by("x", 9)).replace("patch", "get");
    let other = write(11, 12, "kubectl/v1.37.1 (linux/amd64)");
    let own = write(11, 12, "leasehold/0.1.0");
    let events = parse(&[read, other, own].join("\n"));
    let report = verify(&history(), &[("east", &events)]);
    assert_eq!((report.writes, report.violations.len()), (0, 0));
    assert_eq!(unattributed(&events, &["deployments"]).len(), 1);
    assert_eq!(unattributed(&events, &["leases"]).len(), 0);
}

#[test]
fn an_epoch_has_one_owner_and_grows() {
    for (entries, expected) in [
        ([1, 1], "b got it at epoch 1 after a at epoch 1"),
        ([2, 1], "b got it at epoch 1 after a at epoch 2"),
    ] {
        let lines = [
            map(10, &[(SHARD, entries[0], Some("a"))]),
            map(20, &[(SHARD, entries[1], Some("b"))]),
        ];
        let report = verify(&parse(&lines.join("\n")), &[]);
        assert!(report.violations.join("\n").contains(expected), "{:?}", report.violations);
    }
}

#[test]
fn a_restored_home_names_former_owners_and_gives_them_nothing() {
    let lines = [
        map(10, &[(SHARD, 1, Some("a"))]),
        map(20, &[(SHARD, 2, Some("b"))]),
        map(30, &[(SHARD, 1, Some("a"))]),
        map(40, &[(SHARD, 3, Some("c"))]),
    ];
    let events = parse(&lines.join("\n"));
    let judged = |lost: &[u32]| {
        let lost: Vec<_> = lost.iter().map(|&s| at(s).parse().unwrap()).collect();
        Ownership::from_events(&events, &lost)
    };
    let restored = judged(&[25]);
    assert_eq!(restored.violations, [""; 0]);
    let owners: Vec<_> =
        restored.assignments["east/tdset/0/1"].iter().map(|a| a.owner.as_str()).collect();
    assert_eq!(owners, ["a", "b", "c"]);
    for lost in [&[][..], &[15], &[35]] {
        assert_eq!(judged(lost).violations.len(), 1, "home lost nothing between the two: {lost:?}");
    }
}

#[test]
fn deleting_a_map_ends_every_ownership() {
    let deletion = map(25, &[]).replace("update", "delete");
    let mut home = parse(&map(10, &[(SHARD, 1, Some("a"))]));
    home.extend(parse(&deletion));
    let writes = parse(&write(24, 26, &by("a", 1)));
    assert_eq!(verify(&home, &[("east", &writes)]).violations.len(), 1);
}

#[test]
fn refused_requests_are_listed_by_user() {
    let refused = write(11, 12, "x").replace("200", "403");
    let events = parse(&[refused, write(11, 12, "x")].join("\n"));
    assert_eq!(denied(&events, "us"), ["patch /deployments/web"]);
    assert_eq!((denied(&events, "them").len(), answered(&events, "us")), (0, 2));
}

#[test]
fn a_renewal_is_a_members_own_write_of_its_lease() {
    let lease = |second, user: &str, code: u16| {
        write(second, second, "leasehold/0.1.0")
            .replace("\"us\"", &format!("\"{user}\""))
            .replace("\"deployments\"", "\"leases\"")
            .replace("\"name\":\"web\"", "\"name\":\"leasehold-member-replica-1-x7k2p\"")
            .replace("200", &code.to_string())
    };
    let lines = [
        lease(10, "replica-1", 200),
        lease(12, "replica-1", 409),
        lease(20, "replica-2", 200),
        write(21, 21, "leasehold/0.1.0"),
    ];
    let found = renewals(&parse(&lines.join("\n")));
    let expected = Renewal { member: "replica-1-x7k2p".to_owned(), at: at(10).parse().unwrap() };
    assert_eq!(found, [expected]);
}

#[test]
fn a_drain_belongs_to_the_assignment_of_its_owner() {
    let draining = map(15, &[(SHARD, 1, Some("a"))])
        .replace("\"shard\":\"tdset/0/1\"", "\"phase\":\"Draining\",\"shard\":\"tdset/0/1\"");
    let lines = [map(10, &[(SHARD, 1, Some("a"))]), draining, map(20, &[(SHARD, 2, Some("b"))])];
    let ownership = Ownership::from_events(&parse(&lines.join("\n")), &[]);
    let assignments = &ownership.assignments["east/tdset/0/1"];
    let draining: Vec<_> = assignments.iter().map(|assignment| assignment.draining).collect();
    assert_eq!(draining, [Some(at(15).parse().unwrap()), None]);
}

#[test]
fn a_line_that_is_cut_short_is_skipped() {
    let lines = [&map(10, &[])[..40], &map(20, &[])].join("\n");
    assert_eq!(parse(&lines).len(), 1);
}

#[test]
fn committed_writes_of_one_resource_are_found() {
    let line = |verb: &str, resource: &str, code: u16| {
        write(11, 12, "x")
            .replace("patch", verb)
            .replace("\"name\":\"web\"", "\"name\":\"web\",\"namespace\":\"home\"")
            .replace("\"deployments\"", &format!("\"{resource}\""))
            .replace("200", &code.to_string())
    };
    for (line, expected) in [
        (line("update", "leases", 200), 1),
        (line("update", "leases", 409), 0),
        (line("get", "leases", 200), 0),
        (line("update", "members", 200), 0),
        (line("update", "leases", 200).replace("home", "kube-system"), 0),
    ] {
        assert_eq!(committed(&parse(&line), "leases", "home").count(), expected, "{line}");
    }
}
