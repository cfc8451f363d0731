//! Turns at TLS handshakes.
//!
//! A handshake costs both sides CPU, a thousandth of a second and more. At a start, and after a cut of the network, those
//! of ten thousand servers would share the CPU, so that each took longer than it may, and all would begin anew. So the
//! servers of a provider have [`MAX_HANDSHAKES`] together. Who waits for an answer over TCP costs nothing, and has none of
//! them.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tower::BoxError;

use crate::turns::{Lane, PROMPT, Turns};

/// The most handshakes with servers of a provider at once: with those whose last one succeeded soon, with new ones, and
/// with the others.
pub(crate) const MAX_HANDSHAKES: [usize; 3] = [64, 64, 32];
/// How much longer one may take that is not prompt.
const LATE_TIMEOUT: Duration = Duration::from_secs(4);
pub(crate) const NO_TLS: &str = "its TLS handshake takes longer than 5s";

/// The handshakes with one server.
#[derive(Debug)]
pub(crate) struct Handshakes {
    turns: Turns,
    /// By the last of them.
    lane: Mutex<Lane>,
}

impl Handshakes {
    /// None yet.
    pub(crate) fn new(turns: Turns) -> Self {
        let lane = Mutex::new(turns.lane(Lane::First));
        Self { turns, lane }
    }

    /// Does one when it is its turn. One that takes long waits for a place among the late ones, and goes on from there.
    pub(crate) async fn take<T, E: Into<BoxError>>(
        &self,
        handshake: impl Future<Output = Result<T, E>>,
    ) -> Result<T, BoxError> {
        let mut handshake = pin!(handshake);
        let lane = *self.lane();
        let (done, is_prompt) = match self.turns.promptly(lane, PROMPT, handshake.as_mut()).await {
            Ok(done) => (done, true),
            Err(place) => {
                // Also if its caller gives it up.
                *self.lane() = Lane::Late;
                let _place = match place {
                    Some(place) => place,
                    None => self.turns.turn(Lane::Late).await,
                };
                match timeout(PROMPT, handshake.as_mut()).await {
                    Ok(done) => (done, lane == Lane::Late),
                    Err(_) => (timeout(LATE_TIMEOUT, handshake).await.map_err(|_| NO_TLS)?, false),
                }
            }
        };
        if is_prompt {
            *self.lane() = if done.is_ok() { Lane::Proven } else { Lane::Late };
        }
        done.map_err(Into::into)
    }

    fn lane(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt;
    use futures::future::join_all;
    use tokio::sync::{mpsc, oneshot};
    use tokio::time::sleep;

    use super::*;

    /// A handshake works in parts of this length, and all take turns at one processor.
    const PART: Duration = Duration::from_millis(1);

    struct Processor(mpsc::UnboundedSender<oneshot::Sender<()>>);

    impl Processor {
        fn start() -> Self {
            let (sender, mut parts) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
            tokio::spawn(async move {
                while let Some(done) = parts.recv().await {
                    sleep(PART).await;
                    let _given_up = done.send(());
                }
            });
            Self(sender)
        }

        async fn handshake(&self, parts: usize) -> Result<(), BoxError> {
            for _ in 0..parts {
                let (done, is_done) = oneshot::channel();
                self.0.send(done)?;
                is_done.await?;
            }
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_ten_thousand_that_begin_at_once_each_is_made() {
        let processor = Processor::start();
        // Without turns, each would take 20 s.
        let turns = Turns::new(MAX_HANDSHAKES);
        let servers: Vec<_> = (0..10_000).map(|_| Handshakes::new(turns.clone())).collect();
        for expect in [Lane::First, Lane::Proven] {
            assert!(servers.iter().all(|server| *server.lane() == expect));
            let made = servers.iter().map(|server| server.take(processor.handshake(2)));
            let made = join_all(made).await;
            assert!(made.iter().all(Result::is_ok));
        }
    }

    /// A processor that is twenty times slower: with more than that, those that have a place last too long.
    #[tokio::test(start_paused = true)]
    async fn of_those_that_take_longer_than_they_should_each_is_made_too() {
        let processor = Processor::start();
        let turns = Turns::new(MAX_HANDSHAKES);
        let servers: Vec<_> = (0..300).map(|_| Handshakes::new(turns.clone())).collect();
        let slow = |server| Handshakes::take(server, processor.handshake(40));
        let made = join_all(servers.iter().map(slow)).await;
        let failed: Vec<_> = made.iter().filter(|made| made.is_err()).collect();
        assert!(failed.is_empty(), "{} failed", failed.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_that_hang_delay_none_that_answers_and_none_that_is_new() {
        let turns = Turns::new([1; 3]);
        let server = || Handshakes::new(turns.clone());
        let (known, hanging): (_, Vec<_>) = (server(), (0..1000).map(|_| server()).collect());
        let quick = || sleep(PART).map(Ok::<_, BoxError>);
        known.take(quick()).await.unwrap();
        // Each is given up by its caller, and begun again.
        let hang = join_all(hanging.iter().map(|server| async {
            loop {
                let handshake = server.take(pending::<Result<(), BoxError>>());
                let _given_up = timeout(PROMPT * 3, handshake).await;
            }
        }));
        let others = async {
            sleep(PROMPT * 1000).await;
            for server in [&known, &server()] {
                timeout(PROMPT, server.take(quick())).await.unwrap().unwrap();
            }
        };
        tokio::select! {
            () = others => {}
            _ = hang => unreachable!("they have no end"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_ends_in_time_and_is_late_until_it_is_prompt() {
        let server = Handshakes::new(Turns::new([1; 3]));
        let error = server.take(pending::<Result<(), BoxError>>()).await.unwrap_err();
        assert_eq!(error.to_string(), NO_TLS);
        for (takes, expect) in
            [(PROMPT * 2, Lane::Late), (PART, Lane::Proven), (PROMPT * 2, Lane::Late)]
        {
            server.take(sleep(takes).map(Ok::<_, BoxError>)).await.unwrap();
            assert_eq!(*server.lane(), expect);
        }
    }
}
