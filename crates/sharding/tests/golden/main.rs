//! Plans to read: each `.txt` here has a fleet and its plan.
//!
//! Above the line of dashes is the fleet, one thing per line:
//! ```text
//! member NAME ROLE CAPACITY          ROLE: open, suspect, cordoned, leaving
//! group NAME SCOPE [KIND ...]        SCOPE: Object, Cluster, Fleet; the kinds it watches
//! shard SHARD LOAD PLACEMENT         PLACEMENT: -, owner, owner>next or owner>
//! shards N SHARD LOAD PLACEMENT[,...]  N of them: {n} counts, the placements take turns
//! ```
//! Below it are the moves, splits and merges to begin, in order and with their reasons, and the weight
//! that each member carries before and after. `LEASEHOLD_GOLDEN=write` rewrites the part below the line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::str::FromStr;

use leasehold_sharding::planner::{
    Limits, Placement, PlanMember, PlanShard, Reach, Reason, Role, plan,
};
use leasehold_sharding::ranges::{self, RangeChange, Situation};
use leasehold_sharding::weight::{BASE, Points};
use model::{GroupName, GroupScope, GroupTraits, MemberId};

const LINE: &str = "---\n";

#[derive(Default)]
struct Case {
    members: BTreeMap<MemberId, PlanMember>,
    groups: BTreeMap<GroupName, GroupTraits>,
    shards: Vec<PlanShard>,
    points: Vec<Points>,
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
                ["shard", shard, load, placement] => case.add_shard(shard, load, placement),
                ["shards", count, shard, load, placements] => {
                    let placements: Vec<&str> = placements.split(',').collect();
                    for n in 0..parsed::<usize>(count) {
                        let shard = shard.replace("{n}", &n.to_string());
                        case.add_shard(&shard, load, placements[n % placements.len()]);
                    }
                }
                _ => panic!("not understood: {line}"),
            }
        }
        // Every member runs every group.
        let groups: BTreeSet<GroupName> =
            case.shards.iter().map(|shard| shard.id.group.clone()).collect();
        case.members.values_mut().for_each(|member| member.groups.clone_from(&groups));
        case
    }

    fn add_member(&mut self, name: &str, role: &str, capacity: &str) {
        let role = match role {
            "open" => Role::Open,
            "suspect" => Role::Suspect,
            "cordoned" => Role::Cordoned,
            "leaving" => Role::Leaving,
            _ => panic!("no role: {role}"),
        };
        let (capacity, groups) = (parsed(capacity), BTreeSet::new());
        self.members.insert(
            parsed(name),
            PlanMember { role, capacity, groups, reach: Reach::default(), max_shards: None },
        );
    }

    fn add_group(&mut self, name: &str, scope: &str, kinds: &[&str]) {
        let scope = match scope {
            "Object" => GroupScope::Object,
            "Cluster" => GroupScope::Cluster,
            "Fleet" => GroupScope::Fleet,
            _ => panic!("no scope: {scope}"),
        };
        let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        self.groups.insert(parsed(name), GroupTraits { scope, kinds, ..GroupTraits::default() });
    }

    fn add_shard(&mut self, shard: &str, load: &str, placement: &str) {
        let placement = match (placement, placement.split_once('>')) {
            ("-", _) => Placement::Unowned,
            (owner, None) => Placement::Settled(parsed(owner)),
            (_, Some((from, to))) => Placement::Moving { from: parsed(from), to: to.parse().ok() },
        };
        let (shard, load): (model::ShardId, u32) = (parsed(shard), parsed(load));
        self.points.push(Points { all: load, divisible: load, waited: false });
        let weight = BASE + load;
        self.shards.push(PlanShard {
            id: shard,
            weight,
            divisible: load,
            placement,
            rests: false,
            before: None,
            preferences: None,
        });
    }

    fn outcome(mut self) -> String {
        let proposal = plan(&self.members, &self.groups, &self.shards, &Limits::default());
        let range_changes = ranges::decide(&Situation {
            shards: &self.shards,
            groups: &self.groups,
            points: &self.points,
            points_are_complete: true,
            proposal: &proposal,
            under_way: 0,
        });
        let before = self.loads();
        let mut text = String::new();
        for step in &proposal.moves {
            let shard = self.shards.iter_mut().find(|shard| shard.id == step.shard);
            let shard = shard.expect("only known shards move");
            let from = shard.placement.owner().map_or("nobody", MemberId::as_str).to_owned();
            let to = step.to.as_ref().map_or("nobody", MemberId::as_str);
            text += &format!("move  {} {from} -> {to}: {}\n", step.shard, reason(step.reason));
            shard.placement = step.to.clone().map_or(Placement::Unowned, Placement::Settled);
        }
        for change in &range_changes {
            let word = if matches!(change, RangeChange::Split(_)) { "split" } else { "merge" };
            text += &format!("{word} {}\n", change.shard());
        }
        if text.is_empty() {
            text.push_str("nothing\n");
        }
        for ((member, after), before) in self.members.keys().zip(self.loads()).zip(before) {
            text += &format!("{member}: {before} -> {after}\n");
        }
        text
    }

    /// What each member carries, or will carry when its moves end.
    fn loads(&self) -> Vec<u32> {
        let of = |id: &MemberId| {
            let its = self.shards.iter().filter(|shard| match &shard.placement {
                Placement::Settled(member) | Placement::Moving { to: Some(member), .. } => {
                    member == id
                }
                _ => false,
            });
            its.map(|shard| shard.weight).sum()
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
        Reason::Unreached => "its owner does not reach it",
        Reason::Policy => "people want it elsewhere",
        Reason::Maintenance => "its owner is drained",
        Reason::Together => "its group is one for the fleet",
        Reason::Balance => "balance",
    }
}
