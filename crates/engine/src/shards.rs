//! Decides which shards to start, open, drain and stop: pure, from what this member holds and which
//! clusters are engaged.
//!
//! ```text
//!             Start             Open              Drain
//!   (absent) ───────▶ warming ───────▶ active ───────────▶ draining
//!                        │                │                    │
//!                        └────────────────┴──── Stop ──────────┴──▶ (absent)
//! ```
//!
//! # Invariants
//! - A shard is opened only while it is held `Active`, at the epoch with which it was started.
//! - A shard that is lost, changes its epoch or member, or whose cluster leaves or changes, is stopped
//!   before anything else is done for it.
//! - A drain begins for every draining shard, even if it was never started, so that the acknowledgement
//!   always comes.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClusterName, Epoch, GroupName, Hold, MemberId, Moment, OwnedShards, ShardId};

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Subscribe informers and gather keys; give none out.
    Start { shard: ShardId, epoch: Epoch, member: MemberId },
    /// Give keys out, once the caches have synced.
    Open { shard: ShardId },
    /// Give out nothing more, wait for what runs, cancel it at the deadline, acknowledge.
    Drain { shard: ShardId, epoch: Epoch, deadline: Moment },
    /// Cancel everything of it, at once.
    Stop { shard: ShardId },
}

/// The shards as the engine runs them.
#[derive(Debug, Default)]
pub(crate) struct Shards(BTreeMap<ShardId, Running>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Running {
    epoch: Epoch,
    member: MemberId,
    incarnation: Option<u64>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Warming,
    Active,
    Draining,
}

impl Phase {
    fn of(hold: Hold) -> Self {
        match hold {
            Hold::Warming => Self::Warming,
            Hold::Active => Self::Active,
            Hold::Draining { .. } => Self::Draining,
        }
    }
}

impl Shards {
    /// The steps from the present state to the wanted one, stops first. Afterwards the state is the
    /// wanted one.
    pub(crate) fn plan(
        &mut self,
        owned: &OwnedShards,
        engaged: &BTreeMap<ClusterName, u64>,
        groups: &BTreeSet<GroupName>,
    ) -> Vec<Step> {
        let mut wanted = BTreeMap::new();
        for (shard, holding) in &owned.holdings {
            let known = groups.contains(&shard.group);
            let incarnation = engaged.get(&shard.cluster).copied().filter(|_| known);
            let phase = Phase::of(holding.hold);
            // Where nothing can run there is still a drain to acknowledge.
            if incarnation.is_some() || phase == Phase::Draining {
                let (epoch, member) = (holding.epoch, owned.member.clone());
                wanted.insert(shard.clone(), Running { epoch, member, incarnation, phase });
            }
        }
        let mut steps = Vec::new();
        self.0.retain(|shard, running| {
            let stays = wanted.get(shard).is_some_and(|wanted| continues(running, wanted));
            if !stays {
                steps.push(Step::Stop { shard: shard.clone() });
            }
            stays
        });
        for (shard, wanted) in wanted {
            let before = self.0.get(&shard).map(|running| running.phase);
            self.advance(&shard, before, &wanted, owned, &mut steps);
            self.0.insert(shard, wanted);
        }
        steps
    }

    /// Whether a shard should give out keys.
    pub(crate) fn is_active(&self, shard: &ShardId) -> bool {
        self.0.get(shard).is_some_and(|running| running.phase == Phase::Active)
    }

    fn advance(
        &self,
        shard: &ShardId,
        before: Option<Phase>,
        wanted: &Running,
        owned: &OwnedShards,
        steps: &mut Vec<Step>,
    ) {
        let Running { epoch, member, phase, .. } = wanted.clone();
        if before == Some(phase) {
            return;
        }
        let shard = || shard.clone();
        if before.is_none() && phase != Phase::Draining {
            steps.push(Step::Start { shard: shard(), epoch, member });
        }
        match phase {
            Phase::Warming => {}
            Phase::Active => steps.push(Step::Open { shard: shard() }),
            Phase::Draining => {
                let hold = owned.holdings.get(&shard()).map(|holding| holding.hold);
                if let Some(Hold::Draining { deadline }) = hold {
                    steps.push(Step::Drain { shard: shard(), epoch, deadline });
                }
            }
        }
    }
}

/// Whether a running shard can become the wanted one without a stop in between.
fn continues(running: &Running, wanted: &Running) -> bool {
    let same_assignment = running.epoch == wanted.epoch && running.member == wanted.member;
    // A drain goes on even if its cluster goes meanwhile: what runs must still be waited for.
    let same_cluster = running.incarnation == wanted.incarnation || wanted.phase == Phase::Draining;
    same_assignment && same_cluster && wanted.phase >= running.phase
}

#[cfg(test)]
mod tests {
    use model::Holding;
    use proptest::prelude::*;

    use super::*;

    /// Plays states, each as `member shard=epoch:hold ... | cluster#incarnation ...`, and writes
    /// down the steps.
    fn play(states: &[&str]) -> String {
        let mut shards = Shards::default();
        let logs: Vec<_> = states.iter().map(|state| show(&step(&mut shards, state))).collect();
        logs.join(" / ")
    }

    fn step(shards: &mut Shards, state: &str) -> Vec<Step> {
        let (owned, engaged) = read(state);
        shards.plan(&owned, &engaged, &BTreeSet::from(["g".parse().unwrap()]))
    }

    fn read(state: &str) -> (OwnedShards, BTreeMap<ClusterName, u64>) {
        let (held, clusters) = state.split_once('|').unwrap();
        let mut words = held.split_whitespace();
        let mut owned = OwnedShards::none(words.next().unwrap().parse().unwrap());
        for word in words {
            let (shard, rest) = word.split_once('=').unwrap();
            let (epoch, hold) = rest.split_once(':').unwrap();
            let hold = match hold {
                "w" => Hold::Warming,
                "a" => Hold::Active,
                _ => Hold::Draining { deadline: Moment::default() },
            };
            let shard = format!("{shard}/0/1").parse().unwrap();
            owned.holdings.insert(shard, Holding { epoch: Epoch(epoch.parse().unwrap()), hold });
        }
        let engaged = clusters.split_whitespace().map(|word| {
            let (name, incarnation) = word.split_once('#').unwrap();
            (name.parse().unwrap(), incarnation.parse().unwrap())
        });
        (owned, engaged.collect())
    }

    fn show(steps: &[Step]) -> String {
        let cluster = |shard: &ShardId| shard.cluster.to_string();
        let steps = steps.iter().map(|step| match step {
            Step::Start { shard, epoch, .. } => format!("start {}@{epoch}", cluster(shard)),
            Step::Open { shard } => format!("open {}", cluster(shard)),
            Step::Drain { shard, epoch, .. } => format!("drain {}@{epoch}", cluster(shard)),
            Step::Stop { shard } => format!("stop {}", cluster(shard)),
        });
        steps.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn shards_start_open_drain_and_stop() {
        for (states, expect) in [
            // The ordinary course of a handover to us and away again.
            (
                &["m | e#1", "m e/g=2:w | e#1", "m e/g=2:a | e#1", "m e/g=2:d | e#1", "m | e#1"][..],
                " / start e@2 / open e / drain e@2 / stop e",
            ),
            // Gained at once; nothing to do when nothing changes.
            (&["m e/g=1:a | e#1", "m e/g=1:a | e#1"], "start e@1, open e / "),
            // Lost without a drain.
            (&["m e/g=1:a | e#1", "m | e#1"], "start e@1, open e / stop e"),
            // Lost and regained between two looks.
            (
                &["m e/g=1:a | e#1", "m e/g=3:a | e#1"],
                "start e@1, open e / stop e, start e@3, open e",
            ),
            // Rejoined as another member.
            (
                &["m e/g=1:a | e#1", "n e/g=1:a | e#1"],
                "start e@1, open e / stop e, start e@1, open e",
            ),
            // A cluster that is not engaged yet, engages, changes its kubeconfig, goes.
            (
                &["m e/g=1:a |", "m e/g=1:a | e#1", "m e/g=1:a | e#2", "m e/g=1:a |"],
                " / start e@1, open e / stop e, start e@1, open e / stop e",
            ),
            // A drain is acknowledged even where nothing runs.
            (&["m e/g=1:d |", "m |"], "drain e@1 / stop e"),
            (&["m e/other=1:d | e#1"], "drain e@1"),
            (&["m e/other=1:a | e#1"], ""),
            // A drain outlives its cluster.
            (&["m e/g=1:a | e#1", "m e/g=1:d |"], "start e@1, open e / drain e@1"),
            // A drain is called off: the shard starts again.
            (
                &["m e/g=1:a | e#1", "m e/g=1:d | e#1", "m e/g=1:a | e#1"],
                "start e@1, open e / drain e@1 / stop e, start e@1, open e",
            ),
        ] {
            assert_eq!(play(states), expect, "{states:?}");
        }
    }

    proptest! {
        /// What is open is exactly what is held active in an engaged cluster, and each step is
        /// legal where it stands.
        #[test]
        fn steps_lead_to_what_is_held(states in prop::collection::vec(
            (prop::collection::vec(("[ef]", 1..4_u64, "[wad]"), 0..3), prop::collection::vec(("[ef]", 1..3_u64), 0..3)),
            1..12,
        )) {
            let mut shards = Shards::default();
            let mut open = BTreeMap::new();
            for (held, clusters) in states {
                let held: Vec<_> = held.iter().map(|(c, e, h)| format!("{c}/g={e}:{h}")).collect();
                let clusters: Vec<_> = clusters.iter().map(|(c, i)| format!("{c}#{i}")).collect();
                let state = format!("m {} | {}", held.join(" "), clusters.join(" "));
                for step in step(&mut shards, &state) {
                    match step {
                        Step::Start { shard, epoch, .. } => {
                            prop_assert!(open.insert(shard, (epoch, false)).is_none());
                        }
                        Step::Open { shard } => {
                            let started = open.get_mut(&shard).expect("started before opened");
                            prop_assert!(!std::mem::replace(&mut started.1, true));
                        }
                        Step::Drain { shard, .. } => {
                            open.remove(&shard);
                        }
                        Step::Stop { shard } => {
                            open.remove(&shard);
                        }
                    }
                }
                let (owned, engaged) = read(&state);
                let active: BTreeMap<_, _> = owned.holdings.iter()
                    .filter(|(shard, holding)| {
                        engaged.contains_key(&shard.cluster) && holding.hold == Hold::Active
                    })
                    .map(|(shard, holding)| (shard.clone(), holding.epoch))
                    .collect();
                let opened: BTreeMap<_, _> = open.iter()
                    .filter(|(_, (_, opened))| *opened)
                    .map(|(shard, (epoch, _))| (shard.clone(), *epoch))
                    .collect();
                prop_assert_eq!(opened, active);
            }
        }
    }
}
