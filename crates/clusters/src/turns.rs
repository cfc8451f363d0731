//! Turns at work that waits for others: lookups of names, credentials, probes.
//!
//! What has succeeded the last time and what has not have places apart: a thousand servers that hang delay none that
//! answers.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many may work at once.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    most: usize,
    proven: Arc<Semaphore>,
    unproven: Arc<Semaphore>,
}

impl Turns {
    /// So many that succeeded the last time, and as many others.
    pub(crate) fn new(most: usize) -> Self {
        let places = || Arc::new(Semaphore::new(most));
        Self { most, proven: places(), unproven: places() }
    }

    /// The same places for those that succeeded, and others of their own for those that did not.
    pub(crate) fn apart(&self) -> Self {
        Self { unproven: Arc::new(Semaphore::new(self.most)), ..self.clone() }
    }

    /// Waits for a turn, which ends when the permit is dropped.
    pub(crate) async fn turn(&self, is_proven: bool) -> OwnedSemaphorePermit {
        let places = Arc::clone(if is_proven { &self.proven } else { &self.unproven });
        places.acquire_owned().await.expect("nobody closes it")
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn who_hangs_takes_the_place_of_nobody_who_answered_nor_of_another_provider() {
        let turns = Turns::new(1);
        let another = turns.apart();
        let _hangs = turns.turn(false).await;
        assert!(turns.turn(false).now_or_never().is_none(), "it waits for its turn");
        assert!(another.turn(false).now_or_never().is_some());
        let _works = turns.turn(true).await;
        assert!(another.turn(true).now_or_never().is_none(), "they share what answers");
    }
}
