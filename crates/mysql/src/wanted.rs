//! The spec, read: every value parsed and bounded, or all the reasons why it cannot be carried out. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use operands::pod::Extras;
use operands::spec::{Invalid, bytes, duration, part, size};
use serde_json::Value;

use crate::api::{
    MySQLCluster, MySQLClusterSpec, Tls, default_alone_after, default_failover_after,
};
use crate::config::is_ours;
use crate::names::{self, MAX_NAME};
use crate::version::check_image;

/// The shortest `failoverAfter`: one slow answer must not look like a loss.
const SHORTEST_FAILOVER: SignedDuration = SignedDuration::from_secs(2);
/// The shortest `aloneAfter`: a restart of the other instance must not look like a loss.
const SHORTEST_ALONE: SignedDuration = SignedDuration::from_secs(10);
/// The shortest renewal of certificates: the former one is valid for half of it, and servers may read the next
/// one an hour later.
const SHORTEST_RENEWAL: SignedDuration = SignedDuration::from_hours(2);
/// The shortest time between rotations of passwords: each takes more than ten minutes.
const SHORTEST_ROTATION: SignedDuration = SignedDuration::from_hours(1);
/// The shortest `maxLag`: replicas tell it in seconds.
const SHORTEST_LAG: SignedDuration = SignedDuration::from_secs(1);
/// The longest value of a setting, in bytes.
const MAX_SETTING: usize = 1_024;

/// A spec that can be carried out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) replicas: usize,
    /// The instance that should be primary.
    pub(crate) primary: Option<String>,
    /// How many replicas acknowledge each commit: none if there is one instance alone.
    pub(crate) acks: u32,
    pub(crate) alone_after: Duration,
    pub(crate) failover_after: Duration,
    /// In seconds.
    pub(crate) max_lag: Option<u64>,
    /// How long certificates are valid: they are renewed after two thirds of it.
    pub(crate) valid: SignedDuration,
    /// How often passwords are rotated.
    pub(crate) rotation: Option<SignedDuration>,
    /// The size of each volume in bytes.
    pub(crate) storage: u128,
    pub(crate) resources: Option<ResourceRequirements>,
    /// What an instance's container may use, in bytes, if a limit says it.
    pub(crate) memory: Option<u64>,
    pub(crate) exporter_resources: Option<ResourceRequirements>,
    pub(crate) pod: Extras,
    /// Settings of mysqld, by their names with underscores.
    pub(crate) settings: BTreeMap<String, String>,
}

/// Collects what is wrong.
#[derive(Default)]
struct Problems(Vec<Invalid>);

impl Problems {
    fn add(&mut self, reason: &'static str, message: String) {
        self.0.push(Invalid { reason, message });
    }

    /// The value, or the default of its type and the reason.
    fn take<T: Default>(&mut self, read: Result<T, Invalid>) -> T {
        read.unwrap_or_else(|invalid| {
            self.0.push(invalid);
            T::default()
        })
    }

    /// The time, or the usual one and the reason.
    fn time(
        &mut self,
        field: &str,
        text: &str,
        usual: &str,
        shortest: SignedDuration,
    ) -> SignedDuration {
        duration(field, text, shortest).unwrap_or_else(|invalid| {
            self.0.push(invalid);
            usual.parse().unwrap_or(shortest)
        })
    }
}

/// Reads a spec.
///
/// # Errors
/// Everything in it that cannot be carried out; at least one.
#[cfg(test)]
pub(crate) fn accepted(cluster: &MySQLCluster) -> Result<Accepted, Vec<Invalid>> {
    let (accepted, problems) = read(cluster);
    if problems.is_empty() { Ok(accepted) } else { Err(problems) }
}

/// Whether a cluster was founded: then it is looked after with mistakes in its spec too.
pub(crate) fn is_founded(cluster: &MySQLCluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| status.replication.term > 0)
}

/// Reads a spec as far as it can be carried out, with everything that cannot be. With a mistake in it nothing
/// of what Pods are made from is used, the number of instances and of acknowledgements are those that the
/// cluster has, and other times than those of the spec are the usual ones.
pub(crate) fn read(cluster: &MySQLCluster) -> (Accepted, Vec<Invalid>) {
    let (spec, mut problems) = (&cluster.spec, Problems::default());
    check_name(&cluster.name_any(), &mut problems);
    let replicas = replicas(spec, &mut problems);
    let primary = primary(cluster, replicas, &mut problems);
    if let Err(unusable) = check_image(&spec.image, None) {
        problems.add(unusable.reason(), unusable.to_string());
    }
    if spec.from_backup.is_some() && spec.from_stored.is_some() {
        let message = "spec.fromBackup and spec.fromStored cannot both be set: remove one of them";
        problems.add("InvalidRestore", message.to_owned());
    }
    let usual = Tls::default().renewal;
    let renewal = problems.time("tls.renewal", &spec.tls.renewal, &usual, SHORTEST_RENEWAL);
    let alone_after =
        problems.time("aloneAfter", &spec.alone_after, &default_alone_after(), SHORTEST_ALONE);
    let usual = default_failover_after();
    let failover_after =
        problems.time("failoverAfter", &spec.failover_after, &usual, SHORTEST_FAILOVER);
    let lag = spec.max_lag.as_deref();
    let exporter = spec.exporter.as_ref().and_then(|exporter| exporter.resources.as_ref());
    let resources = problems.take(part("resources", spec.resources.as_ref()));
    let mut accepted = Accepted {
        replicas,
        primary,
        acks: acks(spec, replicas, &mut problems),
        alone_after: alone_after.unsigned_abs(),
        failover_after: failover_after.unsigned_abs(),
        max_lag: lag
            .map(|lag| problems.take(duration("maxLag", lag, SHORTEST_LAG)))
            .map(|lag| lag.unsigned_abs().as_secs()),
        valid: renewal + renewal / 2,
        rotation: spec.accounts.rotation.as_deref().and_then(|rotation| {
            problems
                .take(duration("accounts.rotation", rotation, SHORTEST_ROTATION).map(Option::Some))
        }),
        storage: problems.take(size("storage", &spec.storage)),
        memory: resources.as_ref().and_then(memory),
        resources,
        exporter_resources: problems.take(part("exporter.resources", exporter)),
        pod: spec.pod.read().unwrap_or_else(|all| {
            problems.0.extend(all);
            Extras::default()
        }),
        settings: settings(spec, &mut problems),
    };
    if !problems.0.is_empty() {
        accepted.stay(cluster);
    }
    (accepted, problems.0)
}

impl Accepted {
    /// Asks for as many instances and acknowledgements as a cluster has.
    fn stay(&mut self, cluster: &MySQLCluster) {
        let Some(status) = &cluster.status else { return };
        if !status.instances.is_empty() {
            self.replicas = status.instances.len().min(names::MAX_INSTANCES);
        }
        let most = u32::try_from(self.replicas).unwrap_or(1) - 1;
        self.acks = status.replication.acks.clamp(most.min(1), most);
    }
}

/// All problems as one: the reason of the first, and what each says.
pub(crate) fn together(problems: &[Invalid]) -> Invalid {
    let reason = problems.first().map_or("Invalid", |first| first.reason);
    let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
    Invalid { reason, message: messages.join("; ") }
}

fn check_name(name: &str, problems: &mut Problems) {
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if name.len() <= MAX_NAME && begins && !name.contains('.') {
        return;
    }
    let message = format!(
        "the name {name} must begin with a letter and have at most {MAX_NAME} characters and no dot, because \
         names of Pods and Services are made from it: create a MySQLCluster with another name"
    );
    problems.add("InvalidName", message);
}

fn replicas(spec: &MySQLClusterSpec, problems: &mut Problems) -> usize {
    usize::try_from(spec.replicas)
        .ok()
        .filter(|count| (1..=names::MAX_INSTANCES).contains(count))
        .unwrap_or_else(|| {
            let message = format!("spec.replicas is {}: set a number from 1 to 9", spec.replicas);
            problems.add("InvalidReplicas", message);
            1
        })
}

fn acks(spec: &MySQLClusterSpec, replicas: usize, problems: &mut Problems) -> u32 {
    let most = u32::try_from(replicas).unwrap_or(1) - 1;
    let Some(acks) = spec.acks else { return most.min(1) };
    u32::try_from(acks).ok().filter(|acks| (1..=most).contains(acks)).unwrap_or_else(|| {
        let fix = match most {
            0 => "remove it, because one instance alone has no replica".to_owned(),
            1 => "set 1, or more replicas".to_owned(),
            most => format!("set a number from 1 to {most}, or more replicas"),
        };
        problems.add("InvalidAcks", format!("spec.acks is {acks}: {fix}"));
        0
    })
}

fn primary(cluster: &MySQLCluster, replicas: usize, problems: &mut Problems) -> Option<String> {
    let primary = cluster.spec.primary.as_ref()?;
    if names::ordinal(cluster, primary).is_none_or(|ordinal| ordinal >= replicas) {
        let (first, last) = (names::instance(cluster, 0), names::instance(cluster, replicas - 1));
        let message = format!("spec.primary is {primary:?}: set one of {first} to {last}");
        problems.add("InvalidPrimary", message);
        return None;
    }
    Some(primary.clone())
}

/// The limit of memory, unless it is written in a way that is not usual for it.
fn memory(resources: &ResourceRequirements) -> Option<u64> {
    let Quantity(limit) = resources.limits.as_ref()?.get("memory")?;
    u64::try_from(bytes(limit)?).ok()
}

/// The settings as lines of my.cnf have them.
fn settings(spec: &MySQLClusterSpec, problems: &mut Problems) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for (name, value) in &spec.mysql_conf {
        let known = name.replace('-', "_").to_ascii_lowercase();
        let is_name = known.starts_with(|c: char| c.is_ascii_lowercase())
            && known.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte));
        let text = match value {
            Value::String(text) => text.trim().to_owned(),
            other => other.to_string(),
        };
        let is_line = text.len() <= MAX_SETTING && !text.contains(char::is_control);
        if is_ours(&known) {
            let fix = "the controller relies on its own value: remove it";
            problems.add("InvalidSetting", format!("spec.mysqlConf has {name:?}: {fix}"));
        } else if !is_name || !is_line {
            let fix = "write a name of mysqld's settings, and a number or one line of text";
            problems.add("InvalidSetting", format!("spec.mysqlConf has {name:?}: {fix}"));
        } else if settings.insert(known, text).is_some() {
            let message = format!("spec.mysqlConf has {name:?} twice: remove one of them");
            problems.add("InvalidSetting", message);
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testkit::{cluster, users};

    #[test]
    fn the_users_manifest_has_defaults() {
        let wanted = accepted(&users()).unwrap();
        assert_eq!((wanted.replicas, wanted.acks, wanted.storage), (2, 1, 1 << 30));
        assert_eq!(wanted.failover_after, Duration::from_secs(5));
        assert_eq!(wanted.valid, SignedDuration::from_hours(2_160));
        assert_eq!(
            (wanted.max_lag, wanted.rotation, wanted.pod, wanted.settings),
            (None, None, Extras::default(), BTreeMap::new())
        );
    }

    #[test]
    fn acknowledgements_follow_the_number_of_instances() {
        for (spec, acks) in [
            (json!({"replicas": 1}), 0),
            (json!({"replicas": 2}), 1),
            (json!({"replicas": 9}), 1),
            (json!({"replicas": 3, "acks": 2}), 2),
            (json!({"replicas": 9, "acks": 8}), 8),
        ] {
            assert_eq!(accepted(&cluster(spec.clone())).unwrap().acks, acks, "{spec}");
        }
    }

    #[test]
    fn the_limit_of_memory_is_known() {
        for (resources, expect) in [
            (json!({"limits": {"memory": "1Gi"}}), Some(1 << 30)),
            (json!({"limits": {"cpu": "1"}}), None),
            (json!({"requests": {"memory": "1Gi"}}), None),
            (json!({"limits": {"memory": "0.5Gi"}}), None),
        ] {
            let wanted = accepted(&cluster(json!({"resources": resources}))).unwrap();
            assert_eq!(wanted.memory, expect, "{resources}");
        }
    }

    #[test]
    fn every_bad_spec_has_its_reason() {
        for (spec, reason, says) in [
            (json!({"replicas": 0}), "InvalidReplicas", "from 1 to 9"),
            (json!({"replicas": 10}), "InvalidReplicas", "10"),
            (json!({"replicas": 1, "acks": 1}), "InvalidAcks", "remove it"),
            (json!({"replicas": 2, "acks": 2}), "InvalidAcks", "set 1"),
            (json!({"replicas": 4, "acks": 4}), "InvalidAcks", "1 to 3"),
            (json!({"primary": "db-3"}), "InvalidPrimary", "db-0 to db-2"),
            (json!({"primary": "other-0"}), "InvalidPrimary", "other-0"),
            (json!({"image": "mysql:8.0"}), "VersionTooOld", "8.4.0"),
            (json!({"failoverAfter": "1s"}), "InvalidDuration", "failoverAfter"),
            (json!({"aloneAfter": "1s"}), "InvalidDuration", "aloneAfter"),
            (json!({"maxLag": "10ms"}), "InvalidDuration", "maxLag"),
            (json!({"tls": {"renewal": "119m"}}), "InvalidDuration", "tls.renewal"),
            (json!({"accounts": {"rotation": "59m"}}), "InvalidDuration", "accounts.rotation"),
            (json!({"storage": "much"}), "InvalidStorage", "spec.storage"),
            (json!({"resources": {"limits": "x"}}), "InvalidPod", "spec.resources"),
            (json!({"exporter": {"resources": {"limits": 1}}}), "InvalidPod", "spec.exporter"),
            (json!({"pod": {"tolerations": [{"key": 1}]}}), "InvalidPod", "pod.tolerations"),
            (json!({"mysqlConf": {"a\nb": 1}}), "InvalidSetting", "a\\nb"),
            (json!({"mysqlConf": {"skip-log-bin": ""}}), "InvalidSetting", "remove it"),
            (json!({"mysqlConf": {"sql_mode": "a\n[x]"}}), "InvalidSetting", "sql_mode"),
            (json!({"mysqlConf": {"sql_mode": "", "sql-mode": ""}}), "InvalidSetting", "twice"),
        ] {
            let problems = accepted(&cluster(spec.clone())).unwrap_err();
            let [problem] = &problems[..] else { panic!("{spec}: {problems:?}") };
            assert_eq!(problem.reason, reason, "{spec}");
            assert!(problem.message.contains(says), "{spec}: {problem}");
        }
        let stored = json!({"destination": {"volume": {"claimName": "a"}}, "key": "k"});
        let both = cluster(json!({"fromBackup": "b", "fromStored": stored}));
        assert_eq!(accepted(&both).unwrap_err()[0].reason, "InvalidRestore");
        for name in ["a".repeat(53), "a.b".to_owned(), "1a".to_owned()] {
            let mut named = cluster(json!({}));
            named.metadata.name = Some(name);
            assert_eq!(accepted(&named).unwrap_err()[0].reason, "InvalidName");
        }
    }

    #[test]
    fn all_problems_are_said_at_once() {
        let spec = json!({"replicas": 0, "storage": "much", "failoverAfter": "soon"});
        let problem = together(&accepted(&cluster(spec)).unwrap_err());
        assert_eq!(problem.reason, "InvalidReplicas");
        for says in ["spec.replicas", "spec.storage", "spec.failoverAfter"] {
            assert!(problem.message.contains(says), "{problem}");
        }
    }

    #[test]
    fn settings_are_numbers_or_texts() {
        let spec = json!({"mysqlConf": {"max_connections": 500, "sql-mode": " ANSI ", "Long-Query-Time": ""}});
        let settings = accepted(&cluster(spec)).unwrap().settings;
        let found: Vec<_> = settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            found,
            [("long_query_time", ""), ("max_connections", "500"), ("sql_mode", "ANSI")]
        );
    }
}
