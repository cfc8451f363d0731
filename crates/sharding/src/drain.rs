//! Whether this process is to be drained for maintenance, which people write into its Member.
//!
//! A Member belongs to one incarnation, the wish to the process: the next incarnation inherits it.
//! Whoever takes it back may do so in the Member of an incarnation that has ended, before or after
//! the process learns of that, so the Members that it leaves behind are listened to for as long as
//! they exist.

use std::collections::BTreeMap;

use model::MemberId;

use crate::record::MemberRecord;

/// The wish for a drain.
#[derive(Clone, Debug, Default, Hash)]
pub struct DrainWish {
    is_drained: bool,
    /// The Members left behind, each with what was last read there.
    left: BTreeMap<MemberId, bool>,
    /// What was asked for in one of those is still to be written into the own Member, which says
    /// the opposite until then.
    is_untold: bool,
}

impl DrainWish {
    /// Whether the process is to be drained.
    pub fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Reads the Members of the process, of which `own` is the present one.
    pub fn heed(&mut self, own: &MemberId, members: &BTreeMap<MemberId, MemberRecord>) {
        let read = |id: &MemberId| members.get(id).map(|member| member.spec.drain);
        self.left.retain(|id, known| match read(id) {
            Some(drain) => {
                if std::mem::replace(known, drain) != drain {
                    self.is_untold = self.is_drained != drain;
                    self.is_drained = drain;
                }
                true
            }
            None => false,
        });
        match read(own) {
            Some(drain) if drain == self.is_drained => self.is_untold = false,
            Some(drain) if !self.is_untold => self.is_drained = drain,
            _ => {}
        }
    }

    /// The incarnation ended; its Member, if it had one, is left behind.
    pub fn leave_behind(&mut self, was: &MemberId, members: &BTreeMap<MemberId, MemberRecord>) {
        if let Some(member) = members.get(was) {
            self.left.insert(was.clone(), member.spec.drain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MemberSpec;
    use crate::record::Version;

    /// A process and its Members.
    #[derive(Default)]
    struct Process {
        wish: DrainWish,
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
            let record = MemberRecord { id: id.clone(), version: Version::default(), spec };
            self.members.insert(id, record);
            self.heed()
        }

        fn heed(&mut self) -> bool {
            self.wish.heed(&self.own(), &self.members);
            self.wish.is_drained()
        }

        /// Ends the incarnation; the next has no Member yet.
        fn rejoin(&mut self) -> bool {
            self.wish.leave_behind(&self.own(), &self.members);
            self.incarnation += 1;
            self.heed()
        }

        /// Writes the own Member as the wish is, and reads it.
        fn tell(&mut self) -> bool {
            self.set(self.incarnation, self.wish.is_drained())
        }
    }

    #[test]
    fn the_next_incarnation_inherits_it() {
        let mut process = Process::default();
        assert!(!process.tell());
        assert!(process.set(0, true));
        assert!(process.rejoin());
        assert!(process.tell());
        process.members.remove(&"replica-0-0".parse().unwrap());
        assert!(process.heed(), "the old one is collected");
        assert!(!process.set(1, false));
    }

    #[test]
    fn it_is_taken_back_in_the_member_of_an_ended_incarnation_before_the_next_has_one() {
        let mut process = Process::default();
        process.set(0, true);
        assert!(process.rejoin());
        assert!(!process.set(0, false));
        assert!(!process.tell());
    }

    #[test]
    fn or_after_it_has_one() {
        let mut process = Process::default();
        process.set(0, true);
        process.rejoin();
        process.tell();
        assert!(!process.set(0, false));
        assert!(!process.heed(), "though the own one says so until it is rewritten");
        assert!(!process.tell());
        assert!(process.set(1, true), "then the own one is listened to again");
    }

    #[test]
    fn or_two_incarnations_later() {
        let mut process = Process::default();
        process.set(0, true);
        process.rejoin();
        process.rejoin();
        process.tell();
        process.rejoin();
        assert!(!process.set(0, false));
        assert!(!process.rejoin());
        assert!(!process.tell(), "what the Member of the second still says is old");
    }

    #[test]
    fn it_is_asked_for_in_an_ended_incarnation() {
        let mut process = Process::default();
        process.tell();
        process.rejoin();
        process.tell();
        assert!(process.set(0, true));
        assert!(process.tell());
    }
}
