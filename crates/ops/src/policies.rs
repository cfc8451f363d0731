//! `leasehold policies`: what people want of a fleet, as its FleetPolicies say it. One that cannot be read is shown
//! with its cause, and hides no other.

use clock::SystemClock;
use fleet::Fleet;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use model::Clock;
use model::error::foreign;
use serde::Deserialize;
use serde_json::Value;
use sharding::api::{FleetPolicy, FleetPolicySpec};

use crate::columns::columns;
use crate::home::{HomeArgs, HomeCluster, in_time};
use crate::output::{Output, ago};
use crate::program::Program;
use crate::selection;

/// The annotation of a policy with the user who ran the command that wrote it, for people.
pub(crate) const USER: &str = "leasehold.dev/user";
/// Policies of one page.
const PAGE: u32 = 500;

/// Arguments of `leasehold policies`.
#[derive(Debug, clap::Args)]
pub(crate) struct PoliciesArgs {
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Which fleet.
    #[command(flatten)]
    home: HomeArgs,
}

/// A FleetPolicy of the home cluster.
#[derive(Clone, Debug)]
pub(crate) struct FoundPolicy {
    pub(crate) name: String,
    /// What it says, or why that cannot be read.
    pub(crate) spec: Result<FleetPolicySpec, String>,
    /// As home has it.
    pub(crate) object: DynamicObject,
}

pub(crate) async fn run(args: &PoliciesArgs, program: &Program) -> anyhow::Result<()> {
    let home = program.home(&args.home).await?;
    let policies = list(&home).await?;
    let fleet = home.fleet().await?;
    if policies.is_empty() {
        home.knows(&fleet)?;
    }
    let table = table(&policies, &fleet, SystemClock.wall())?;
    let objects: Vec<&DynamicObject> = policies.iter().map(|policy| &policy.object).collect();
    args.output.print(&objects, || table)
}

fn table(policies: &[FoundPolicy], fleet: &Fleet, now: Timestamp) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for policy in policies {
        let about = match &policy.spec {
            Ok(spec) if selection::is_of_shards(spec) => {
                let count = selection::shards_of(spec, fleet).len();
                format!("{count} of {} shards", fleet.shards.len())
            }
            Ok(spec) => spec.members.as_ref().map_or("-".to_owned(), |rule| {
                let count = selection::count(&rule.select, fleet);
                format!("{count} of {} members", fleet.alive().count())
            }),
            Err(_) => "?".to_owned(),
        };
        let object = &policy.object;
        let user = object.annotations().get(USER).map_or("-".into(), |user| foreign(user));
        let written = written(object).map_or("-".into(), |at| ago(at, now));
        let reason = policy.spec.as_ref().ok().and_then(|spec| spec.reason.as_deref()).map(foreign);
        let name = foreign(&policy.name);
        rows.push([name, about, policy.says()?, user, written, reason.unwrap_or_default()]);
    }
    let heading = ["POLICY", "ABOUT", "SAYS", "BY", "WRITTEN", "REASON"];
    let problems = fleet.policy_problems.iter().map(|problem| format!("problem: {problem}\n"));
    Ok(columns(heading, rows.into_iter()) + &problems.collect::<String>())
}

impl FoundPolicy {
    /// Reads a policy as far as it can be read.
    pub(crate) fn of(object: DynamicObject) -> Self {
        let said = object.data.get("spec").unwrap_or(&Value::Null);
        let spec = FleetPolicySpec::deserialize(said);
        let spec = spec.map_err(|error| foreign(&model::error::chain(&error)));
        Self { name: object.name_any(), spec, object }
    }

    /// What it says, in one line.
    pub(crate) fn says(&self) -> anyhow::Result<String> {
        match &self.spec {
            Ok(spec) => says(spec),
            Err(why) => Ok(format!("cannot be read: {why}")),
        }
    }

    /// All that its object says, in one line.
    pub(crate) fn said(&self) -> String {
        foreign(&self.object.data["spec"].to_string())
    }

    /// Whether it pauses something, as far as it can be read.
    pub(crate) fn is_pause(&self) -> bool {
        match &self.spec {
            Ok(spec) => spec.pause == Some(true),
            Err(_) => {
                !matches!(self.object.data["spec"]["pause"], Value::Null | Value::Bool(false))
            }
        }
    }
}

/// When somebody changed it last.
fn written(policy: &DynamicObject) -> Option<Timestamp> {
    let changes = policy.managed_fields().iter().filter_map(|entry| entry.time.as_ref());
    changes.chain(&policy.metadata.creation_timestamp).map(|time| time.0).max()
}

/// What a policy says, as its object has it, in one line.
pub(crate) fn says(spec: &FleetPolicySpec) -> anyhow::Result<String> {
    let spec = FleetPolicySpec { reason: None, shards: None, ..spec.clone() };
    let json = serde_json::to_value(spec)?;
    let fields = json.as_object().into_iter().flatten();
    Ok(fields.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", "))
}

pub(crate) fn api(home: &HomeCluster) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<FleetPolicy>(&());
    Api::namespaced_with(home.client.clone(), &home.namespace, &resource)
}

/// All policies of a fleet.
pub(crate) async fn list(home: &HomeCluster) -> anyhow::Result<Vec<FoundPolicy>> {
    let mut all = Vec::new();
    let keep = |object| all.push(FoundPolicy::of(object));
    let (params, what) = (ListParams::default().limit(PAGE), "fleetpolicies.leasehold.dev");
    let read = fleet::pages(&api(home), params, (what, &home.namespace), usize::MAX, keep).await;
    home.read(read)?;
    Ok(all)
}

/// What the home cluster answers, if that is in time.
pub(crate) async fn answered<T>(
    request: impl Future<Output = kube::Result<T>>,
    what: &str,
) -> anyhow::Result<T> {
    let answer = in_time(what, request).await?;
    answer.map_err(|error| {
        let (why, fix) = (model::error::chain(&error), fix_of(&error));
        anyhow::anyhow!("{what}: {why}; fix: {fix}")
    })
}

/// What to do about a policy that the home cluster does not take or give.
fn fix_of(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) => match status.code {
            403 => {
                "let this user write FleetPolicies: `leasehold rbac --as operator` prints the rights"
            }
            404 => {
                "see whether `leasehold policies` shows it; if home does not know the kind: `leasehold crds --for home \
                 | kubectl apply --server-side --force-conflicts -f -`"
            }
            409 => "somebody else writes it too: look at `leasehold policies`, and try again",
            422 => "correct what it names",
            code => model::error::remedy(Some(code)),
        },
        _ => model::error::remedy(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who tidies up must not take it for one that pauses nothing.
    #[test]
    fn a_pause_that_holds_by_a_former_name_is_about_the_shards_of_the_cluster() {
        let map = serde_json::json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "ShardMap",
            "metadata": {"name": "west", "annotations": {
                "leasehold.dev/cluster-uid": "u1", "leasehold.dev/former-names": "u1/east,u2/north",
            }},
            "spec": {"shards": [{"shard": "g/0/1", "epoch": 1, "phase": "Unowned"}]},
        });
        let maps = vec![serde_json::from_value(map).unwrap()];
        let fleet = fleet::assemble(&fleet::Objects { maps, ..fleet::Objects::default() });
        let shards = |cluster: &str, pause: bool| {
            let spec = serde_json::json!({"pause": pause, "shards": {"clusters": [cluster]}});
            selection::shards_of(&serde_json::from_value(spec).unwrap(), &fleet).len()
        };
        for (cluster, pause, count) in
            [("east", true, 1), ("east", false, 0), ("west", true, 1), ("north", true, 0)]
        {
            assert_eq!(shards(cluster, pause), count, "{cluster}");
        }
    }

    #[test]
    fn who_wrote_a_policy_last_and_when_is_shown_and_one_that_cannot_be_read_hides_no_other() {
        let read = |policy| FoundPolicy::of(serde_json::from_value(policy).unwrap());
        let mut policy = serde_json::json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "FleetPolicy",
            "metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {
                "members": {"capacity": 5, "names": ["m-9"]},
                "reason": "\u{1b}[2Jsmall\nproblem: none",
            },
        });
        let by_kubectl = read(policy.clone());
        policy["metadata"]["annotations"] = serde_json::json!({USER: "alice"});
        policy["metadata"]["managedFields"] =
            serde_json::json!([{"manager": "x", "time": "1970-01-01T00:01:00Z"}]);
        let now = Timestamp::from_second(90).unwrap();
        let by_alice = read(policy.clone());
        policy["spec"] = serde_json::json!({"pause": "yes"});
        let odd = read(policy);
        assert!(odd.is_pause() && !by_alice.is_pause());
        let members = vec![fleet::FleetMember::example("m-0")];
        let problems = vec!["p holds no more".into()];
        let fleet = Fleet { members, policy_problems: problems, ..Fleet::default() };
        let text = table(&[by_kubectl, by_alice, odd], &fleet, now).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with("-      90.0s ago   [2Jsmall problem: none"), "{text}");
        assert!(lines[2].contains("members {\"capacity\":5,\"names\":[\"m-9\"]}  "), "{text}");
        assert!(lines[2].ends_with("alice  30.0s ago   [2Jsmall problem: none"), "{text}");
        assert!(lines[1].starts_with("p       0 of 1 members  "), "it is gone: {text}");
        assert!(
            lines[3].contains("p       ?               cannot be read: invalid type: string"),
            "{text}"
        );
        assert_eq!(lines[4], "problem: p holds no more");
    }
}
