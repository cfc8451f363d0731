//! What can happen in the world of the model, and how often.

use super::world::World;
use crate::planted::Bug;

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Happening {
    Manage,
    Write,
    Receive,
    Apply,
    Time,
    Crash,
    DeletePod,
    Boot,
    LoseVolume,
    Cut,
    Mend,
    Hide,
    Die,
    Arrive,
    Want,
    Template,
}

/// All of that, and how often it happens in a usual run.
pub(super) const USUAL: &[(Happening, u32)] = &[
    (Happening::Manage, 300),
    (Happening::Write, 100),
    (Happening::Receive, 160),
    (Happening::Apply, 100),
    (Happening::Time, 40),
    (Happening::Crash, 10),
    (Happening::DeletePod, 5),
    (Happening::Boot, 30),
    (Happening::LoseVolume, 5),
    (Happening::Cut, 10),
    (Happening::Mend, 10),
    (Happening::Hide, 8),
    (Happening::Die, 30),
    (Happening::Arrive, 6),
    (Happening::Want, 4),
    (Happening::Template, 3),
];

/// What a bug needs to show soon: a number of instances and of acknowledgements, and things that happen so
/// many times as often as usual.
pub(super) type Needs = (Option<(usize, u32)>, &'static [(Happening, u32)]);

/// What this bug needs.
pub(super) fn needs(bug: Bug) -> Needs {
    use Happening::{
        Apply, Arrive, Boot, Crash, Cut, Hide, LoseVolume, Manage, Mend, Time, Want, Write,
    };
    match bug {
        Bug::LeavesReceiving => (None, &[(Want, 6), (Write, 2), (Hide, 2), (Time, 2), (Boot, 2)]),
        Bug::RaiseWithoutBarrier | Bug::RaiseBeforeServer => {
            (Some((5, 1)), &[(Want, 3), (Hide, 2), (Time, 2), (Boot, 2)])
        }
        Bug::RaiseLookedTooEarly => (
            Some((3, 1)),
            &[(Manage, 2), (Want, 6), (Write, 2), (Crash, 2), (LoseVolume, 6), (Time, 3)],
        ),
        Bug::AcknowledgesEarly => (None, &[(Want, 4), (Hide, 2), (Time, 2), (Boot, 2)]),
        Bug::WaitingOverlooked => {
            (Some((3, 2)), &[(Want, 4), (LoseVolume, 3), (Write, 2), (Hide, 2), (Time, 2)])
        }
        Bug::FollowsUnapplied => (
            Some((5, 2)),
            &[(Manage, 2), (Apply, 0), (Hide, 3), (LoseVolume, 3), (Time, 3), (Want, 0), (Cut, 0)],
        ),
        Bug::NoLock => (
            Some((3, 1)),
            &[(Manage, 2), (Hide, 1), (Mend, 1), (Time, 3), (Want, 0), (LoseVolume, 0), (Cut, 0)],
        ),
        Bug::NoReign => {
            (Some((3, 1)), &[(Want, 10), (Write, 2), (Arrive, 2), (Hide, 1), (Time, 2), (Cut, 2)])
        }
        Bug::CloneKeepsUuid => (Some((5, 2)), &[(Crash, 3), (Boot, 3), (Hide, 3), (Time, 2)]),
        _ => (None, &[]),
    }
}

/// Chooses by the rates of this run.
pub(super) fn pick(world: &mut World) -> Happening {
    let all = world.rates.iter().sum::<u32>();
    let mut left = world.rng.u32(..=all);
    for ((what, _), rate) in USUAL.iter().zip(&world.rates) {
        if left < *rate {
            return *what;
        }
        left -= rate;
    }
    Happening::Manage
}
