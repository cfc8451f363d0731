//! Turns at work that waits for others: lookups of names, TLS handshakes, credentials, probes. Each provider has its own.
//!
//! What succeeded the last time, what comes for the first time, and all others have places apart: a thousand servers that
//! hang delay none that answers, and none that comes after them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Whoever answers within this time has a place among those that do: a thousand that take longer delay none of them.
pub(crate) const PROMPT: Duration = Duration::from_secs(1);

/// Among whom work waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// It succeeded the last time.
    Proven,
    /// It has not been tried before.
    First,
    /// It failed the last time, or takes long.
    Late,
}

/// How many may work at once.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    places: [usize; 3],
    lanes: [Arc<Semaphore>; 3],
    /// Whether nothing that comes is new, however new it looks.
    is_again: bool,
}

impl Turns {
    /// So many at once of each lane: proven, first, late.
    pub(crate) fn new(places: [usize; 3]) -> Self {
        let lanes = places.map(|places| Arc::new(Semaphore::new(places)));
        Self { places, lanes, is_again: false }
    }

    /// As many places, for another provider.
    pub(crate) fn apart(&self) -> Self {
        Self::new(self.places)
    }

    /// The same places for what has been tried before.
    pub(crate) fn again(&self) -> Self {
        Self { is_again: true, ..self.clone() }
    }

    /// The lane of what looks like it.
    pub(crate) fn lane(&self, lane: Lane) -> Lane {
        if self.is_again && lane == Lane::First { Lane::Late } else { lane }
    }

    /// Waits for a turn, which ends when the permit is dropped.
    pub(crate) async fn turn(&self, lane: Lane) -> OwnedSemaphorePermit {
        let places = Arc::clone(&self.lanes[self.lane(lane) as usize]);
        places.acquire_owned().await.expect("nobody closes it")
    }

    /// Does work when it is its turn. Its place is kept for `prompt`: whoever takes longer goes on among the late ones. If
    /// there is no place, it begins again once there is one: what has come of an answer takes memory.
    pub(crate) async fn run<T, W: Future<Output = T>>(
        &self,
        lane: Lane,
        prompt: Duration,
        begin: impl Fn() -> W,
    ) -> T {
        let mut work = pin!(begin());
        let _place = match self.promptly(lane, prompt, work.as_mut()).await {
            Ok(done) => return done,
            Err(Some(place)) => place,
            Err(None) => {
                work.set(begin());
                self.turn(Lane::Late).await
            }
        };
        work.await
    }

    /// Does work for as long as its place is kept. If it has not ended then, returns a place among the late ones, unless
    /// others wait for one.
    pub(crate) async fn promptly<T>(
        &self,
        lane: Lane,
        prompt: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Option<OwnedSemaphorePermit>> {
        if self.lane(lane) != Lane::Late {
            let _place = self.turn(lane).await;
            if let Ok(done) = tokio::time::timeout(prompt, work).await {
                return Ok(done);
            }
        }
        Err(Arc::clone(&self.lanes[Lane::Late as usize]).try_acquire_owned().ok())
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt;
    use futures::future::join_all;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_hangs_takes_the_place_of_nobody_who_answered_nor_of_another_provider() {
        let turns = Turns::new([1, 1, 1]);
        let another = turns.apart();
        for lane in [Lane::Late, Lane::First, Lane::Proven] {
            let _hangs = turns.turn(lane).await;
            assert!(turns.turn(lane).now_or_never().is_none(), "it waits for its turn");
            assert!(another.turn(lane).now_or_never().is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_answers_late_for_once_keeps_no_place_of_what_is_prompt() {
        let turns = Turns::new([1, 0, 1]);
        let proven = |takes: Duration| turns.run(Lane::Proven, PROMPT, move || sleep(takes));
        let other = timeout(PROMPT * 2, proven(Duration::ZERO));
        let ((), other, ()) = futures::join!(proven(PROMPT * 8), other, proven(PROMPT * 3));
        assert!(other.is_ok(), "the prompt one is asked meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_place_among_the_late_ones_keeps_nothing_meanwhile() {
        let (turns, kept) = (Turns::new([1; 3]), Arc::new(()));
        let _late = turns.turn(Lane::Late).await;
        let begin = || async {
            let _kept = Arc::clone(&kept);
            pending::<()>().await;
        };
        let mut waits = pin!(turns.run(Lane::Proven, PROMPT, begin));
        assert!(timeout(PROMPT / 2, waits.as_mut()).await.is_err());
        assert_eq!(Arc::strong_count(&kept), 2, "it is under way");
        assert!(timeout(PROMPT, waits.as_mut()).await.is_err());
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_that_hang_delay_none_that_comes_after_them() {
        let turns = Turns::new([0, 16, 16]);
        let hang = join_all((0..1000).map(|_| turns.run(Lane::First, PROMPT, pending::<()>)));
        let late = join_all((0..1000).map(|_| turns.run(Lane::Late, PROMPT, pending::<()>)));
        let new = async {
            sleep(PROMPT * 64).await;
            timeout(PROMPT, turns.run(Lane::First, PROMPT, || ready(()))).await
        };
        tokio::select! {
            new = new => assert!(new.is_ok()),
            _ = futures::future::join(hang, late) => unreachable!("they have no end"),
        }
        let _late = join_all((0..16).map(|_| turns.turn(Lane::Late))).await;
        assert!(turns.again().turn(Lane::First).now_or_never().is_none());
    }
}
