//! The next step of a rotation of our accounts' passwords, decided from what was found. Pure.
//!
//! # Why nobody is locked out
//!
//! 1. One statement changes all accounts, so who knows the manager's newest password knows all newest ones.
//!    Until the former ones are discarded, servers accept both.
//! 2. The Secret has the next passwords before the primary is told (`Next`), so no manager finds a server
//!    that knows something that the Secret does not have.
//! 3. They come into use (`Changed`) when every instance has proved that it knows them.
//! 4. The former ones are discarded when every instance proves itself with those in use, every replica
//!    receives with them, and the files in all Pods are certainly those of the Secret: [`GRACE`] later.
//! 5. The primary is told while enough replicas acknowledge, by who has the lock of the accounts and has seen
//!    since then that the Secret is still the same. To tell it twice would discard the former passwords too
//!    early, so it is asked before, under that lock, whether it knows the newest.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::calls::Knowledge;
use crate::keyring::{Keyring, Phase};
use crate::step::{RETRY, Waiting};

/// How long the former passwords still work: kubelets bring files up to date within two minutes, and a
/// backup's Job logs in within the first minutes.
pub(crate) const GRACE: SignedDuration = SignedDuration::from_mins(10);
/// How long a phase takes before a person should look.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);
/// The longest pause between looks at a rotation, so that none lasts much longer than it has to.
const PAUSE: Duration = Duration::from_secs(30);

/// The reason of the condition.
pub(crate) const REASON: &str = "RotatingPasswords";

/// An instance, as far as a rotation is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Learner {
    pub(crate) name: String,
    /// Nothing if it does not answer.
    pub(crate) knows: Option<Knowledge>,
    /// Whether it receives with the password with which it should; nothing if it follows nobody, or was not asked.
    pub(crate) receives_with_it: Option<bool>,
}

/// What a decision rests on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) keyring: &'a Keyring,
    /// How often passwords are rotated.
    pub(crate) every: Option<SignedDuration>,
    /// The value of the cluster's annotation.
    pub(crate) request: Option<&'a str>,
    /// The open primary.
    pub(crate) primary: Option<&'a str>,
    /// Whether enough replicas acknowledge its commits.
    pub(crate) is_acknowledged: bool,
    /// All instances.
    pub(crate) learners: &'a [Learner],
    pub(crate) now: Timestamp,
}

/// What is done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Nothing.
    Rest,
    /// Write next passwords into the Secret.
    Begin,
    /// Write that servers do not know the passwords in use.
    Doubt,
    /// Tell the primary the newest passwords.
    Teach,
    /// Write that the newest passwords are in use.
    Change,
    /// Tell this replica the password with which it receives.
    Refollow(String),
    /// Tell the primary to refuse the former passwords, and write that all is done.
    Discard,
    /// Something comes first.
    Wait(Waiting),
}

impl Situation<'_> {
    /// What is done next.
    pub(crate) fn next(&self) -> Move {
        let keyring = self.keyring;
        if keyring.phase == Phase::Settled {
            return self.settled();
        }
        let Some(primary) = self.primary else {
            return self.waits("no primary takes writes");
        };
        let is_taught = self.knows(primary) == Some(Knowledge::Newest);
        let mut others = self.learners.iter().filter(|one| one.name != primary);
        // It needs no acknowledgement, and there may be none before: a source may refuse what its replicas
        // have after its Secret was lost twice. Meanwhile they receive as root.
        let is_let_in =
            keyring.phase == Phase::Lost || (keyring.phase == Phase::Changed && is_taught);
        if is_let_in && let Some(one) = others.find(|one| one.receives_with_it == Some(false)) {
            return Move::Refollow(one.name.clone());
        }
        if !self.is_acknowledged {
            return self.waits(&format!("too few replicas acknowledge what {primary} commits"));
        }
        if !is_taught {
            return Move::Teach;
        }
        let slow = self.learners.iter().find(|one| one.knows != Some(Knowledge::Newest));
        if let Some(slow) = slow {
            return self.waits(&match slow.knows {
                Some(_) => format!("{} has not learned the new ones from the primary", slow.name),
                None => format!("{} does not answer", slow.name),
            });
        }
        if keyring.phase != Phase::Changed {
            return Move::Change;
        }
        if self.now < keyring.since + GRACE {
            return self.waits("Pods get the new ones as files; the former ones still work");
        }
        Move::Discard
    }

    fn settled(&self) -> Move {
        let Some(primary) = self.primary.filter(|_| self.is_acknowledged) else {
            return Move::Rest;
        };
        if self.knows(primary) == Some(Knowledge::None) {
            return Move::Doubt;
        }
        let is_asked = self.request.is_some() && self.request != self.keyring.request.as_deref();
        let is_due = self.every.is_some_and(|every| self.now >= self.due(every));
        if !is_asked && !is_due {
            return Move::Rest;
        }
        match self.learners.iter().find(|one| one.knows.is_none()) {
            Some(silent) => {
                let why = format!("{} does not answer", silent.name);
                // It is said as long as it is so; a person hears of the instance by other means.
                Move::Wait(waiting(false, why, "a rotation is due and has not begun"))
            }
            None => Move::Begin,
        }
    }

    /// When the next rotation is due.
    fn due(&self, every: SignedDuration) -> Timestamp {
        self.keyring.rotated.checked_add(every).unwrap_or(Timestamp::MAX)
    }

    fn knows(&self, name: &str) -> Option<Knowledge> {
        self.learners.iter().find(|one| one.name == name)?.knows
    }

    fn waits(&self, why: &str) -> Move {
        let allowed = match self.keyring.phase {
            Phase::Changed => GRACE + PATIENCE,
            _ => PATIENCE,
        };
        let is_stuck = self.now > self.keyring.since + allowed;
        let begun = format!("a rotation is under way since {:.0}", self.keyring.since);
        Move::Wait(waiting(is_stuck, why.to_owned(), &begun))
    }
}

fn waiting(is_stuck: bool, why: String, begun: &str) -> Waiting {
    let fix = match is_stuck {
        true => ": see why; nobody is locked out meanwhile, as the former passwords still work",
        false => "",
    };
    let message = format!("passwords of the controller's accounts: {begun}; {why}{fix}");
    Waiting { reason: REASON, message, is_stuck, pause: PAUSE }
}

/// A step of a rotation failed, and is tried again.
pub(crate) fn failed(keyring: &Keyring, now: Timestamp, error: &str) -> Waiting {
    let is_stuck = keyring.phase != Phase::Settled && now > keyring.since + GRACE + PATIENCE;
    let message = format!("passwords of the controller's accounts: {error}");
    let message = message.chars().take(500).collect();
    Waiting { reason: REASON, message, is_stuck, pause: RETRY }
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
