//! Canned answers of etcd 3.6's gateway, over a pipe.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::connection::connect;

fn address() -> Address {
    Address {
        namespace: "web".into(),
        pod: "db-0".into(),
        host: "db-0.db-peers.web.svc".into(),
        trust: None,
    }
}

/// Reads one request and returns it with its body.
async fn request(server: &mut DuplexStream) -> String {
    let (mut text, mut piece) = (Vec::new(), [0; 1024]);
    loop {
        let length = server.read(&mut piece).await.unwrap();
        text.extend_from_slice(&piece[..length]);
        let all = String::from_utf8_lossy(&text).into_owned();
        let Some((head, body)) = all.split_once("\r\n\r\n") else { continue };
        let wanted = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length == 0 || body.len() >= wanted.map_or(0, |wanted| wanted.parse().unwrap()) {
            return all;
        }
    }
}

/// A server that answers once, and returns what it was asked.
async fn answering(mut server: DuplexStream, code: u16, answer: String) -> String {
    let asked = request(&mut server).await;
    let head = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\n\r\n", answer.len());
    server.write_all(head.as_bytes()).await.unwrap();
    // A client that has seen enough may be gone.
    let _ = server.write_all(answer.as_bytes()).await;
    asked
}

async fn asked<T>(
    code: u16,
    answer: Value,
    ask: impl AsyncFnOnce(&mut dyn Session) -> T,
) -> (String, T) {
    let (client, server) = duplex(1 << 16);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut session = connect(&address(), client, now).await.unwrap();
    let answer = if let Value::String(text) = answer { text } else { answer.to_string() };
    let client = async move {
        // The connection ends with the question, so that a server which says too much is cut.
        ask(&mut *session).await
    };
    tokio::join!(answering(server, code, answer), client)
}

#[tokio::test]
async fn members_are_listed_by_a_linearizable_read() {
    let answer = json!({
        "header": {"cluster_id": "14841639068965178418", "member_id": "10276657743932975437"},
        "members": [
            {"ID": "10276657743932975437", "name": "db-0", "peerURLs": ["https://db-0:2380"]},
            {"ID": "1", "peerURLs": ["https://db-1:2380"], "isLearner": true},
        ],
    });
    let (asked, roster) = asked(200, answer, async |session| roster(session).await).await;
    assert!(asked.starts_with("POST /v3/cluster/member/list HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("host: db-0.db-peers.web.svc\r\n"), "{asked}");
    assert!(asked.ends_with(r#"{"linearizable":true}"#), "{asked}");
    let roster = roster.unwrap();
    assert_eq!(roster.cluster_id(), "cdf818194e3a8c32");
    assert_eq!(roster.members[0].id, 10_276_657_743_932_975_437);
    assert!(roster.members[1].name.is_empty() && roster.members[1].is_learner);
}

#[tokio::test]
async fn a_status_has_sizes_leader_and_alarms() {
    let answer = json!({
        "header": {"cluster_id": "7", "member_id": "9", "raft_term": "2"},
        "version": "3.6.5", "dbSize": "20480", "leader": "9", "raftIndex": "8",
        "errors": ["memberID:9 alarm:NOSPACE"], "dbSizeInUse": "16384", "dbSizeQuota": "2147483648",
    });
    let (_, look) = asked(200, answer, async |session| look(session).await).await;
    let look = look.unwrap();
    assert_eq!((look.leader, look.db_size, look.in_use), (9, 20_480, 16_384));
    assert_eq!((&*look.version, look.quota, look.is_learner), ("3.6.5", 2_147_483_648, false));
    assert!(look.errors[0].contains("NOSPACE"));
}

#[tokio::test]
async fn alarms_are_named() {
    let answer = json!({"header": {}, "alarms": [{"memberID": "9", "alarm": "NOSPACE"}]});
    let (_, found) = asked(200, answer, async |session| alarms(session).await).await;
    assert_eq!(found.unwrap(), [Alarm { member: 9, alarm: "NOSPACE".into() }]);
    let (_, none) = asked(200, json!({"header": {}}), async |session| alarms(session).await).await;
    assert!(none.unwrap().is_empty());
}

#[tokio::test]
async fn every_change_is_asked_for_in_the_gateways_words() {
    let url = "https://db-3:2380";
    let ok = || json!({"header": {}});
    let (add, _) = asked(200, ok(), async |session| add_learner(session, url).await).await;
    let (promote, _) = asked(200, ok(), async |session| promote(session, 7).await).await;
    let (remove, _) = asked(200, ok(), async |session| remove(session, u64::MAX).await).await;
    let (moved, _) = asked(200, ok(), async |session| move_leader(session, 7).await).await;
    let (defragment, _) = asked(200, ok(), async |session| defragment(session).await).await;
    let (disarm, _) = asked(200, ok(), async |session| disarm(session, 7).await).await;
    for (asked, path, body) in [
        (add, "/v3/cluster/member/add", r#"{"isLearner":true,"peerURLs":["https://db-3:2380"]}"#),
        (promote, "/v3/cluster/member/promote", r#"{"ID":"7"}"#),
        (remove, "/v3/cluster/member/remove", r#"{"ID":"18446744073709551615"}"#),
        (moved, "/v3/maintenance/transfer-leadership", r#"{"targetID":"7"}"#),
        (defragment, "/v3/maintenance/defragment", "{}"),
        (
            disarm,
            "/v3/maintenance/alarm",
            r#"{"action":"DEACTIVATE","alarm":"NOSPACE","memberID":"7"}"#,
        ),
    ] {
        assert!(asked.starts_with(&format!("POST {path} ")), "{asked}");
        let sent: Value = serde_json::from_str(asked.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(sent, serde_json::from_str::<Value>(body).unwrap(), "{path}");
    }
}

#[tokio::test]
async fn refusals_are_etcds_words_and_short() {
    let answer = json!({
        "error": "x", "code": 9,
        "message": "etcdserver: can only promote a learner member which is in sync with leader",
    });
    let (_, error) = asked(400, answer, async |session| promote(session, 7).await).await;
    let error = error.unwrap_err();
    assert!(error.lags() && !error.wants_user(), "{error}");
    assert!(error.to_string().contains("it answers 400: etcdserver: can only"), "{error}");
    let answer = json!({"message": "etcdserver: user name is empty", "code": 3});
    let (_, error) = asked(400, answer, async |session| remove(session, 7).await).await;
    assert!(error.unwrap_err().wants_user());
    let (_, error) =
        asked(502, json!("x".repeat(9_999)), async |session| look(session).await).await;
    assert!(error.unwrap_err().to_string().len() < 500);
}

#[tokio::test]
async fn hostile_answers_are_errors() {
    for (answer, says) in [
        (json!("no json"), "unreadable"),
        (json!({"members": "none"}), "unreadable"),
        (json!({"header": {"cluster_id": "-1"}}), "unreadable"),
        (json!("x".repeat(1 << 21)), "reach"),
    ] {
        let (_, found) = asked(200, answer, async |session| roster(session).await).await;
        assert!(found.unwrap_err().to_string().contains(says));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_its_time() {
    let (client, _server) = duplex(1 << 16);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut session = connect(&address(), client, now).await.unwrap();
    let error = look(&mut *session).await.unwrap_err();
    assert!(matches!(error, EtcdError::Slow { seconds: 10, .. }), "{error}");
}

#[tokio::test]
async fn a_broken_connection_is_an_error() {
    let (client, server) = duplex(1 << 16);
    drop(server);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut session = connect(&address(), client, now).await.unwrap();
    assert!(matches!(look(&mut *session).await, Err(EtcdError::Unreached { .. })));
}
