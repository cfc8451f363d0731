//! The next step of a cluster, decided from what was found. Pure: one step at a time, each recognised
//! again when it was taken halfway.
//!
//! # Why nothing acknowledged is lost
//!
//! P is the primary, A the other members, k = `memory.acks`. P tells a client that it committed when k
//! of A have received the commit. What is kept true is this:
//!
//! > **H**: P has each acknowledged commit, and so have at least min(k, |A|) of A, where a member
//! > counts that had it and lost its volume.
//!
//! 1. **Promotion** (`choosing`) is by one of two proofs. Either the former primary answers and is
//!    closed, and nobody waits in it: then it has all there is, and who has received all of it may follow.
//!    Or members M of A have been told to receive no more, with their remembered data, and fewer than
//!    k of A are missing from M: then P cannot gather k acknowledgements, and by H one of M has each
//!    commit. The heir has received all that any of M has. With k = 0 there is no such proof.
//! 2. **Written first** (`reigning`): that nobody is primary, before anyone is told to receive no more;
//!    the new primary, before it is opened. Who is opened has the remembered uuid, follows nobody, has
//!    applied all that it received, and waits for k.
//! 3. **k** (`acks`) is never more than P waits for: raised there first and remembered later, lowered
//!    the other way round. It is raised in the memory when so many of A have all that P had sent when it
//!    was seen to wait for so many, or H would not hold for older commits.
//! 4. **Members** (`members`) change only while P is open, and if H holds afterwards: min(k, |A|) of the
//!    new A have received what P had executed or was committing after the leaving one received no more. A
//!    commit that waits counts, as it may have the acknowledgement of the leaving one already. An
//!    instance acknowledges only as a member.
//! 5. **Data of a member stays** (`following`): nothing received is dropped before it is applied, and
//!    only who is no member is cloned over. A clone has a new uuid: the numbers of commits that were thrown
//!    away are never given again.
//! 6. **Waiting sessions of a deposed primary hear nothing**: it is ended, not closed, and by a
//!    signal that leaves it no time to answer.
//!
//! # What the reconcile loop owes
//!
//! One round is: read the object; open a session to each instance, which takes the lock there, and look,
//! **at the primary (or the former one) last**; read the object again, and begin anew if it changed;
//! [`crate::kept::Kept::round`], [`decide`]; take the one step, an order in the very session of the look,
//! the memory only over the version that was read. The first step of a manager is a write ([`Change::Begin`]),
//! so that what its predecessor still sends is refused; a write that was not answered may arrive as late, so
//! the manager begins again after it ([`crate::kept::Kept::doubt`]). Then everything that a decision rests on stays
//! true until the step is taken, whoever dies in between.

use crate::observed::Observed;
use crate::planted::planted;
use crate::server::Order;
use crate::step::{Change, Step, Waiting, Why};

mod acks;
mod choosing;
mod following;
mod founding;
mod labels;
mod members;
#[cfg(test)]
mod model;
mod reigning;
mod room;
mod switchover;
#[cfg(test)]
mod tests;
mod upkeep;

/// The next step.
pub(crate) fn decide(observed: &Observed) -> Step {
    if !observed.has_begun && !planted!(observed, NoReign) {
        let mut memory = observed.memory.clone();
        memory.reign += 1;
        return Step::remember(memory, Change::Begin);
    }
    if observed.memory.members.is_empty() {
        return observed.found();
    }
    if let Some(step) = observed.revive() {
        return step;
    }
    match &observed.memory.primary {
        Some(primary) => observed.reign(primary),
        None => observed.choose(),
    }
}

impl Observed {
    /// Closes whoever is open and is not the primary, or ends it if sessions wait in it.
    fn close_strays(&self, primary: &str) -> Option<Step> {
        let strays = self.instances.iter().filter(|seen| seen.name != primary);
        for seen in strays {
            let Some(look) = seen.answer() else { continue };
            if look.is_writable && look.waiting == 0 {
                return Some(Step::tell(&seen.name, Order::Close));
            }
            if look.waiting > 0 && seen.stays() {
                return Some(Step::DeletePod { instance: seen.name.clone(), why: Why::Deposed });
            }
        }
        None
    }
}

/// The first that does something, or else the first. They take turns: what is tried again and again does not
/// keep the others from their turn.
fn next_turn(steps: impl IntoIterator<Item = Step>, last: Option<&Step>) -> Option<Step> {
    let (mut deeds, mut waits): (Vec<_>, Vec<_>) = steps.into_iter().partition(Step::is_deed);
    // What a person should look at is said first.
    waits.sort_by_key(|step| !matches!(step, Step::Wait(waiting) if waiting.is_stuck));
    if let Some(taken) = deeds.iter().position(|step| Some(step) == last) {
        deeds.rotate_left(taken + 1);
    }
    deeds.into_iter().chain(waits).next()
}

/// Names for a message.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}
