//! How an object stands, in words. Pure.

use queue::{HeldShard, KeyStatus};

use crate::{Explained, Sought, Told, Watched};

/// Lines about an object, as a replica sees it.
pub fn words(sought: &Sought, told: &Told) -> Vec<String> {
    let Told { member, configured, down, explanation } = told;
    let cluster = &sought.cluster;
    if !configured {
        return vec![format!("member {member} does not have cluster {cluster} configured")];
    }
    let mut lines = Vec::new();
    if let Some(reason) = down {
        lines.push(format!("member {member} cannot use cluster {cluster}: {reason}"));
    }
    if let Some(held_back) = &explanation.held_back {
        let (cause, seconds) = (&held_back.cause, time(held_back.retry_seconds));
        lines.push(format!("requests to {cluster} are held back for another {seconds}: {cause}"));
    }
    if let Some(reason) = &explanation.quarantined {
        lines.push(format!("nothing of {cluster} is kept now: {reason}"));
    }
    if explanation.controllers.is_empty() {
        lines.push(format!(
            "no controller of member {member} reconciles the kind {}; there are: {}",
            sought.kind,
            explanation.kinds.join(", ")
        ));
    }
    for explained in &explanation.controllers {
        lines.push(format!("controller {} on member {member}:", explained.controller));
        let said = controller(sought, explained);
        lines.extend(said.into_iter().map(|line| format!("- {line}")));
    }
    lines
}

fn controller(sought: &Sought, explained: &Explained) -> Vec<String> {
    let Explained { misnamed, in_scope, cached, watch, shard, key, .. } = explained;
    if let Some(instead) = misnamed {
        return vec![instead.clone()];
    }
    if !in_scope {
        let namespace = sought.namespace.as_deref().unwrap_or("(none)");
        return vec![format!("it does not work in the namespace {namespace}")];
    }
    let Some(watch) = watch else {
        return vec![
            "it watches nothing there: this member holds no shard of it, or cannot".to_owned(),
        ];
    };
    let mut lines = vec![watched(watch)];
    match cached {
        Some(cached) => {
            let version = &cached.resource_version;
            let deleting = if cached.deleting { ", and it is being deleted" } else { "" };
            lines.push(format!("the cache has it at resourceVersion {version}{deleting}"));
            lines.extend(
                cached
                    .not_ready
                    .as_ref()
                    .map(|why| format!("its status says that it is not ready: {why}")),
            );
            if !cached.matters {
                lines.push(
                    "the controller's predicates leave it out: its changes queue nothing"
                        .to_owned(),
                );
            }
        }
        None if watch.synced => lines.push(absent(watch)),
        None => {}
    }
    lines.push(held(shard.as_ref(), key));
    lines.extend(fence(explained));
    lines.extend(queued(key, shard.is_some()));
    lines
}

fn watched(watch: &Watched) -> String {
    let mut line = match (watch.synced, watch.lag_seconds) {
        (true, Some(lag)) => format!("the server was heard {} ago", time(lag)),
        (true, None) => "the server was not heard yet".to_owned(),
        (false, _) => "the first list of its kind is not complete".to_owned(),
    };
    if let Some(error) = &watch.error {
        line += &format!("; the last attempt failed: {error}");
    }
    line
}

fn absent(watch: &Watched) -> String {
    let mut line = "the cache does not have it: it does not exist".to_owned();
    if !watch.selector.is_empty() {
        line += &format!(", or is not selected ({})", watch.selector);
    }
    if watch.ranges != "0/1" {
        line += &format!(", or is in another range than {}", watch.ranges);
    }
    line
}

fn held(shard: Option<&HeldShard>, key: &KeyStatus) -> String {
    match shard {
        Some(HeldShard { shard, epoch, open: true }) => {
            format!("this member holds its shard {shard} at epoch {epoch}")
        }
        Some(HeldShard { shard, epoch, open: false }) => format!(
            "this member prepares its shard {shard} for epoch {epoch}; nothing of it begins yet"
        ),
        None if key.shards.is_empty() => "this member holds no shard of it".to_owned(),
        None => {
            let held: Vec<_> = key.shards.iter().map(|held| held.shard.to_string()).collect();
            let held = held.join(", ");
            format!("it is in none of the shards that this member holds, {held}, or not known")
        }
    }
}

fn fence(explained: &Explained) -> Option<String> {
    let Explained { fence, fence_seconds, .. } = explained;
    let refused = fence.as_ref().map(|refusal| format!("the fence lets nothing begin: {refusal}"));
    refused.or_else(|| {
        let seconds = time((*fence_seconds)?);
        Some(format!(
            "the fence lets it run for another {seconds}, and longer if the Lease is renewed"
        ))
    })
}

fn queued(key: &KeyStatus, held: bool) -> Vec<String> {
    let KeyStatus { ready_seconds, delayed_seconds, running_seconds, failure, .. } = key;
    let mut lines = Vec::new();
    if let Some(seconds) = running_seconds {
        let again = if key.runs_again { ", and will be again" } else { "" };
        lines.push(format!("it has been reconciled for {}{again}", time(*seconds)));
    }
    if let Some(seconds) = ready_seconds {
        let why = key.crowded.map_or_else(String::new, |limit| {
            format!(
                ": writes to most clusters have become slow, so only {limit} keys of all clusters run at once"
            )
        });
        lines.push(format!("its key has waited for a worker for {}{why}", time(*seconds)));
    }
    if let Some(seconds) = delayed_seconds {
        let why = match key.failures {
            0 => "as its controller asked".to_owned(),
            failures => format!("after {failures} failures in a row"),
        };
        lines.push(format!("its key is delayed for another {}, {why}", time(*seconds)));
    }
    if lines.is_empty() && held {
        lines.push(
            "its key is not queued: nothing is left to do until something changes".to_owned(),
        );
    }
    if let Some(seconds) = key.succeeded_seconds {
        let which = if failure.is_some() { "a" } else { "its last" };
        lines.push(format!("{which} reconcile succeeded {} ago", time(seconds)));
    }
    if let Some(failure) = failure {
        let (last, first) = (time(failure.last_seconds), time(failure.first_seconds));
        lines.push(format!(
            "its last reconcile {}, {last} ago ({} times, the first {first} ago): {}",
            result(&failure.result),
            failure.times,
            failure.error
        ));
    }
    lines
}

/// The result of a reconcile as the rest of a sentence.
fn result(result: &str) -> String {
    match result {
        "held back" => "was held back".to_owned(),
        other => other.to_owned(),
    }
}

/// A time for people.
pub fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 10.0 => format!("{seconds:.1}s"),
        seconds if seconds < 120.0 => format!("{seconds:.0}s"),
        seconds if seconds < 7200.0 => format!("{:.0}min", seconds / 60.0),
        seconds => format!("{:.0}h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use model::{Epoch, ShardId};
    use queue::FailureStatus;

    use super::*;
    use crate::{CachedObject, Explanation, HeldBack};

    fn shard() -> ShardId {
        "east/g/0/1".parse().unwrap()
    }

    /// An object that is cached, held and idle.
    fn idle() -> Explained {
        let held = HeldShard { shard: shard(), epoch: Epoch(4), open: true };
        Explained {
            controller: "maps".parse().unwrap(),
            kind: "ConfigMap".into(),
            misnamed: None,
            in_scope: true,
            cached: Some(CachedObject {
                hash: "0f".into(),
                resource_version: "17".into(),
                deleting: false,
                matters: true,
                not_ready: None,
            }),
            watch: Some(Watched {
                synced: true,
                lag_seconds: Some(5.0),
                error: None,
                ranges: "0/1".into(),
                selector: String::new(),
            }),
            shard: Some(held.clone()),
            fence: None,
            fence_seconds: Some(6.2),
            key: KeyStatus { shards: vec![held], ..KeyStatus::default() },
        }
    }

    fn told(controllers: Vec<Explained>) -> Told {
        let kinds = vec!["ConfigMap".to_owned(), "apps/Deployment".to_owned()];
        let explanation = Explanation { controllers, kinds, held_back: None, quarantined: None };
        Told { member: "lh-0-x7".into(), configured: true, down: None, explanation }
    }

    fn said(told: &Told) -> String {
        let sought = "east/ConfigMap/ns/a".parse().unwrap();
        words(&sought, told).join("\n") + "\n"
    }

    /// What is said of one controller holds each of these lines.
    fn check(change: impl FnOnce(&mut Explained), expect: &[&str]) {
        let mut explained = idle();
        change(&mut explained);
        let text = said(&told(vec![explained]));
        for line in expect {
            assert!(text.lines().any(|found| found == *line), "{line:?} in\n{text}");
        }
    }

    #[test]
    fn an_idle_object_is_nothing_to_do() {
        let expect = "\
controller maps on member lh-0-x7:
- the server was heard 5.0s ago
- the cache has it at resourceVersion 17
- this member holds its shard east/g/0/1 at epoch 4
- the fence lets it run for another 6.2s, and longer if the Lease is renewed
- its key is not queued: nothing is left to do until something changes
";
        assert_eq!(said(&told(vec![idle()])), expect);
    }

    #[test]
    fn each_state_of_a_key_is_said() {
        check(
            |e| e.key.succeeded_seconds = Some(12.0),
            &["- its last reconcile succeeded 12s ago"],
        );
        check(
            |e| (e.key.running_seconds, e.key.runs_again) = (Some(200.0), true),
            &["- it has been reconciled for 3min, and will be again"],
        );
        check(|e| e.key.ready_seconds = Some(12.0), &["- its key has waited for a worker for 12s"]);
        check(
            |e| (e.key.ready_seconds, e.key.crowded) = (Some(12.0), Some(32)),
            &[
                "- its key has waited for a worker for 12s: writes to most clusters have become slow, so only 32 \
                 keys of all clusters run at once",
            ],
        );
        check(
            |e| e.key.delayed_seconds = Some(40.0),
            &["- its key is delayed for another 40s, as its controller asked"],
        );
        let failure = FailureStatus {
            result: "failed".into(),
            error: "no such bucket".into(),
            times: 3,
            last_seconds: 2.0,
            first_seconds: 9000.0,
        };
        check(
            |e| {
                e.key.delayed_seconds = Some(40.0);
                (e.key.failures, e.key.failure) = (3, Some(failure));
                e.key.succeeded_seconds = Some(10_000.0);
            },
            &[
                "- a reconcile succeeded 3h ago",
                "- its key is delayed for another 40s, after 3 failures in a row",
                "- its last reconcile failed, 2.0s ago (3 times, the first 2h ago): no such bucket",
            ],
        );
    }

    #[test]
    fn what_keeps_an_object_from_being_reconciled_is_said() {
        check(
            |e| e.cached.as_mut().unwrap().matters = false,
            &["- the controller's predicates leave it out: its changes queue nothing"],
        );
        check(
            |e| e.cached.as_mut().unwrap().not_ready = Some("Conflict: x is there".into()),
            &["- its status says that it is not ready: Conflict: x is there"],
        );
        check(
            |e| {
                let watch = e.watch.as_mut().unwrap();
                (watch.ranges, watch.selector) = ("0/2".into(), "app=x".into());
                e.cached = None;
                e.shard = None;
            },
            &[
                "- the cache does not have it: it does not exist, or is not selected (app=x), or is in \
                 another range than 0/2",
                "- it is in none of the shards that this member holds, east/g/0/1, or not known",
            ],
        );
        check(
            |e| {
                e.shard.as_mut().unwrap().open = false;
                e.fence = Some("it is changing owners".into());
            },
            &[
                "- this member prepares its shard east/g/0/1 for epoch 4; nothing of it begins yet",
                "- the fence lets nothing begin: it is changing owners",
            ],
        );
        check(|e| e.in_scope = false, &["- it does not work in the namespace ns"]);
        check(
            |e| e.watch = None,
            &["- it watches nothing there: this member holds no shard of it, or cannot"],
        );
        check(
            |e| {
                let watch = e.watch.as_mut().unwrap();
                (watch.synced, watch.error) = (false, Some("connection refused".into()));
            },
            &["- the first list of its kind is not complete; the last attempt failed: connection \
                 refused"],
        );
    }

    #[test]
    fn what_is_wrong_with_the_cluster_is_said() {
        let check = |told: Told, expect: &str| {
            let text = said(&told);
            assert!(text.contains(expect), "{expect:?} in\n{text}");
        };
        let all = || told(vec![]);
        let kinds = "reconciles the kind ConfigMap; there are: ConfigMap, apps/Deployment";
        check(all(), kinds);
        let expect = "member lh-0-x7 does not have cluster east configured";
        check(Told { configured: false, ..all() }, expect);
        let down = Some("its token has ended".to_owned());
        let expect = "member lh-0-x7 cannot use cluster east: its token has ended";
        check(Told { down, ..all() }, expect);
        let mut parked = all();
        parked.explanation.held_back =
            Some(HeldBack { cause: "connection reset".into(), retry_seconds: 12.0 });
        check(parked, "requests to east are held back for another 12s: connection reset");
        let mut excess = all();
        excess.explanation.quarantined = Some("it has too many objects".into());
        check(excess, "nothing of east is kept now: it has too many objects");
    }
}
