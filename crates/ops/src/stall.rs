//! That nobody coordinates while a command waits for shards to leave their owners: it would wait without end. Pure.

use std::time::Duration;

use fleet::Problem;
use model::Moment;

/// How long that may last before it is told. When a coordinator goes, another takes over within about one duration of a
/// Lease, which is 8 s by default.
const PATIENCE: Duration = Duration::from_secs(20);

/// That nobody coordinates.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    since: Option<Moment>,
    is_told: bool,
}

impl Stall {
    /// What to tell now: the problem when it has lasted for a while, and once until it is over. `nobody` is what the
    /// fleet shows now.
    pub(crate) fn news(&mut self, nobody: Option<Problem>, now: Moment) -> Option<Problem> {
        let Some(problem) = nobody else {
            *self = Self::default();
            return None;
        };
        let since = *self.since.get_or_insert(now);
        let is_long = since.until(now) >= PATIENCE;
        let is_news = is_long && !std::mem::replace(&mut self.is_told, true);
        is_news.then_some(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nobody_coordinates_is_told_once_when_it_has_lasted() {
        let problem = Problem { what: "nobody coordinates".into(), fix: "start one".into() };
        let mut stall = Stall::default();
        for (second, lasts, is_told) in [
            (0, false, false),
            (5, true, false),
            (24, true, false),
            (25, true, true),
            (60, true, false),
            // It is over, and begins anew.
            (61, false, false),
            (62, true, false),
            (81, true, false),
            (82, true, true),
        ] {
            let now = Moment::from_origin(Duration::from_secs(second));
            let told = stall.news(lasts.then(|| problem.clone()), now);
            assert_eq!(told.is_some(), is_told, "{second}");
        }
    }
}
