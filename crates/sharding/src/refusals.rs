//! For how long home has refused to list what a member may do without: a kind that it does not have, or that the
//! member has no right to read. Pure.
//!
//! One such answer proves little: an API server that is just starting answers 403 before it has read the rules, and
//! 404 before it has read the definitions. So it is believed only after a while, and asked again soon at first.

use std::time::Duration;

use model::Moment;

/// For how long home must refuse before that is believed.
const BELIEVED_AFTER: Duration = Duration::from_secs(15);
/// For how long home is asked again soon.
const SOON_FOR: Duration = Duration::from_secs(60);
/// The pause meanwhile.
const SOON: Duration = Duration::from_secs(5);

/// The refusals in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    /// Since when.
    since: Option<Moment>,
}

impl Refusals {
    /// Home refuses. Returns whether that is believed by now.
    pub(crate) fn refused(&mut self, now: Moment) -> bool {
        now.since(*self.since.get_or_insert(now)) >= BELIEVED_AFTER
    }

    /// Home says something else.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// The pause before home is asked again; `long` once it has refused for a while.
    pub(crate) fn pause(&self, now: Moment, long: Duration) -> Duration {
        let is_long = self.since.is_some_and(|since| now.since(since) >= SOON_FOR);
        if is_long { long } else { SOON }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_believed_after_a_while_and_repeated_seldom_after_a_longer_one() {
        let at = |s| Moment::from_origin(Duration::from_secs(s));
        let long = Duration::from_secs(300);
        let mut refusals = Refusals::default();
        for (second, believed, pause) in
            [(10, false, SOON), (24, false, SOON), (25, true, SOON), (70, true, long)]
        {
            assert_eq!(refusals.refused(at(second)), believed, "{second}");
            assert_eq!(refusals.pause(at(second), long), pause, "{second}");
        }
        refusals.end();
        assert!(!refusals.refused(at(80)));
    }
}
