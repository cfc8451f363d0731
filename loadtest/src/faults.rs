//! Faults inside a load: what a scenario says of them, and the steps that they come to. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durations::{duration, optional_duration, optional_seconds, seconds};

/// The most faults of one load.
pub const MAX_FAULTS: usize = 50;
/// The most times that all of them are made together.
const MAX_TIMES: usize = 5_000;
/// For how long after a fault changes count as suffering from it, unless the scenario says.
const WINDOW: Duration = Duration::from_secs(20);

/// One fault, as written in a scenario file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When, since the load began.
    #[serde(deserialize_with = "duration", serialize_with = "seconds")]
    pub at: Duration,
    /// How often it is made again, until the load ends. Once if absent.
    #[serde(default, deserialize_with = "optional_duration", serialize_with = "optional_seconds")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// What.
    pub kind: Kind,
    /// For `kill`: which of the replicas that then run, oldest first, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<u32>,
    /// For `kill`: when it is started again, after the kill. It stays away if this is absent.
    #[serde(default, deserialize_with = "optional_duration", serialize_with = "optional_seconds")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_after: Option<Duration>,
    /// For `cut-cluster` and `rename-cluster`: its number, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<u32>,
    /// For `cut-cluster` and `rename-cluster`: how long it stays away.
    #[serde(default, deserialize_with = "optional_duration", serialize_with = "optional_seconds")]
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Duration>,
    /// For how long after it changes count as suffering from it: 20 s if absent.
    #[serde(default, deserialize_with = "optional_duration", serialize_with = "optional_seconds")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Duration>,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A replica gets SIGKILL.
    Kill,
    /// One more replica starts.
    Join,
    /// Each replica is replaced, as by a Deployment: the next starts and is ready before it gets SIGTERM.
    RollingUpdate,
    /// Nothing passes between the replicas and a cluster.
    CutCluster,
    /// A cluster's kubeconfig is removed, and comes back with another name.
    RenameCluster,
    /// Each cluster's kubeconfig has another token, and the one before it is no longer valid from the next time on.
    RenewCredentials,
}

/// What is done at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Kill the replica at this place.
    Kill(u32),
    /// Start the replica that this fault killed.
    Return,
    /// Start one more.
    Join,
    /// Replace all.
    Replace,
    /// Cut this cluster off.
    Cut(u32),
    /// Let it be reached again.
    Heal(u32),
    /// Remove this cluster's kubeconfig.
    Remove(u32),
    /// Add it with another name.
    Readd(u32),
    /// Give each cluster's kubeconfig another token.
    Renew,
}

impl Deed {
    /// Whether a fault begins with it.
    pub fn is_first(self) -> bool {
        !matches!(self, Self::Return | Self::Heal(_) | Self::Readd(_))
    }
}

/// One step of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, since the load began.
    pub at: Duration,
    /// Which fault, by its place in the scenario.
    pub fault: usize,
    /// What.
    pub deed: Deed,
}

impl Fault {
    /// For how long after it changes count as suffering from it.
    pub fn window(&self) -> Duration {
        self.window.unwrap_or(WINDOW)
    }

    /// What it does, for people.
    pub fn words(&self) -> String {
        let number = |n: Option<u32>| n.unwrap_or_default();
        let again = self.every.map_or(String::new(), |every| format!(", every {every:?}"));
        let once = match (self.kind, self.back_after) {
            (Kind::Kill, None) => format!("kill replica {}", number(self.replica)),
            (Kind::Kill, Some(after)) => {
                format!("kill replica {}, back after {after:?}", number(self.replica))
            }
            (Kind::Join, _) => "join".to_owned(),
            (Kind::RollingUpdate, _) => "rolling update".to_owned(),
            (Kind::CutCluster, _) => {
                let lasts = self.lasts.unwrap_or_default();
                format!("cut cluster {} for {lasts:?}", number(self.cluster))
            }
            (Kind::RenameCluster, _) => {
                let lasts = self.lasts.unwrap_or_default();
                format!("rename cluster {}, away for {lasts:?}", number(self.cluster))
            }
            (Kind::RenewCredentials, _) => "renew all credentials".to_owned(),
        };
        once + &again
    }

    /// When it is made, in a load of this length: each time so early that it ends before the load does.
    fn times(&self, load: Duration) -> impl Iterator<Item = Duration> + use<> {
        let (first, every, lasts) = (self.at, self.every, self.duration());
        std::iter::successors(Some(first), move |at| Some(*at + every?))
            .take_while(move |at| *at == first || *at + lasts < load)
            .take(MAX_TIMES + 1)
    }

    /// From its first step to its last.
    fn duration(&self) -> Duration {
        self.lasts.or(self.back_after).unwrap_or_default()
    }

    fn steps(&self, fault: usize, at: Duration) -> Vec<Step> {
        let step = |after: Duration, deed| Step { at: at + after, fault, deed };
        let now = |deed| step(Duration::ZERO, deed);
        let end = |deed| step(self.lasts.unwrap_or_default(), deed);
        let cluster = self.cluster.unwrap_or_default();
        match self.kind {
            Kind::Kill => {
                let back = self.back_after.map(|after| step(after, Deed::Return));
                let kill = now(Deed::Kill(self.replica.unwrap_or_default()));
                std::iter::once(kill).chain(back).collect()
            }
            Kind::Join => vec![now(Deed::Join)],
            Kind::RollingUpdate => vec![now(Deed::Replace)],
            Kind::CutCluster => vec![now(Deed::Cut(cluster)), end(Deed::Heal(cluster))],
            Kind::RenameCluster => vec![now(Deed::Remove(cluster)), end(Deed::Readd(cluster))],
            Kind::RenewCredentials => vec![now(Deed::Renew)],
        }
    }

    /// The keys that it lacks, and those that mean nothing for its kind.
    fn keys(&self) -> Vec<String> {
        let kill = self.kind == Kind::Kill;
        let cut = matches!(self.kind, Kind::CutCluster | Kind::RenameCluster);
        // Each key: whether it is there, must be, may be.
        let given = [
            ("replica", self.replica.is_some(), kill, kill),
            ("back_after", self.back_after.is_some(), false, kill),
            ("cluster", self.cluster.is_some(), cut, cut),
            ("for", self.lasts.is_some(), cut, cut),
        ];
        let wrong = given.into_iter().filter_map(|(key, given, needed, known)| match given {
            false if needed => Some(format!("{key} is missing, which {:?} needs", self.kind)),
            true if !known => Some(format!("{key} means nothing for {:?}", self.kind)),
            _ => None,
        });
        let lasts = self.duration();
        let again = self.every.filter(|every| *every <= lasts).map(|every| {
            format!(
                "every is {every:?}, but it lasts {lasts:?}: it would begin again before its end"
            )
        });
        wrong.chain(again).collect()
    }
}

/// The steps of all faults in a load of this length, by time.
pub fn steps(faults: &[Fault], load: Duration) -> Vec<Step> {
    let steps = |(n, fault): (usize, &Fault)| {
        fault.times(load).flat_map(|at| fault.steps(n, at)).collect::<Vec<_>>()
    };
    let mut steps: Vec<Step> = faults.iter().enumerate().flat_map(steps).collect();
    steps.sort_by_key(|step| step.at);
    steps
}

/// Why these faults cannot be made in a load of this length over so many clusters and replicas.
pub fn problems(
    faults: &[Fault],
    (clusters, replicas): (u32, u32),
    load: Duration,
    max_replicas: u32,
) -> Vec<String> {
    if faults.len() > MAX_FAULTS {
        return vec![format!("faults: found {}, allowed at most {MAX_FAULTS}", faults.len())];
    }
    let mut problems = Vec::new();
    for (n, fault) in faults.iter().enumerate() {
        problems.extend(fault.keys().into_iter().map(|problem| format!("faults[{n}]: {problem}")));
    }
    let steps = steps(faults, load);
    if steps.len() > MAX_TIMES {
        return vec![format!("faults: they are made more than {MAX_TIMES} times together")];
    }
    let mut running = replicas;
    let (mut cut, mut removed) = (BTreeSet::new(), BTreeSet::new());
    for Step { at, fault, deed } in steps {
        let mut problem = |text: String| problems.push(format!("faults[{fault}]: {text}"));
        // No change would be due after a fault that begins at the very end.
        if at > load || (deed.is_first() && at == load) {
            problem(format!("at {at:?} the load is over, which lasts {load:?}"));
        }
        match deed {
            Deed::Kill(replica) if replica >= running => {
                problem(format!("there is no replica {replica}: {running} run then"));
            }
            Deed::Kill(_) => running -= 1,
            Deed::Return | Deed::Join => running += 1,
            Deed::Replace if running == 0 => problem("no replica runs then".to_owned()),
            Deed::Replace | Deed::Renew => {}
            Deed::Cut(cluster)
            | Deed::Heal(cluster)
            | Deed::Remove(cluster)
            | Deed::Readd(cluster) => {
                if !(1..=clusters).contains(&cluster) {
                    problem(format!("there is no cluster {cluster}: found 1 to {clusters}"));
                }
            }
        }
        let is_new = match deed {
            Deed::Cut(cluster) => cut.insert(cluster),
            Deed::Remove(cluster) => removed.insert(cluster),
            Deed::Heal(cluster) => cut.remove(&cluster),
            Deed::Readd(cluster) => removed.remove(&cluster),
            _ => true,
        };
        if !is_new {
            problem(format!("at {at:?} another such fault of its cluster is not over"));
        }
        if running > max_replicas {
            problem(format!("{running} replicas run then, allowed at most {max_replicas}"));
        }
    }
    problems.dedup();
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn parse(text: &str) -> Fault {
        toml::from_str(text).unwrap()
    }

    fn check(faults: &[&str], expect: &[&str]) {
        let faults: Vec<Fault> = faults.iter().map(|text| parse(text)).collect();
        assert_eq!(problems(&faults, (5, 2), secs(60), 3), expect);
    }

    const KILL: &str = "at = \"20s\"\nkind = \"kill\"\nreplica = 1\n";
    const BACK: &str = "at = \"20s\"\nkind = \"kill\"\nreplica = 1\nback_after = \"5s\"\n";
    const CUT: &str = "at = \"10s\"\nkind = \"cut-cluster\"\ncluster = 5\nfor = \"15s\"\n";

    #[test]
    fn what_is_made_again_ends_before_the_load_does() {
        let rename = "at = \"10s\"\nevery = \"25s\"\nkind = \"rename-cluster\"\ncluster = 2\nfor = \"20s\"\n";
        let fault = parse(rename);
        assert_eq!(fault.words(), "rename cluster 2, away for 20s, every 25s");
        let found: Vec<_> =
            steps(&[fault], secs(60)).iter().map(|step| (step.at.as_secs(), step.deed)).collect();
        let (remove, readd) = (Deed::Remove(2), Deed::Readd(2));
        assert_eq!(found, [(10, remove), (30, readd), (35, remove), (55, readd)]);
        check(&[rename], &[]);
        let early = rename.replace("25s", "20s");
        let expect =
            "faults[0]: every is 20s, but it lasts 20s: it would begin again before its end";
        check(&[&early], &[expect]);
        let renew = "at = \"1s\"\nevery = \"1ms\"\nkind = \"renew-credentials\"\n";
        check(&[renew], &["faults: they are made more than 5000 times together"]);
        let never = renew.replace("1ms", "0s");
        check(&[&never], &["faults: they are made more than 5000 times together"]);
    }

    #[test]
    fn steps_are_by_time() {
        let faults = [parse(BACK), parse(CUT), parse("at = \"22s\"\nkind = \"rolling-update\"")];
        let step = |at, fault, deed| Step { at: secs(at), fault, deed };
        let expect = [
            step(10, 1, Deed::Cut(5)),
            step(20, 0, Deed::Kill(1)),
            step(22, 2, Deed::Replace),
            step(25, 0, Deed::Return),
            step(25, 1, Deed::Heal(5)),
        ];
        assert_eq!(steps(&faults, secs(60)), expect);
        check(&[BACK, CUT], &[]);
    }

    #[test]
    fn keys_belong_to_kinds() {
        check(
            &["at = \"1s\"\nkind = \"kill\"", "at = \"1s\"\nkind = \"join\"\nfor = \"1s\""],
            &[
                "faults[0]: replica is missing, which Kill needs",
                "faults[1]: for means nothing for Join",
            ],
        );
        assert!(toml::from_str::<Fault>("at = \"1s\"\nkind = \"explode\"").is_err());
        assert!(toml::from_str::<Fault>("at = \"soon\"\nkind = \"join\"").is_err());
    }

    #[test]
    fn faults_are_within_the_load_and_the_fleet() {
        check(&[KILL, KILL], &["faults[1]: there is no replica 1: 1 run then"]);
        check(
            &[&CUT.replace("cluster = 5", "cluster = 6")],
            &["faults[0]: there is no cluster 6: found 1 to 5"],
        );
        check(
            &[&CUT.replace("15s", "51s")],
            &["faults[0]: at 61s the load is over, which lasts 60s"],
        );
        check(&[&CUT.replace("15s", "50s")], &[]);
        check(
            &["at = \"60s\"\nkind = \"join\""],
            &["faults[0]: at 60s the load is over, which lasts 60s"],
        );
    }

    #[test]
    fn what_does_not_run_is_not_replaced() {
        let (kill, update) =
            (BACK.replace("replica = 1", "replica = 0"), "kind = \"rolling-update\"");
        let [during, after] = ["22s", "26s"].map(|at| format!("at = {at:?}\n{update}"));
        check(&[&kill, &kill, &after], &[]);
        check(&[&kill, &kill, &during], &["faults[2]: no replica runs then"]);
    }

    #[test]
    fn faults_of_a_cluster_do_not_overlap() {
        let later = |cut: &str, at: &str| cut.replace("at = \"10s\"", &format!("at = {at:?}"));
        let expect = [
            "faults[1]: at 20s another such fault of its cluster is not over",
            "faults[1]: at 35s another such fault of its cluster is not over",
        ];
        check(&[CUT, &later(CUT, "20s")], &expect);
        check(&[CUT, &later(CUT, "25s")], &[]);
        check(&[CUT, &CUT.replace("cluster = 5", "cluster = 4")], &[]);
        let rename = CUT.replace("cut-cluster", "rename-cluster");
        check(&[CUT, &rename], &[]);
        check(&[&rename, &later(&rename, "20s")], &expect);
    }

    #[test]
    fn replicas_and_faults_have_bounds() {
        let join = "at = \"1s\"\nkind = \"join\"";
        check(&[join, join], &["faults[1]: 4 replicas run then, allowed at most 3"]);
        let renew = "at = \"10s\"\nkind = \"renew-credentials\"";
        check(&[renew; MAX_FAULTS], &[]);
        check(&[CUT; MAX_FAULTS + 1], &["faults: found 51, allowed at most 50"]);
    }
}
