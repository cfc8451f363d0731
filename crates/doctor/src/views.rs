//! What replicas say of themselves and of their clusters at `/debug` and `/metrics`: pure. A replica of another
//! release may say more or less.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::report::Finding;

/// A credential that nobody renews by itself is near its end with this much left, or a tenth of its life if that is
/// less: as for the alerts.
const NEAR_ITS_END: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How long a server may be silent before a watch is in doubt.
const MAX_LAG_SECONDS: f64 = 300.0;
/// The share of its memory limit that a replica may use.
const MAX_MEMORY: f64 = 0.85;
/// How the refusal of a member begins that is not ready.
const NOT_READY: &str = "it answers 503 Service Unavailable: ";
/// How many failing objects a finding names.
const MAX_NAMED: usize = 3;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Clusters {
    clusters: Vec<Cluster>,
    problems: Vec<String>,
    upstreams: Vec<Upstream>,
    quarantines: Vec<Quarantine>,
    informers: Vec<Informer>,
    absent: Vec<Absent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Cluster {
    name: String,
    state: String,
    unidentified: Option<String>,
    unmarked: Option<String>,
    credential: Option<Credential>,
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Credential {
    source: String,
    begins: Option<Timestamp>,
    ends: Timestamp,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Upstream {
    cluster: String,
    cause: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Quarantine {
    cluster: String,
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Informer {
    cluster: String,
    kind: String,
    synced: bool,
    objects: u64,
    bytes: u64,
    lag_seconds: Option<f64>,
    throttled: Vec<String>,
    /// Told once for each controller that needs it.
    absent: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Absent {
    controller: String,
    cluster: String,
    kind: String,
    optional: bool,
    error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Queue {
    controller: String,
    failing: Vec<Failing>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Failing {
    key: String,
    result: String,
    error: String,
    times: u32,
}

/// What a member's `/debug/clusters` tells, as of `now`.
pub fn of_clusters(member: &str, answer: &[u8], now: Timestamp) -> Vec<Finding> {
    let Ok(all) = serde_json::from_slice::<Clusters>(answer) else {
        return vec![unreadable(member, "/debug/clusters")];
    };
    let about = |cluster: &str| format!("cluster {cluster}");
    let mut found: Vec<Finding> = Vec::new();
    found.extend(all.clusters.iter().flat_map(|cluster| of_cluster(cluster, now)));
    found.extend(all.problems.iter().map(|problem| Finding::of_reason("clusters", problem)));
    found.extend(all.upstreams.iter().filter_map(|upstream| {
        let cause = upstream.cause.as_ref()?;
        let fix =
            "requests go on by themselves once it answers again; see what its API server does";
        let what = format!("requests are held back: {cause}");
        Some(Finding::failure(about(&upstream.cluster), what, fix))
    }));
    let quarantined = |quarantine: &Quarantine| {
        Finding::of_reason(about(&quarantine.cluster), &quarantine.reason)
    };
    found.extend(all.quarantines.iter().map(quarantined));
    found.extend(all.informers.iter().filter_map(of_informer));
    let mut throttled = BTreeSet::new();
    for informer in &all.informers {
        throttled.extend(informer.throttled.iter().map(|why| (&informer.cluster, why)));
    }
    found.extend(throttled.into_iter().map(|(cluster, why)| of_throttled(cluster, why)));
    found.extend(all.absent.iter().filter(|absent| !absent.optional).map(|absent| {
        let Absent { controller, cluster, kind, error, .. } = absent;
        let said = error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
        let what = format!("controller {controller} does not run: {kind} cannot be watched{said}");
        let fix = "install its definition (`leasehold crds`), or give our user the right to list and watch it";
        Finding::failure(about(cluster), what, fix)
    }));
    let (objects, bytes) = all.informers.iter().fold((0, 0), |(objects, bytes), informer| {
        (objects + informer.objects, bytes + informer.bytes)
    });
    let up = all.clusters.iter().filter(|cluster| cluster.state == "engaged").count();
    let what = format!(
        "{up} of {} clusters engaged; caches {objects} objects in {:.1} MiB",
        all.clusters.len(),
        bytes as f64 / f64::from(1 << 20)
    );
    found.push(Finding::ok(format!("member {member}"), what));
    found
}

/// What a cluster's status says, in the form in which `/debug/clusters` has it.
pub fn of_status(status: &impl Serialize, now: Timestamp) -> Vec<Finding> {
    let read = serde_json::to_value(status).and_then(serde_json::from_value::<Cluster>);
    read.map(|cluster| of_cluster(&cluster, now)).unwrap_or_default()
}

fn of_cluster(cluster: &Cluster, now: Timestamp) -> Vec<Finding> {
    let about = || format!("cluster {}", cluster.name);
    let mut found = Vec::new();
    found.extend(cluster.reason.as_ref().map(|reason| Finding::of_reason(about(), reason)));
    let notes = [&cluster.unidentified, &cluster.unmarked];
    let warn = |note: &String| Finding::of_reason(about(), note).or_warning();
    found.extend(notes.into_iter().flatten().map(warn));
    if let Some(credential) = &cluster.credential
        && let Some(what) = credential.trouble(now)
    {
        let fix = match credential.is_file() {
            true => FILE,
            false => "`leasehold clusters rotate`, or replace what is in its kubeconfig",
        };
        found.push(Finding::warning(about(), what, fix));
    }
    found
}

/// What to do about a credential in a file.
const FILE: &str =
    "whoever replaces its file should have done so: the kubelet (see its log), or a job of yours";

impl Credential {
    fn is_file(&self) -> bool {
        self.source == "file"
    }

    /// What is wrong with it. Programs and issuers renew by themselves.
    fn trouble(&self, now: Timestamp) -> Option<String> {
        let Self { source, begins, ends } = self;
        let left = ends.duration_since(now);
        let tenth = begins.map_or(NEAR_ITS_END, |begins| ends.duration_since(begins) / 10);
        let is_near = left < tenth.min(NEAR_ITS_END);
        let verb = if left.is_negative() { "ended" } else { "ends" };
        let is_ours = self.is_file() || source == "kubeconfig";
        (is_near && is_ours).then(|| format!("its credential {verb} at {ends}"))
    }
}

fn of_informer(informer: &Informer) -> Option<Finding> {
    let Informer { cluster, kind, synced, lag_seconds, error, .. } = informer;
    let about = format!("cluster {cluster}");
    if informer.absent.is_some() {
        return None;
    }
    if let Some(error) = error {
        return Some(Finding::of_reason(about, &format!("{kind} cannot be watched: {error}")));
    }
    if !synced {
        let fix = "large lists take minutes; if it stays, see leasehold_watch_* of the engine's dashboard";
        return Some(Finding::warning(about, format!("{kind} is not listed yet"), fix));
    }
    let lag = lag_seconds.filter(|lag| *lag > MAX_LAG_SECONDS)?;
    let fix = "see whether its API server and what lies between send events";
    Some(Finding::warning(
        about,
        format!("the server sent nothing about {kind} for {lag:.0} s"),
        fix,
    ))
}

fn of_throttled(cluster: &str, why: &str) -> Finding {
    let (what, fix) = match why {
        "changes" => (
            "it changes faster than we take changes in, so they are reconciled late",
            "see who writes to it so often (`leasehold top`, the audit log of its API server)",
        ),
        _ => (
            "its lists come slowly, so they have few places and take long",
            "see its API server and what lies between",
        ),
    };
    Finding::warning(format!("cluster {cluster}"), what, fix)
}

/// What a member's `/debug/queues` tells: the objects that fail.
pub fn of_queues(member: &str, answer: &[u8]) -> Vec<Finding> {
    let Ok(all) = serde_json::from_slice::<Vec<Queue>>(answer) else {
        return vec![unreadable(member, "/debug/queues")];
    };
    let finding = |queue: &Queue| {
        let worst = queue.failing.iter().take(MAX_NAMED);
        let shown: Vec<_> = worst
            .map(|f| format!("{} ({} times, {}: {})", f.key, f.times, f.result, f.error))
            .collect();
        let more = queue.failing.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let what = format!("objects fail: {}{more}", shown.join("; "));
        let fix = "`leasehold explain CLUSTER/KIND/NAMESPACE/NAME` tells all of one; `leasehold top` lists them";
        Finding::warning(format!("controller {}", queue.controller), what, fix)
    };
    all.iter().filter(|queue| !queue.failing.is_empty()).map(finding).collect()
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Sharding {
    hindrance: Option<String>,
    problems: Vec<String>,
}

/// What a member's `/debug/shards` tells: what hinders it, and what is wrong with the fleet's objects in home, of
/// which the coordinator knows most.
pub fn of_shards(member: &str, answer: &[u8]) -> Vec<Finding> {
    // While it reads its clusters and home, it says nothing.
    let Ok(said) = serde_json::from_slice::<Option<Sharding>>(answer) else {
        return vec![unreadable(member, "/debug/shards")];
    };
    let Sharding { hindrance, problems } = said.unwrap_or_default();
    let own = hindrance.iter().map(|text| Finding::of_reason(format!("member {member}"), text));
    let others = problems.iter().filter(|text| hindrance.as_ref() != Some(text));
    // It may be something for later, such as a policy about shards that are to come.
    let others = others.map(|text| Finding::of_reason("fleet", text).or_warning());
    own.chain(others).collect()
}

/// What a member says when it is asked whether it is ready, and is not; nothing if it did not answer that.
pub fn of_readiness(member: &str, refusal: &str) -> Option<Finding> {
    let checks = refusal.strip_prefix(NOT_READY)?;
    let failing = checks.split('[').filter_map(|check| check.strip_prefix("-]"));
    let failing: Vec<&str> =
        failing.map(|check| check.trim_end_matches("readyz check failed").trim()).collect();
    let what = if failing.is_empty() { checks.to_owned() } else { failing.join("; ") };
    let fix = "wait while it starts; if it stays, see its log and `/readyz?verbose` on its port for metrics";
    Some(Finding::warning(format!("member {member}"), format!("is not ready: {what}"), fix))
}

/// What a member's `/metrics` tell of the credential by which it reaches home: none if that is far from its end.
pub fn of_home_credential(metrics: &str, now: Timestamp) -> Option<Finding> {
    let time = |name: &str, source: &str| {
        let series =
            format!("leasehold_home_credential_{name}_timestamp_seconds{{source=\"{source}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&*series))?;
        let seconds = SignedDuration::try_from_secs_f64(value.trim().parse().ok()?).ok()?;
        Timestamp::from_duration(seconds).ok()
    };
    let of = |source: &str| {
        let (begins, ends) = (time("begin", source), time("end", source)?);
        let credential = Credential { source: source.to_owned(), begins, ends };
        let what = credential.trouble(now)?;
        let fix = match credential.is_file() {
            true => FILE,
            false => {
                "replace it in the kubeconfig of `home`: replicas read that again without a restart"
            }
        };
        Some(Finding::failure("home", format!("{what}; without one all work stops"), fix))
    };
    ["kubeconfig", "file"].into_iter().find_map(of)
}

/// What a member's `/metrics` tell of its memory: none if it has no limit.
pub fn of_memory(member: &str, metrics: &str) -> Option<Finding> {
    let value = |name: &str| -> Option<f64> {
        let mut lines = metrics.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    let used = value("process_resident_memory_bytes")?;
    let limit = value("leasehold_memory_limit_bytes").filter(|limit| *limit > 0.0)?;
    let share = used / limit;
    let what = format!("uses {:.0} % of its {:.0} MiB", share * 100.0, limit / f64::from(1 << 20));
    let about = format!("member {member}");
    Some(if share > MAX_MEMORY {
        let fix =
            "give the replicas more memory, or run more of them: Sizing in the chart's README";
        Finding::warning(about, what, fix)
    } else {
        Finding::ok(about, what)
    })
}

fn unreadable(member: &str, path: &str) -> Finding {
    let what =
        format!("its {path} cannot be read: it is of another release, or reads its clusters still");
    Finding::warning(format!("member {member}"), what, "upgrade the older of the two")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::report::Level;

    fn found(answer: &Value) -> Vec<(Level, String)> {
        let now = "2026-11-26T18:00:00Z".parse().unwrap();
        let found = of_clusters("m-0", answer.to_string().as_bytes(), now);
        found.into_iter().map(|finding| (finding.level, finding.what)).collect()
    }

    #[test]
    fn each_trouble_of_a_replica_with_its_clusters_is_found() {
        let healthy = json!({
            "clusters": [{"name": "east", "state": "engaged", "answers": true, "credential":
                {"source": "program", "begins": "2026-11-26T17:00:00Z", "ends": "2026-11-26T18:10:00Z"}}],
            "informers": [{"cluster": "east", "kind": "Pod", "synced": true, "objects": 3,
                "bytes": 1048576, "lagSeconds": 2.0}],
            "upstreams": [{"cluster": "east", "breaker": "closed"}],
        });
        let ok = "1 of 1 clusters engaged; caches 3 objects in 1.0 MiB".to_owned();
        assert_eq!(found(&healthy), [(Level::Ok, ok)]);
        // Of twenty days, so that two are a tenth.
        let ends =
            |at: &str| json!({"source": "file", "begins": "2026-11-07T17:00:00Z", "ends": at});
        for (path, value, level, expect) in [
            ("/clusters/0/reason", json!("no route; fix: open it"), Level::Failure, "no route"),
            ("/clusters/0/unmarked", json!("no right; fix: x"), Level::Warning, "no right"),
            (
                "/clusters/0/credential",
                ends("2026-11-27T17:00:00Z"),
                Level::Warning,
                "its credential ends at 2026-11-27T17:00:00Z",
            ),
            (
                "/clusters/0/credential",
                ends("2026-11-26T17:00:00Z"),
                Level::Warning,
                "its credential ended at 2026-11-26T17:00:00Z",
            ),
            ("/problems", json!(["two names"]), Level::Failure, "two names"),
            ("/upstreams/0/cause", json!("503"), Level::Failure, "requests are held back: 503"),
            (
                "/quarantines",
                json!([{"cluster": "east", "reason": "too many objects; fix: a budget"}]),
                Level::Failure,
                "too many objects",
            ),
            ("/informers/0/synced", json!(false), Level::Warning, "Pod is not listed yet"),
            (
                "/informers/0/lagSeconds",
                json!(400.0),
                Level::Warning,
                "the server sent nothing about Pod for 400 s",
            ),
            (
                "/informers/0/throttled",
                json!(["changes"]),
                Level::Warning,
                "it changes faster than we take changes in, so they are reconciled late",
            ),
            ("/informers/0/error", json!("500"), Level::Failure, "Pod cannot be watched: 500"),
            (
                "/absent",
                json!([{"controller": "tdset", "cluster": "east", "kind": "x/TDSet", "optional": false}]),
                Level::Failure,
                "controller tdset does not run: x/TDSet cannot be watched",
            ),
        ] {
            let mut answer = healthy.clone();
            let (parent, field) = path.rsplit_once('/').unwrap();
            answer.pointer_mut(parent).unwrap()[field] = value;
            let found = found(&answer);
            assert!(found.contains(&(level, expect.to_owned())), "{expect}: {found:?}");
        }
        let status = json!({"name": "east", "state": "engaged", "unmarked": "no right; fix: x",
            "credential": ends("2026-11-27T17:00:00Z")});
        let of_one = of_status(&status, "2026-11-26T18:00:00Z".parse().unwrap());
        let said: Vec<_> = of_one.into_iter().map(|finding| finding.what).collect();
        assert_eq!(said, ["no right", "its credential ends at 2026-11-27T17:00:00Z"]);
        let optional =
            json!({"absent": [{"controller": "a", "cluster": "b", "kind": "c", "optional": true}]});
        assert_eq!(found(&optional).len(), 1, "whoever does without it is well");
    }

    /// As the alerts do, which lead here.
    #[test]
    fn a_credential_is_near_its_end_with_a_tenth_or_a_week_left() {
        let now: Timestamp = "2026-11-26T18:00:00Z".parse().unwrap();
        let day = SignedDuration::from_hours(24);
        let minute = SignedDuration::from_mins(1);
        for (source, age, left, fix) in [
            // What a kubelet projects and renews.
            ("file", minute * 10, minute * 50, None),
            ("file", minute * 58, minute * 2, Some("kubelet")),
            ("kubeconfig", day * 84, day * 6, Some("leasehold clusters rotate")),
            ("kubeconfig", day * 80, day * 10, None),
            ("kubeconfig", day * 700, day * 6, Some("leasehold clusters rotate")),
            ("kubeconfig", day * 700, day * 8, None),
            ("program", minute * 58, minute * 2, None),
        ] {
            let (begins, ends) = (now - age, now + left);
            let status = json!({"name": "east", "credential":
                {"source": source, "begins": begins, "ends": ends}});
            let found = of_status(&status, now);
            let said = found.first().and_then(|finding| finding.fix.as_deref());
            assert_eq!(said.is_some(), fix.is_some(), "{source} {age} {left}: {said:?}");
            assert!(fix.is_none_or(|fix| said.unwrap_or_default().contains(fix)), "{said:?}");

            let metrics = [("begin", begins), ("end", ends)].map(|(name, at)| {
                let series = format!("leasehold_home_credential_{name}_timestamp_seconds");
                format!("# HELP {series} x\n{series}{{source=\"{source}\"}} {}\n", at.as_second())
            });
            let home = of_home_credential(&metrics.concat(), now);
            assert_eq!(home.is_some(), fix.is_some(), "{home:?}");
            assert!(
                home.is_none_or(|found| found.level == Level::Failure && found.about == "home")
            );
        }
        assert_eq!(of_home_credential("", now), None);
    }

    #[test]
    fn failing_objects_are_named_and_counted() {
        let failing = |name: &str| {
            json!({"key": format!("east/ns/{name}"), "result": "failed",
            "error": "no bucket", "times": 4})
        };
        let all: Vec<_> = ["a", "b", "c", "d", "e"].map(failing).into();
        let answer = json!([{"controller": "sqs", "failing": all}, {"controller": "tdset"}]);
        let found = of_queues("m-0", answer.to_string().as_bytes());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].about, "controller sqs");
        let what = &found[0].what;
        assert!(what.contains("east/ns/a (4 times, failed: no bucket)"), "{what}");
        assert!(what.ends_with("; and 2 more"), "{what}");
        assert_eq!(of_queues("m-0", b"null")[0].level, Level::Warning);
    }

    #[test]
    fn what_sharding_knows_to_be_wrong_is_told_once_each() {
        let answer = json!({"member": "m-0-x", "hindrance": "no right; fix: grant it",
            "problems": ["no right; fix: grant it", "policy p selects nothing; fix: correct it; or not"]});
        let found = of_shards("m-0", answer.to_string().as_bytes());
        let expect = [
            Finding::failure("member m-0", "no right", "grant it"),
            Finding::warning("fleet", "policy p selects nothing", "correct it; or not"),
        ];
        assert_eq!(found, expect);
        assert_eq!(of_shards("m-0", b"null"), []);
        assert_eq!(of_shards("m-0", b"?")[0].level, Level::Warning);
    }

    #[test]
    fn a_member_that_is_not_ready_says_what_it_waits_for() {
        let refusal = "it answers 503 Service Unavailable: [+]home ok [-]informers failed: 2 of 6 shards not \
                       synced readyz check failed";
        let found = of_readiness("m-0", refusal).unwrap();
        assert_eq!(found.what, "is not ready: informers failed: 2 of 6 shards not synced");
        assert_eq!(of_readiness("m-0", "reach its Pod: not found"), None);
    }

    #[test]
    fn memory_near_its_limit_is_a_warning() {
        let metrics = |used: u64, limit: u64| {
            format!(
                "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes {used}\n\
                 leasehold_memory_limit_bytes {limit}\n"
            )
        };
        let level =
            |used, limit| of_memory("m-0", &metrics(used, limit)).map(|finding| finding.level);
        assert_eq!(level(50 << 20, 100 << 20), Some(Level::Ok));
        assert_eq!(level(90 << 20, 100 << 20), Some(Level::Warning));
        assert_eq!(level(90 << 20, 0), None);
        assert_eq!(of_memory("m-0", ""), None);
    }
}
