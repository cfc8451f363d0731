//! The model finds each planted bug: which oracle sees it, and after how many states.

use leasehold_sharding::planted::Planted;
use stateright::{Checker, HasDiscoveries, Model};

use crate::explore::Fleet;
use crate::oracle::Rule;
use crate::system::Beginning;

/// States after which a bug must have been found, over all beginnings.
const MOST_STATES: usize = 20_000;

/// The rule that the bug breaks first; no two bugs of one rule are alike.
fn breaks(bug: Planted) -> Rule {
    match bug {
        Planted::SkipDrain | Planted::SkipTakeover | Planted::FenceAtDispatchOnly => Rule::S1,
        Planted::AcknowledgeEarly => Rule::S2,
        Planted::KeepEpoch => Rule::S3,
        Planted::OverwriteMap => Rule::S4,
        Planted::TakeWithoutVersion | Planted::NoMargin | Planted::TrustWallClock => Rule::S5,
    }
}

#[test]
fn each_planted_bug_is_caught() {
    println!("{:<20} {:<8} {:>7} {:>6}  found from", "bug", "oracle", "states", "steps");
    for bug in Planted::ALL {
        let (rule, states, steps, beginning) = hunt(bug);
        println!("{:<20} {rule:<8} {states:>7} {steps:>6}  {beginning:?}", format!("{bug:?}"));
        assert_eq!(rule, breaks(bug).to_string(), "{bug:?}");
        assert!(states <= MOST_STATES, "{bug:?} took {states} states");
    }
}

/// Explores until a rule is broken: which, after how many states, in how many steps, from where.
fn hunt(bug: Planted) -> (&'static str, usize, usize, Beginning) {
    let mut before = 0;
    let fleets = [(Beginning::Alone, 1), (Beginning::Shared, 1), (Beginning::Alone, 2)];
    for (beginning, disturbances) in fleets {
        let fleet = Fleet { bug: Some(bug), ..Fleet::new(beginning, disturbances) };
        let checker = fleet.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let states = before + checker.unique_state_count();
        let broken = checker.discoveries().into_iter().find(|(name, _)| name.starts_with('S'));
        if let Some((rule, path)) = broken {
            return (rule, states, path.into_actions().len(), beginning);
        }
        before = states;
    }
    panic!("{bug:?} is not caught within {before} states");
}
