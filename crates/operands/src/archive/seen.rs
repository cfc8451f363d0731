//! What became of a Job, read from it and its Pods. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use super::jobs::RESTORED_VOLUME;
use crate::backup::report::Report;

/// The longest text of a cluster that a condition repeats, in characters.
const MAX_TEXT: usize = 300;
/// How long a Job may have no Pod before that is said: its controller makes one at once.
const PODLESS: SignedDuration = SignedDuration::from_mins(1);

/// A Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSeen {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// What became of it.
    pub outcome: Outcome,
    /// The uid of the volume that it was made for, if for one.
    pub volume: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When it was complete.
    pub completed: Option<Timestamp>,
}

/// What became of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It runs, or will.
    #[default]
    Running,
    /// It succeeded.
    Complete,
    /// It failed for good.
    Failed(String),
}

/// What the Pods of a Job say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodsSeen {
    /// The report of our own container that ended last.
    pub(super) report: Option<Report>,
    /// Why the last Pod does not run, or why a tool of the database failed.
    pub(super) trouble: Option<String>,
    /// Whether there is one at all.
    pub(super) is_any: bool,
}

impl JobSeen {
    /// Reads a Job.
    pub fn of(job: &Job) -> Self {
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let completed = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
        let mut outcome = Outcome::Running;
        for condition in conditions.filter(|condition| condition.status == "True") {
            match condition.type_.as_str() {
                "Complete" => outcome = Outcome::Complete,
                "Failed" => {
                    let reason = condition.reason.clone().unwrap_or_default();
                    let message = condition.message.clone().unwrap_or_default();
                    outcome = Outcome::Failed(bounded(&format!("{reason}: {message}")));
                }
                _ => {}
            }
        }
        Self {
            name: job.name_any(),
            uid: job.uid().unwrap_or_default(),
            is_deleting: job.metadata.deletion_timestamp.is_some(),
            outcome,
            volume: job.annotations().get(RESTORED_VOLUME).cloned(),
            created: job.metadata.creation_timestamp.as_ref().map(|time| time.0),
            completed: completed.map(|time| time.0),
        }
    }
}

impl JobSeen {
    /// Whether it has brought a backup onto this volume.
    pub fn is_done_for(&self, volume_uid: &str) -> bool {
        let is_done = self.outcome == Outcome::Complete && !self.is_deleting;
        is_done && self.volume.as_deref() == Some(volume_uid)
    }
}

impl PodsSeen {
    /// What stops a Job that runs: what its Pods say, or that there is none after a while.
    pub(super) fn stops(&self, job: &JobSeen, now: Timestamp) -> Option<String> {
        let age = job.created.map(|created| now.duration_since(created));
        let is_barren = !self.is_any && age.is_some_and(|age| age >= PODLESS);
        let barren = || format!("it has no Pod: see Events of Job {}, as of a quota", job.name);
        self.trouble.clone().or_else(|| is_barren.then(barren))
    }

    /// Reads the Pods of one Job.
    pub(super) fn of(pods: &[Pod]) -> Self {
        let mut sorted: Vec<_> = pods.iter().collect();
        sorted.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
        let Some(last) = sorted.last() else { return Self::default() };
        let ours = sorted.iter().rev().find_map(|pod| {
            let message = ended(&containers(pod)).find_map(|(_, _, message)| message)?;
            Report::parse(&message)
        });
        let trouble = ours.as_ref().and_then(|report| report.message.clone());
        Self { trouble: trouble.or_else(|| trouble_of(last)), report: ours, is_any: true }
    }
}

fn containers(pod: &Pod) -> Vec<ContainerStatus> {
    let status = pod.status.clone().unwrap_or_default();
    let first = status.init_container_statuses.unwrap_or_default();
    first.into_iter().chain(status.container_statuses.unwrap_or_default()).collect()
}

/// Name, exit code and message of the containers that ended, the last first.
fn ended(
    containers: &[ContainerStatus],
) -> impl Iterator<Item = (String, i32, Option<String>)> + use<'_> {
    containers.iter().rev().filter_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        Some((container.name.clone(), ended.exit_code, ended.message.clone()))
    })
}

fn trouble_of(pod: &Pod) -> Option<String> {
    let containers = containers(pod);
    let failed = ended(&containers).find(|(_, code, _)| *code != 0);
    if let Some((name, code, message)) = failed {
        let said =
            message.filter(|text| !text.is_empty()).unwrap_or_else(|| "see its log".to_owned());
        let pod = pod.name_any();
        return Some(bounded(&format!("container {name} of Pod {pod} exited with {code}: {said}")));
    }
    let waiting = containers.iter().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.clone()?;
        let is_usual = ["ContainerCreating", "PodInitializing"].contains(&reason.as_str());
        (!is_usual).then(|| format!("{reason}: {}", waiting.message.clone().unwrap_or_default()))
    });
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let unscheduled = conditions
        .filter(|found| found.type_ == "PodScheduled" && found.status == "False")
        .find_map(|found| found.message.clone());
    waiting.or(unscheduled).map(|text| bounded(&text))
}

fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(created: &str, containers: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "creationTimestamp": created},
            "status": {"containerStatuses": containers},
        }))
        .unwrap()
    }

    fn container(name: &str, state: Value) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
    }

    #[test]
    fn the_last_report_counts_and_other_trouble_is_repeated() {
        let report = |size: u64| {
            let manifest = json!({"name": "n", "size": size, "sha256": "s", "kind": "k", "version": "v",
                "owner": "o", "created": "2026-03-01T00:00:00Z"});
            json!({"count": 1, "backups": [manifest]}).to_string()
        };
        let ended = |code: i32, message: &str| json!({"terminated": {"exitCode": code, "message": message}});
        let pods = [
            pod("2026-03-01T00:02:00Z", json!([container("store", ended(0, &report(2)))])),
            pod("2026-03-01T00:01:00Z", json!([container("store", ended(1, &report(1)))])),
        ];
        assert_eq!(PodsSeen::of(&pods).report.unwrap().backups[0].size, 2);
        let failed =
            [pod("2026-03-01T00:01:00Z", json!([container("save", ended(128, "no\nleader"))]))];
        let seen = PodsSeen::of(&failed);
        assert_eq!(seen.trouble.unwrap(), "container save of Pod p exited with 128: noleader");
        let pulling = json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
        let seen =
            PodsSeen::of(&[pod("2026-03-01T00:01:00Z", json!([container("save", pulling)]))]);
        assert_eq!(seen.trouble.unwrap(), "ErrImagePull: not found");
        assert_eq!(PodsSeen::of(&[]), PodsSeen::default());
    }

    #[test]
    fn a_job_whose_pods_are_refused_is_said_after_a_minute() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let job = JobSeen {
            name: "db-store".to_owned(),
            created: Some(time("2026-03-01T00:00:00Z")),
            ..JobSeen::default()
        };
        let (early, late) = (time("2026-03-01T00:00:59Z"), time("2026-03-01T00:01:00Z"));
        let none = PodsSeen::default();
        assert_eq!(none.stops(&job, early), None);
        assert!(none.stops(&job, late).unwrap().contains("Events of Job db-store"));
        let some = PodsSeen { is_any: true, ..PodsSeen::default() };
        assert_eq!(some.stops(&job, late), None);
    }
}
