//! Plans to read: each `.txt` here is a fleet and what the planner makes of it.
//!
//! Above the line of dashes the fleet, one thing a line:
//! ```text
//! member NAME ROLE CAPACITY          ROLE: open, frozen, emptying, leaving
//! group NAME SCOPE [KIND ...]        SCOPE: Object, Cluster, Fleet; the kinds it watches
//! shard SHARD LOAD PLACE             PLACE: -, owner, owner>next or owner>
//! shards N SHARD LOAD PLACE[,...]    N of them: {n} counts, the places take turns
//! ```
//! Below it the moves, splits and merges to begin, in order, with their reasons, and what each
//! member carries before and after, by weight. `LEASEHOLD_GOLDEN=write` writes what is below anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::str::FromStr;

use leasehold_sharding::planner::{Limits, Place, PlanMember, Reason, Role, Unit, plan};
use leasehold_sharding::ranges::{self, Reshape, Situation};
use leasehold_sharding::weight::BASE;
use model::{GroupName, GroupScope, GroupTraits, MemberId};

const LINE: &str = "---\n";

#[derive(Default)]
struct Case {
    members: BTreeMap<MemberId, PlanMember>,
    groups: BTreeMap<GroupName, GroupTraits>,
    units: Vec<Unit>,
    points: Vec<u32>,
}

#[test]
fn plans_are_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let rewrite = std::env::var("LEASEHOLD_GOLDEN").is_ok_and(|value| value == "write");
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let fleet = text.split(LINE).next().unwrap();
        let expect = format!("{fleet}{LINE}{}", Case::read(fleet).outcome());
        if rewrite {
            fs::write(&path, expect).unwrap();
        } else {
            assert!(text == expect, "{}: now it is\n{expect}", path.display());
        }
    }
}

impl Case {
    fn read(text: &str) -> Self {
        let mut case = Self::default();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["member", name, role, capacity] => case.add_member(name, role, capacity),
                ["group", name, scope, ref kinds @ ..] => case.add_group(name, scope, kinds),
                ["shard", shard, load, place] => case.add_shard(shard, load, place),
                ["shards", count, shard, load, places] => {
                    let places: Vec<&str> = places.split(',').collect();
                    for n in 0..parsed::<usize>(count) {
                        let shard = shard.replace("{n}", &n.to_string());
                        case.add_shard(&shard, load, places[n % places.len()]);
                    }
                }
                _ => panic!("not understood: {line}"),
            }
        }
        // Every member runs every group.
        let groups: BTreeSet<GroupName> =
            case.units.iter().map(|unit| unit.shard.group.clone()).collect();
        case.members.values_mut().for_each(|member| member.groups.clone_from(&groups));
        case
    }

    fn add_member(&mut self, name: &str, role: &str, capacity: &str) {
        let role = match role {
            "open" => Role::Open,
            "frozen" => Role::Frozen,
            "emptying" => Role::Emptying,
            "leaving" => Role::Leaving,
            _ => panic!("no role: {role}"),
        };
        let (capacity, groups) = (parsed(capacity), BTreeSet::new());
        self.members.insert(parsed(name), PlanMember { role, capacity, groups });
    }

    fn add_group(&mut self, name: &str, scope: &str, kinds: &[&str]) {
        let scope = match scope {
            "Object" => GroupScope::Object,
            "Cluster" => GroupScope::Cluster,
            "Fleet" => GroupScope::Fleet,
            _ => panic!("no scope: {scope}"),
        };
        let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        self.groups.insert(parsed(name), GroupTraits { scope, kinds });
    }

    fn add_shard(&mut self, shard: &str, load: &str, place: &str) {
        let place = match (place, place.split_once('>')) {
            ("-", _) => Place::Unowned,
            (owner, None) => Place::Settled(parsed(owner)),
            (_, Some((from, to))) => Place::Moving { from: parsed(from), to: to.parse().ok() },
        };
        let (shard, load): (model::ShardId, u32) = (parsed(shard), parsed(load));
        self.points.push(load);
        self.units.push(Unit { shard, weight: BASE + load, place });
    }

    fn outcome(mut self) -> String {
        let proposal = plan(&self.members, &self.groups, &self.units, &Limits::default());
        let reshapes = ranges::decide(&Situation {
            units: &self.units,
            groups: &self.groups,
            points: &self.points,
            points_are_complete: true,
            proposal: &proposal,
            under_way: 0,
        });
        let before = self.loads();
        let mut text = String::new();
        for step in &proposal.moves {
            let unit = self.units.iter_mut().find(|unit| unit.shard == step.shard);
            let unit = unit.expect("only what there is moves");
            let from = unit.place.owner().map_or("nobody", MemberId::as_str).to_owned();
            let to = step.to.as_ref().map_or("nobody", MemberId::as_str);
            text += &format!("move  {} {from} -> {to}: {}\n", step.shard, reason(step.reason));
            unit.place = step.to.clone().map_or(Place::Unowned, Place::Settled);
        }
        for reshape in &reshapes {
            let word = if matches!(reshape, Reshape::Split(_)) { "split" } else { "merge" };
            text += &format!("{word} {}\n", reshape.shard());
        }
        if text.is_empty() {
            text.push_str("nothing\n");
        }
        for ((member, after), before) in self.members.keys().zip(self.loads()).zip(before) {
            text += &format!("{member}: {before} -> {after}\n");
        }
        text
    }

    /// What each member carries or is to carry.
    fn loads(&self) -> Vec<u32> {
        let of = |id: &MemberId| {
            let its = self.units.iter().filter(|unit| match &unit.place {
                Place::Settled(member) | Place::Moving { to: Some(member), .. } => member == id,
                _ => false,
            });
            its.map(|unit| unit.weight).sum()
        };
        self.members.keys().map(of).collect()
    }
}

fn parsed<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("not understood: {text}"))
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Unowned => "nobody has it",
        Reason::OwnerLeaves => "its owner leaves",
        Reason::TargetLost => "its next owner cannot take it",
        Reason::Maintenance => "its owner is drained",
        Reason::Together => "its group is one for the fleet",
        Reason::Balance => "balance",
    }
}
