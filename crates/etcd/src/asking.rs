//! Asks members: a settled cluster one of them, any other cluster all.

use futures::future::join_all;
use kube::ResourceExt;
use sdk::Context;

use crate::api::{EtcdCluster, MemberPhase};
use crate::calls::{Address, Alarm, EtcdError, Gateway, Look, Roster, Trust, alarms, look, roster};
use crate::names;
use crate::objects::{self, Start};
use crate::observed::{Observed, Seen};
use crate::upkeep::is_conspicuous;

/// Of how many seconds each is one member's turn to be asked.
const TURN: i64 = 60;

/// What one member says.
struct Said {
    member: String,
    look: Look,
    roster: Option<Roster>,
    alarms: Vec<Alarm>,
}

/// The address of a member.
pub(crate) fn address(cluster: &EtcdCluster, trust: Option<&Trust>, member: &str) -> Address {
    Address {
        namespace: cluster.namespace().unwrap_or_default(),
        pod: member.to_owned(),
        host: names::host(cluster, member),
        trust: trust.cloned(),
    }
}

/// Asks members. `observed` has the objects of the cluster.
pub(crate) async fn ask(
    ctx: &Context,
    gateway: &dyn Gateway,
    trust: Option<&Trust>,
    observed: &Observed<'_>,
) -> Seen {
    if let Some(member) = settled(observed) {
        let said = ask_one(ctx, gateway, address(observed.cluster, trust, &member)).await;
        if let Ok(said) = said
            && is_as_expected(observed, &said)
        {
            return gathered(vec![Ok(said)], false);
        }
    }
    let running = observed.pods.iter().filter(|(_, pod)| pod.is_running && !pod.is_deleting);
    let addresses = running.map(|(member, _)| address(observed.cluster, trust, member));
    let asked = addresses.map(|address| ask_one(ctx, gateway, address));
    gathered(join_all(asked).await, true)
}

/// Whose turn it is, if nothing is known that needs more than a look.
fn settled(observed: &Observed<'_>) -> Option<String> {
    let Observed { cluster, wanted, pods, now, .. } = observed;
    let status = cluster.status.as_ref()?;
    let version = status.target_version.as_deref()?;
    let has_all = status.members.len() == wanted.size && pods.len() == wanted.size;
    let target = version.parse().ok().filter(|target| *target == wanted.version && has_all)?;
    let is_settled = status.members.iter().all(|member| {
        let desired = objects::pod(cluster, wanted, target, &member.name, &Start::Resume);
        let desired = desired.annotations().get(names::TEMPLATE).cloned();
        let pod = pods.get(&member.name);
        member.phase == MemberPhase::Running
            && observed.serves(member)
            && member.version.as_deref() == Some(version)
            && member.lost_since.is_none()
            && pod.map(|pod| &pod.template) == desired.as_ref()
    });
    let turn = usize::try_from(now.as_second() / TURN).unwrap_or_default() % wanted.size;
    status.members.get(turn).filter(|_| is_settled).map(|member| member.name.clone())
}

/// Whether a member of a settled cluster says nothing new.
fn is_as_expected(observed: &Observed<'_>, said: &Said) -> bool {
    let members = observed.cluster.status.iter().flat_map(|status| &status.members);
    let expected: Vec<String> =
        members.map(|member| names::peer_url(observed.cluster, &member.name)).collect();
    let is_expected = |roster: &Roster| {
        roster.members.len() == expected.len()
            && roster.members.iter().all(|listed| {
                !listed.is_learner && listed.peer_urls.iter().all(|url| expected.contains(url))
            })
    };
    said.roster.as_ref().is_some_and(is_expected) && !is_conspicuous(observed, &said.look)
}

async fn ask_one(
    ctx: &Context,
    gateway: &dyn Gateway,
    to: Address,
) -> Result<Said, (String, EtcdError)> {
    let failed = |error| (to.pod.clone(), error);
    let mut session = gateway.open(ctx, &to).await.map_err(failed)?;
    let look = look(&mut *session).await.map_err(failed)?;
    let mut said = Said { member: to.pod.clone(), look, roster: None, alarms: Vec::new() };
    // A learner lists nothing, and who knows of no leader cannot.
    if !said.look.is_learner && said.look.leader != 0 {
        said.roster = Some(roster(&mut *session).await.map_err(failed)?);
        let is_alarmed = said.look.errors.iter().any(|error| error.contains("alarm"));
        if is_alarmed {
            said.alarms = alarms(&mut *session).await.map_err(failed)?;
        }
    }
    Ok(said)
}

fn gathered(all: Vec<Result<Said, (String, EtcdError)>>, is_thorough: bool) -> Seen {
    let mut seen = Seen { is_thorough, ..Seen::default() };
    for said in all {
        match said {
            Ok(said) => {
                seen.looks.insert(said.member, said.look);
                // Each is linearizable; the later one wins only if there is none yet, because they were
                // asked at the same time and any of them may decide.
                seen.roster = seen.roster.or(said.roster);
                if seen.alarms.is_empty() {
                    seen.alarms = said.alarms;
                }
            }
            Err((pod, error)) => {
                seen.wants_user |= error.wants_user();
                seen.trouble = Some(sdk::error::chain(&error).chars().take(300).collect());
                tracing::debug!(pod, error = sdk::error::chain(&error), "a member does not answer");
            }
        }
    }
    seen
}
