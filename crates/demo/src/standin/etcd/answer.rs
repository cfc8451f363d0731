//! What a member answers, in the JSON of etcd's gateway. Pure.
//!
//! As there, numbers of 64 bits are texts, and what is zero is left out.

use serde_json::{Map, Value, json};

use super::cluster::{Cluster, Clusters, FOR_LEARNER, Id, Member, Refusal};

/// The bytes of every database.
const SIZE: i64 = 20 << 10;
/// The bytes that a database may have by default.
const QUOTA: i64 = 2 << 30;

/// An answer of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: String,
}

/// What the member says to a request; a body that is none counts as empty.
pub(super) fn answer(
    clusters: &mut Clusters,
    me: Id,
    get: bool,
    path: &str,
    body: &[u8],
) -> Answer {
    let Some(cluster) = clusters.of(me) else {
        return refused(Refusal(14, "etcdserver: server stopped"));
    };
    if get {
        return probe(cluster, me.1, path);
    }
    let body = serde_json::from_slice(body).unwrap_or(Value::Null);
    match ask(cluster, me.1, path, &body) {
        None => text(404, "{\"code\":5, \"message\":\"Not Found\", \"details\":[]}"),
        Some(Err(refusal)) => refused(refusal),
        Some(Ok(mut answer)) => {
            answer["header"] = json!({
                "cluster_id": cluster.id.to_string(), "member_id": me.1.to_string(),
                "revision": "1", "raft_term": cluster.term.to_string(),
            });
            text(200, &without_zeroes(answer).to_string())
        }
    }
}

fn text(code: u16, body: &str) -> Answer {
    Answer { code, body: body.to_owned() }
}

/// Probes, as kubelets ask for them.
fn probe(cluster: &Cluster, me: u64, path: &str) -> Answer {
    let led = cluster.leader != 0;
    let version = |me: u64| cluster.members.get(&me).map_or("", |member| &member.version);
    match path {
        "/version" => {
            let of_cluster = minor(&cluster.members);
            let body = json!({
                "etcdserver": version(me), "etcdcluster": of_cluster, "storage": of_cluster,
            });
            text(200, &body.to_string())
        }
        "/health" if led => text(200, "{\"health\":\"true\",\"reason\":\"\"}"),
        "/health" => text(503, "{\"health\":\"false\",\"reason\":\"RAFT NO LEADER\"}"),
        "/readyz" if !led => text(503, "[-]linearizable_read failed: etcdserver: no leader\n"),
        "/livez" | "/readyz" => text(200, "ok\n"),
        _ => text(404, "404 page not found\n"),
    }
}

/// The lowest minor version of all members that have started, as etcd's version of a cluster.
fn minor(members: &std::collections::BTreeMap<u64, Member>) -> String {
    let numbers = |version: &str| -> Option<(u32, u32)> {
        let mut parts = version.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let lowest = members.values().filter_map(|member| numbers(&member.version)).min();
    lowest.map_or_else(|| "not_decided".to_owned(), |(major, minor)| format!("{major}.{minor}.0"))
}

/// The answer to a call, without its header; `None` if there is no such call.
fn ask(cluster: &mut Cluster, me: u64, path: &str, body: &Value) -> Option<Result<Value, Refusal>> {
    if path == "/v3/maintenance/status" {
        return Some(Ok(status(cluster, me)));
    }
    let learns = cluster.members.get(&me).is_some_and(|member| member.learner);
    let answer = match path {
        _ if learns && path.starts_with("/v3/") => Err(FOR_LEARNER),
        "/v3/cluster/member/list" => match body["linearizable"] == true {
            true => cluster.check_leader().map(|()| members(cluster)),
            false => Ok(members(cluster)),
        },
        "/v3/cluster/member/add" => {
            let urls = body["peerURLs"].as_array().into_iter().flatten();
            let urls = urls.filter_map(Value::as_str).map(str::to_owned).collect();
            cluster.add(urls, body["isLearner"] == true).map(|id| {
                let mut answer = members(cluster);
                answer["member"] = member(id, &cluster.members[&id]);
                answer
            })
        }
        "/v3/cluster/member/remove" => {
            cluster.remove(number(&body["ID"])).map(|()| members(cluster))
        }
        "/v3/cluster/member/promote" => {
            cluster.promote(number(&body["ID"])).map(|()| members(cluster))
        }
        "/v3/maintenance/alarm" => cluster.check_leader().map(|()| alarms(cluster, body)),
        "/v3/maintenance/defragment" => Ok(json!({})),
        "/v3/maintenance/transfer-leadership" => {
            cluster.move_leader(me, number(&body["targetID"])).map(|()| json!({}))
        }
        _ => return None,
    };
    Some(answer)
}

fn members(cluster: &Cluster) -> Value {
    let members: Vec<Value> = cluster.members.iter().map(|(id, one)| member(*id, one)).collect();
    json!({ "members": members })
}

fn member(id: u64, member: &Member) -> Value {
    json!({
        "ID": id.to_string(), "name": member.name, "peerURLs": member.peer_urls,
        "clientURLs": member.client_urls, "isLearner": member.learner,
    })
}

fn status(cluster: &Cluster, me: u64) -> Value {
    let member = cluster.members.get(&me).cloned().unwrap_or_default();
    let mut errors = Vec::new();
    if cluster.leader == 0 {
        errors.push("etcdserver: no leader".to_owned());
    }
    errors.extend(cluster.full.iter().map(|id| format!("memberID:{id} alarm:NOSPACE ")));
    json!({
        "version": member.version, "dbSize": SIZE.to_string(), "dbSizeInUse": SIZE.to_string(),
        "dbSizeQuota": member.quota.unwrap_or(QUOTA).to_string(),
        "leader": text_of(cluster.leader), "isLearner": member.learner, "errors": errors,
        "raftIndex": cluster.index.to_string(), "raftAppliedIndex": cluster.index.to_string(),
        "raftTerm": cluster.term.to_string(), "storageVersion": minor(&cluster.members),
    })
}

/// Tells of the alarms, or raises and ends that of a full database.
fn alarms(cluster: &mut Cluster, body: &Value) -> Value {
    let (id, space) = (number(&body["memberID"]), body["alarm"] == "NOSPACE");
    match body["action"].as_str() {
        Some("ACTIVATE") if space => drop(cluster.full.insert(id)),
        Some("DEACTIVATE") if space => drop(cluster.full.remove(&id)),
        _ => {}
    }
    let alarm = |id: &u64| json!({"memberID": id.to_string(), "alarm": "NOSPACE"});
    json!({"alarms": cluster.full.iter().map(alarm).collect::<Vec<_>>()})
}

fn text_of(number: u64) -> String {
    if number == 0 { String::new() } else { number.to_string() }
}

/// A number of 64 bits, in either form; 0 if it is none.
fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

fn refused(Refusal(code, message): Refusal) -> Answer {
    let http = match code {
        3 | 9 => 400,
        5 => 404,
        14 => 503,
        _ => 500,
    };
    text(http, &json!({"code": code, "message": message, "details": []}).to_string())
}

fn without_zeroes(value: Value) -> Value {
    let is_zero = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !is_zero(value));
            Value::Object(
                kept.map(|(name, value)| (name, without_zeroes(value))).collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => items.into_iter().map(without_zeroes).collect(),
        other => other,
    }
}
