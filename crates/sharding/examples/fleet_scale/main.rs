//! What a fleet of any size asks of its home cluster, and how long it takes to serve everything: the
//! production code of this crate on simulated time.
//!
//! `cargo run --release -p leasehold-sharding --example fleet_scale -- CLUSTERS GROUPS MEMBERS`
//!
//! Home takes 2,000 writes per second, one after the other; a message takes 2 ms each way; a drain takes
//! 100 ms; each shard has a steady load of 2 to 41 ms of work per second. Objects have the size in which
//! members send them: an API server adds `managedFields`, about as much again for a ShardMap. Processor
//! time is real, and passes outside of the simulated time.

mod fleet;
mod home;

use std::time::Duration;

use fleet::{Fleet, Thinking};
use home::Costs;

/// How often the fleet is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long no map may be written before the fleet counts as at rest.
const QUIET: Duration = Duration::from_secs(20);
/// How long a phase may take.
const PATIENCE: Duration = Duration::from_secs(1_200);

struct Phase {
    began: f64,
    costs: Costs,
}

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let ([clusters, groups, members], dead) = match sizes[..] {
        [clusters, groups, members] => ([clusters, groups, members], 0),
        [clusters, groups, members, dead] => ([clusters, groups, members], dead),
        _ => {
            eprintln!("usage: fleet_scale CLUSTERS GROUPS MEMBERS [DOWN], each a number");
            std::process::exit(2);
        }
    };
    println!("{clusters} clusters x {groups} groups, {members} members, {dead} clusters are down");
    println!(
        "{:<36}{:>8}{:>8}{:>9}{:>9}{:>10}{:>10}{:>9}{:>9}{:>9}{:>9}",
        "",
        "s",
        "writes",
        "writes/s",
        "KB/s",
        "events/s",
        "KB/s",
        "steps s",
        "step ms",
        "plans s",
        "plan ms"
    );
    let mut fleet = Fleet::new(clusters, groups, dead);
    for _ in 0..members {
        fleet.start();
    }
    report(&mut fleet, "start, until all is served", |fleet| until(fleet, |f| f.unserved() == 0));
    report(&mut fleet, "until it rests", rest);
    report(&mut fleet, "idle", |fleet| fleet.run_for(Duration::from_secs(60)));
    fleet.start();
    report(&mut fleet, "a member joins, until it rests", rest);
    let victim = fleet.running().find(|member| fleet.coordinating() != Some(*member));
    fleet.crash(victim.expect("there are several"));
    report(&mut fleet, "a member crashes, until served", |fleet| {
        until(fleet, |f| f.unserved() == 0)
    });
    rest(&mut fleet);
    let victim = fleet.coordinating().expect("somebody coordinates");
    fleet.crash(victim);
    report(&mut fleet, "the coordinator crashes", |fleet| until(fleet, |f| f.unserved() == 0));
    rest(&mut fleet);
    let leaver = fleet.running().find(|member| fleet.coordinating() != Some(*member));
    let leaver = leaver.expect("there are several");
    fleet.leave(leaver);
    report(&mut fleet, "a member leaves, until gone", |f| {
        until(f, |f| f.departure(leaver).is_some())
    });
    println!("  it departed: {:?}", fleet.departure(leaver));
    rest(&mut fleet);
    report(&mut fleet, "rolling update, a quarter at a time", update);
    report(&mut fleet, "until it rests", rest);
    println!("conflicts in all: {}", fleet.home.costs.conflicts);
}

fn report(fleet: &mut Fleet, what: &str, phase: impl FnOnce(&mut Fleet)) {
    let before = Phase { began: fleet.seconds(), costs: fleet.home.costs };
    fleet.coordinator = Thinking::default();
    phase(fleet);
    let took = fleet.seconds() - before.began;
    let costs = fleet.home.costs.since(before.costs);
    let thinking = fleet.coordinator;
    let rate = |count: u64| count as f64 / took.max(0.001);
    println!(
        "{what:<36}{took:>8.2}{:>8}{:>9.0}{:>9.0}{:>10.0}{:>10.0}{:>9.2}{:>9.0}{:>9.2}{:>9.0}",
        costs.writes,
        rate(costs.writes),
        rate(costs.written_bytes) / 1e3,
        rate(costs.events),
        rate(costs.event_bytes + costs.listed_bytes) / 1e3,
        thinking.steps.as_secs_f64(),
        thinking.longest_step.as_secs_f64() * 1e3,
        thinking.plans.as_secs_f64(),
        thinking.longest_plan.as_secs_f64() * 1e3,
    );
}

fn until(fleet: &mut Fleet, is_done: impl Fn(&Fleet) -> bool) {
    let end = fleet.seconds() + PATIENCE.as_secs_f64();
    while fleet.seconds() < end {
        fleet.run_for(LOOK);
        if is_done(fleet) {
            return;
        }
    }
    println!("  not within {PATIENCE:?}: {} shards are not served", fleet.unserved());
}

/// Until no map has been written for a while.
fn rest(fleet: &mut Fleet) {
    let end = fleet.seconds() + PATIENCE.as_secs_f64();
    let (mut written, mut since) = (fleet.home.costs.map_writes, fleet.seconds());
    while fleet.seconds() < end && fleet.seconds() < since + QUIET.as_secs_f64() {
        fleet.run_for(LOOK);
        if fleet.home.costs.map_writes != written {
            (written, since) = (fleet.home.costs.map_writes, fleet.seconds());
        }
    }
}

/// All members are replaced: a quarter more start, then as many of the old ones leave, and so on.
fn update(fleet: &mut Fleet) {
    let mut old: Vec<usize> = fleet.running().collect();
    let surge = old.len().div_ceil(4);
    while !old.is_empty() {
        let leavers: Vec<usize> = old.drain(..surge.min(old.len())).collect();
        for _ in &leavers {
            fleet.start();
        }
        fleet.run_for(Duration::from_secs(5));
        leavers.iter().for_each(|leaver| fleet.leave(*leaver));
        until(fleet, |fleet| leavers.iter().all(|leaver| fleet.departure(*leaver).is_some()));
    }
}
