//! A long history: objects come, change and go, connections break, and this member gains and loses
//! ranges. Whatever the order, in the end everything that it holds was reconciled in its last state, and
//! it caches exactly that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use model::{Hold, Range, uid_hash};
use proptest::prelude::*;

use super::playing::Play;
use super::world::{World, maps};
use crate::{Action, ControllerSpec, Selector};

/// What the last reconcile of each name found: uid and version.
type Found = Arc<Mutex<BTreeMap<String, Option<(String, u64)>>>>;

#[derive(Clone, Debug)]
enum Step {
    /// Objects are made or changed under this many names; deleted and created again with another uid.
    Put(u8),
    Renew(u8),
    Delete(u8),
    /// A quarter goes its way: it warms, opens, drains, goes; or goes at once.
    Advance(u32),
    Lose(u32),
    Disconnect,
    Compact,
    Pass(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..12u8).prop_map(Step::Put),
        2 => (0..12u8).prop_map(Step::Renew),
        2 => (0..12u8).prop_map(Step::Delete),
        6 => (0..4u32).prop_map(Step::Advance),
        1 => (0..4u32).prop_map(Step::Lose),
        1 => Just(Step::Disconnect),
        1 => Just(Step::Compact),
        4 => prop_oneof![Just(1u16), 1..2000u16].prop_map(Step::Pass),
    ]
}

/// A controller that notes what it finds and what is cached beside it.
fn noting() -> (ControllerSpec, Found, Arc<Mutex<Vec<String>>>) {
    let (found, cached) = (Found::default(), Arc::new(Mutex::new(Vec::new())));
    let (noted, seen) = (Arc::clone(&found), Arc::clone(&cached));
    let spec = maps(move |ctx, key| {
        let map = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name).unwrap();
        let version = map.map(|map| {
            let version = map.metadata.resource_version.clone().unwrap();
            (map.metadata.uid.clone().unwrap(), version.parse().unwrap())
        });
        noted.lock().unwrap().insert(key.name.to_string(), version);
        let all = ctx.list::<ConfigMap>(None, &Selector::all()).unwrap();
        *seen.lock().unwrap() = all.iter().filter_map(|map| map.metadata.name.clone()).collect();
        // It takes a moment, so that drains find something that runs.
        async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(Action::Done)
        }
        .boxed()
    });
    (spec, found, cached)
}

struct History {
    world: World,
    play: Play,
    /// Of each quarter, how it is held and at which epoch.
    quarters: [Option<(u64, Hold)>; 4],
    epoch: u64,
    uids: u64,
    /// What was deleted while its quarter was active, since: it must be found gone.
    gone: Vec<(String, u64)>,
}

fn quarter(index: u32) -> Range {
    Range::new(index, 2).expect("there are four")
}

fn shard(index: u32) -> String {
    format!("east/g/{}", quarter(index))
}

impl History {
    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Put(name) => self.put(name),
            Step::Renew(name) => {
                self.play.delete(&format!("map-{name}"));
                self.put(name);
            }
            Step::Delete(name) => self.play.delete(&format!("map-{name}")),
            Step::Advance(index) => self.advance(index).await,
            Step::Lose(index) => self.hold(index, None),
            Step::Disconnect => self.play.disconnect(),
            Step::Compact => self.play.compact(),
            Step::Pass(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
        }
    }

    fn put(&mut self, name: u8) {
        let name = format!("map-{name}");
        let present = self.play.objects().into_iter().find(|(found, ..)| *found == name);
        let uid = present.map(|(_, uid, _)| uid).unwrap_or_else(|| {
            self.uids += 1;
            format!("uid-{}", self.uids)
        });
        self.play.put(&name, &uid);
    }

    async fn advance(&mut self, index: u32) {
        match self.quarters[index as usize] {
            None => {
                self.epoch += 1;
                self.hold(index, Some((self.epoch, Hold::Warming)));
            }
            Some((epoch, Hold::Warming)) => self.hold(index, Some((epoch, Hold::Active))),
            Some((epoch, Hold::Active)) => {
                let draining = self.world.drain_shard(&shard(index), epoch);
                self.quarters[index as usize] = Some((epoch, draining));
            }
            Some((epoch, Hold::Draining { .. })) => {
                self.world.wait_acknowledged(&format!("{}@{epoch}", shard(index))).await;
                self.hold(index, None);
            }
        }
    }

    /// What drains may never have been started here, or hold objects still.
    async fn finish_drains(&mut self) {
        for index in 0..4 {
            if let Some((_, Hold::Draining { .. })) = self.quarters[index as usize] {
                self.advance(index).await;
            }
        }
    }

    fn hold(&mut self, index: u32, holding: Option<(u64, Hold)>) {
        self.quarters[index as usize] = holding;
        self.world.hold_shards(&[(&shard(index), holding)]);
    }

    fn is_active(&self, uid: &str) -> bool {
        (0..4).any(|index| {
            let active = matches!(self.quarters[index as usize], Some((_, Hold::Active)));
            active && quarter(index).contains(uid_hash(uid))
        })
    }

    fn is_held(&self, uid: &str) -> bool {
        (0..4).any(|index| {
            self.quarters[index as usize].is_some() && quarter(index).contains(uid_hash(uid))
        })
    }
}

async fn play(steps: &[Step]) {
    let (spec, found, cached) = noting();
    let world = World::start(vec![spec]);
    let play = Play::default();
    play.answer(world.engage("east", 1));
    let mut history =
        History { world, play, quarters: [None; 4], epoch: 0, uids: 0, gone: Vec::new() };
    for step in steps {
        history.step(step).await;
    }
    history.finish_drains().await;
    // Longer than any wait for the next attempt.
    tokio::time::sleep(Duration::from_secs(100)).await;
    // What is active now and goes while nobody watches must be found gone.
    let objects = history.play.objects();
    for (name, uid, version) in &objects {
        if history.is_active(uid) {
            let last = found.lock().unwrap().get(name).cloned().flatten();
            assert_eq!(last, Some((uid.clone(), *version)), "{name} was not looked at as it is");
        }
    }
    history.play.compact();
    for (name, uid, version) in &objects {
        if history.is_active(uid) && version % 3 == 0 {
            history.play.delete(name);
            history.gone.push((name.clone(), *version));
        }
    }
    tokio::time::sleep(Duration::from_secs(100)).await;
    for (name, version) in &history.gone {
        assert_eq!(found.lock().unwrap()[name], None, "{name}@{version} is gone");
    }
    let held: Vec<_> =
        history.play.objects().into_iter().filter(|(_, uid, _)| history.is_held(uid)).collect();
    let informers = history.world.status.informers();
    let objects: usize = informers.iter().map(|informer| informer.objects).sum();
    assert_eq!(objects, held.len(), "{informers:?}");
    if let Some((name, uid, _)) = held.iter().find(|(_, uid, _)| history.is_active(uid)) {
        // One more change, so that the last look at what is cached is later than all of it.
        history.play.put(name, uid);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let held: Vec<_> = held.iter().map(|(name, ..)| name.clone()).collect();
        assert_eq!(sorted(&cached), sorted(&Mutex::new(held)));
    }
    history.world.stop().await;
}

fn sorted(names: &Mutex<Vec<String>>) -> Vec<String> {
    let mut names = names.lock().unwrap().clone();
    names.sort();
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_is_held_is_followed_wherever_ranges_drift(steps in prop::collection::vec(step(), 0..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(&steps));
    }
}
