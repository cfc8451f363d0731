//! Whether people want this process drained for maintenance, which they write into its Member.
//!
//! A Member belongs to one incarnation, but the request is for the process: the next incarnation
//! inherits it. People may withdraw it in the Member of an incarnation that has ended, before or after
//! the process learns about that. So the process reads the Members of its former incarnations for as
//! long as they exist.

use std::collections::BTreeMap;

use model::MemberId;

use crate::record::MemberRecord;

/// The request to drain this process.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Cordon {
    is_cordoned: bool,
    /// The Members of former incarnations, each with what was last read there.
    former: BTreeMap<MemberId, bool>,
    /// Whether a request from a former Member is not in the own Member yet, which says the opposite
    /// until then.
    is_unwritten: bool,
}

impl Cordon {
    pub(crate) fn is_cordoned(&self) -> bool {
        self.is_cordoned
    }

    /// Reads the Members of the process; `own` is the present one.
    pub(crate) fn follow(&mut self, own: &MemberId, members: &BTreeMap<MemberId, MemberRecord>) {
        let read = |id: &MemberId| members.get(id).map(|member| member.spec.drain);
        self.former.retain(|id, known| match read(id) {
            Some(drain) => {
                if std::mem::replace(known, drain) != drain {
                    self.is_unwritten = self.is_cordoned != drain;
                    self.is_cordoned = drain;
                }
                true
            }
            None => false,
        });
        match read(own) {
            Some(drain) if drain == self.is_cordoned => self.is_unwritten = false,
            Some(drain) if !self.is_unwritten => self.is_cordoned = drain,
            _ => {}
        }
    }

    /// The incarnation ended. Its Member, if it had one, is a former one now.
    pub(crate) fn rejoin(&mut self, was: &MemberId, members: &BTreeMap<MemberId, MemberRecord>) {
        if let Some(member) = members.get(was) {
            self.former.insert(was.clone(), member.spec.drain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{MemberSpec, ObjectVersion};

    /// A process and its Members.
    #[derive(Default)]
    struct Process {
        cordon: Cordon,
        members: BTreeMap<MemberId, MemberRecord>,
        incarnation: u32,
    }

    impl Process {
        fn own(&self) -> MemberId {
            format!("replica-0-{}", self.incarnation).parse().unwrap()
        }

        /// Somebody writes the Member of an incarnation, and the process reads it.
        fn set(&mut self, incarnation: u32, drain: bool) -> bool {
            let id: MemberId = format!("replica-0-{incarnation}").parse().unwrap();
            let spec = MemberSpec { drain, ..MemberSpec::new("replica-0", Vec::new()) };
            let record = MemberRecord { id: id.clone(), version: ObjectVersion::default(), spec };
            self.members.insert(id, record);
            self.follow()
        }

        fn follow(&mut self) -> bool {
            self.cordon.follow(&self.own(), &self.members);
            self.cordon.is_cordoned()
        }

        /// Ends the incarnation; the next has no Member yet.
        fn rejoin(&mut self) -> bool {
            self.cordon.rejoin(&self.own(), &self.members);
            self.incarnation += 1;
            self.follow()
        }

        /// Writes the request into the own Member, and reads it.
        fn write(&mut self) -> bool {
            self.set(self.incarnation, self.cordon.is_cordoned())
        }
    }

    #[test]
    fn the_next_incarnation_inherits_it() {
        let mut process = Process::default();
        assert!(!process.write());
        assert!(process.set(0, true));
        assert!(process.rejoin());
        assert!(process.write());
        process.members.remove(&"replica-0-0".parse().unwrap());
        assert!(process.follow(), "the old one is collected");
        assert!(!process.set(1, false));
    }

    #[test]
    fn it_is_withdrawn_in_the_member_of_an_ended_incarnation_before_the_next_has_one() {
        let mut process = Process::default();
        process.set(0, true);
        assert!(process.rejoin());
        assert!(!process.set(0, false));
        assert!(!process.write());
    }

    #[test]
    fn or_after_it_has_one() {
        let mut process = Process::default();
        process.set(0, true);
        process.rejoin();
        process.write();
        assert!(!process.set(0, false));
        assert!(!process.follow(), "although the own one says so until it is rewritten");
        assert!(!process.write());
        assert!(process.set(1, true), "then the own one counts again");
    }

    #[test]
    fn or_two_incarnations_later() {
        let mut process = Process::default();
        process.set(0, true);
        process.rejoin();
        process.rejoin();
        process.write();
        process.rejoin();
        assert!(!process.set(0, false));
        assert!(!process.rejoin());
        assert!(!process.write(), "what the second Member still says is old");
    }

    #[test]
    fn it_may_come_from_the_member_of_an_ended_incarnation() {
        let mut process = Process::default();
        process.write();
        process.rejoin();
        process.write();
        assert!(process.set(0, true));
        assert!(process.write());
    }
}
