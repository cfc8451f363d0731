//! `leasehold status`: members and shards of the fleet, read from the home cluster.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use model::Clock;
use sharding::api::{MemberState, Moved, Phase};

use super::args::StatusArgs;
use super::columns::columns;
use super::home::HomeCluster;
use super::output::{Output, ago};
use crate::clock::SystemClock;
use fleet::{Fleet, FleetMember, FleetShard, Refused};

/// How often a fleet is read that has not settled yet.
const POLL: Duration = Duration::from_millis(500);

/// Prints the fleet; after a wait in vain, with exit code 1.
///
/// # Errors
/// When the home cluster cannot be named, reached or read.
pub(super) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let fleet = runtime.block_on(async {
        let home = HomeCluster::named_by(&args.home).await?;
        match args.wait {
            Some(wait) => settled(&home, wait).await,
            None => home.fleet().await,
        }
    })?;
    let in_vain = args.wait.is_some() && !fleet.is_settled();
    match args.output {
        Output::Table => print!("{}", table(&fleet, SystemClock.wall())),
        Output::Json => println!("{}", serde_json::to_string_pretty(&fleet)?),
    }
    Ok(if in_vain { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reads the fleet until it has settled, or for this long.
async fn settled(home: &HomeCluster, wait: Duration) -> anyhow::Result<Fleet> {
    let mut last = home.fleet().await;
    let settle = async {
        while !last.as_ref().is_ok_and(Fleet::is_settled) {
            tokio::time::sleep(POLL).await;
            last = home.fleet().await;
        }
    };
    let _ = tokio::time::timeout(wait, settle).await;
    last
}

/// The fleet as text, as of `now` on the reader's clock.
fn table(fleet: &Fleet, now: Timestamp) -> String {
    let member_row = |m: &FleetMember| {
        let renewed = m.renewed.map_or_else(|| "never".to_owned(), |at| ago(at, now));
        let role = if m.coordinator { "coordinator" } else { "" };
        [
            m.member.to_string(),
            state(m),
            word(&m.lease),
            renewed,
            m.shards.to_string(),
            workers(m.busy),
            versions(m),
            role.to_owned(),
        ]
    };
    let shard_row = |s: &FleetShard| {
        let owner = s.owner.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let target = s.target.as_ref().map(|t| format!("-> {t}")).unwrap_or_default();
        let note = match &s.paused_by {
            Some(policy) => format!(", paused by {policy}"),
            None if s.unserved => ", not served".to_owned(),
            None => String::new(),
        };
        let moved = s.moved.as_ref().and_then(|Moved { why, at }| {
            let when = at.as_ref().map(|at| ago(at.0, now))?;
            Some(format!("{when}: {why}"))
        });
        let phase = word(&s.phase) + &note;
        let epoch = s.epoch.to_string();
        [s.shard.to_string(), phase, epoch, owner, target, moved.unwrap_or_default()]
    };
    let mut text = columns(
        ["MEMBER", "STATE", "LEASE", "RENEWED", "SHARDS", "BUSY", "PROTOCOL", "ROLE"],
        fleet.members.iter().map(member_row),
    );
    text.push('\n');
    text += &columns(
        ["SHARD", "PHASE", "EPOCH", "OWNER", "TARGET", "MOVED"],
        fleet.shards.iter().map(shard_row),
    );
    let down = down_rows(fleet);
    if !down.is_empty() {
        text.push('\n');
        text += &columns(["DOWN CLUSTER", "SEEN BY", "REASON"], down.into_iter());
    }
    if !fleet.refused.is_empty() {
        let row = |refused: &Refused| [refused.member.to_string(), refused.reason.clone()];
        text.push('\n');
        text += &columns(["CANNOT TAKE PART", "REASON"], fleet.refused.iter().map(row));
    }
    let count = |phase| fleet.shards.iter().filter(|s| s.phase == phase).count();
    let paused = fleet.shards.iter().filter(|shard| shard.paused_by.is_some()).count();
    text += &format!(
        "\n{} members, {} shards: {} owned, {} draining, {} unowned\n",
        fleet.members.len(),
        fleet.shards.len(),
        count(Phase::Owned),
        count(Phase::Draining),
        count(Phase::Unowned),
    );
    if paused > 0 {
        text += &format!("{paused} shards are paused: see `leasehold policies`\n");
    }
    let unserved = fleet.shards.iter().filter(|shard| shard.unserved).count();
    if unserved > 0 {
        text += &format!(
            "{unserved} shards are not served: their owners do not have the cluster configured or \
             fail to reach it\n"
        );
    }
    text
}

/// The clusters for which members have no client; members with the same reason share a row.
fn down_rows(fleet: &Fleet) -> Vec<[String; 3]> {
    let mut seen: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for member in &fleet.members {
        for down in &member.down_clusters {
            let key = (down.cluster.as_str(), down.reason.as_str());
            seen.entry(key).or_default().push(member.member.as_str());
        }
    }
    let row = |((cluster, reason), members): ((&str, &str), Vec<&str>)| {
        [cluster.to_owned(), members.join(","), reason.to_owned()]
    };
    seen.into_iter().map(row).collect()
}

/// The state of a member, or of its drain.
fn state(member: &FleetMember) -> String {
    match (member.drain && member.state == MemberState::Active, member.shards) {
        (true, 0) => "drained".to_owned(),
        (true, _) => "draining".to_owned(),
        (false, _) => word(&member.state),
    }
}

/// The versions of the protocol that a member speaks.
fn versions(member: &FleetMember) -> String {
    match (member.oldest_protocol_version, member.protocol_version) {
        (oldest, newest) if oldest == newest => newest.to_string(),
        (oldest, newest) => format!("{oldest}-{newest}"),
    }
}

/// Milliseconds of work in each second, as a number of busy workers.
fn workers(busy: u32) -> String {
    format!("{:.2}", f64::from(busy) / 1e3)
}

/// A unit variant as it is serialized.
fn word(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_lowercase));
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use model::Epoch;
    use sharding::api::{DownCluster, MoveCause};

    use super::*;
    use fleet::LeaseStanding;

    #[test]
    fn the_table() {
        let member = |id: &str, coordinator: bool| FleetMember {
            member: id.parse().unwrap(),
            identity: "replica".into(),
            state: MemberState::Active,
            drain: !coordinator,
            lease: LeaseStanding::Held,
            renewed: Some(Timestamp::UNIX_EPOCH),
            coordinator,
            capacity: 100,
            protocol_version: 1 + u32::from(!coordinator),
            oldest_protocol_version: 1,
            shards: 1,
            busy: 1250,
            down_clusters: vec![DownCluster {
                cluster: "west".parse().unwrap(),
                reason: "kubeconfig west has no contexts; fix: add a context".into(),
            }],
        };
        let fleet = Fleet {
            coordinator: Some("replica-0-abcde".parse().unwrap()),
            members: vec![member("replica-0-abcde", true), member("replica-10-xyzzy", false)],
            shards: vec![
                FleetShard {
                    shard: "east/tdset/0/1".parse().unwrap(),
                    owner: Some("replica-0-abcde".parse().unwrap()),
                    epoch: Epoch(3),
                    phase: Phase::Draining,
                    target: Some("replica-10-xyzzy".parse().unwrap()),
                    moved: Some(Moved {
                        why: MoveCause::Balance,
                        at: Some(Time(Timestamp::UNIX_EPOCH)),
                    }),
                    unserved: false,
                    paused_by: None,
                },
                FleetShard {
                    shard: "north/tdset/0/1".parse().unwrap(),
                    owner: None,
                    epoch: Epoch(0),
                    phase: Phase::Unowned,
                    target: None,
                    moved: None,
                    unserved: false,
                    paused_by: None,
                },
                FleetShard {
                    shard: "west/tdset/0/1".parse().unwrap(),
                    owner: Some("replica-0-abcde".parse().unwrap()),
                    epoch: Epoch(7),
                    phase: Phase::Owned,
                    target: None,
                    moved: None,
                    unserved: true,
                    paused_by: None,
                },
            ],
            protocol_version: Some(1),
            refused: vec![Refused {
                member: "replica-10-xyzzy".parse().unwrap(),
                reason: "the fleet uses protocol version 1; roll this replica back".into(),
            }],
        };
        let now = Timestamp::from_millisecond(1500).unwrap();
        insta::assert_snapshot!(table(&fleet, now), @r"
        MEMBER            STATE     LEASE  RENEWED   SHARDS  BUSY  PROTOCOL  ROLE
        replica-0-abcde   active    held   1.5s ago  1       1.25  1         coordinator
        replica-10-xyzzy  draining  held   1.5s ago  1       1.25  1-2

        SHARD            PHASE              EPOCH  OWNER            TARGET               MOVED
        east/tdset/0/1   draining           3      replica-0-abcde  -> replica-10-xyzzy  1.5s ago: balance
        north/tdset/0/1  unowned            0      -
        west/tdset/0/1   owned, not served  7      replica-0-abcde

        DOWN CLUSTER  SEEN BY                           REASON
        west          replica-0-abcde,replica-10-xyzzy  kubeconfig west has no contexts; fix: add a context

        CANNOT TAKE PART  REASON
        replica-10-xyzzy  the fleet uses protocol version 1; roll this replica back

        2 members, 3 shards: 1 owned, 1 draining, 1 unowned
        1 shards are not served: their owners do not have the cluster configured or fail to reach it
        ");
    }
}
