//! Trains the dictionary of one informer's store on another thread, while the list or watch goes on.
//!
//! A training that panics would panic again on the same objects. So it is given up like one that
//! found nothing better: the next is due when the objects have changed enough. That is for the cluster to say, so a
//! store is trained now and then only, however its objects change.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{JoinError, JoinHandle};

use cache::{StoreWriter, Trained};
use model::{Bucket, Moment, Rate};

/// Dictionaries trained at once in this process. A training takes a core for a tenth of a second.
static TRAININGS: Semaphore = Semaphore::const_new(1);

/// How often a store is trained, and how often at once after a rest: a first list grows quickly.
const RATE: Rate = Rate { interval: Duration::from_secs(60), burst: 4 };

/// A training under way, if there is one.
#[derive(Debug)]
pub(crate) struct Trainer {
    training: Option<JoinHandle<Trained>>,
    bucket: Bucket,
}

impl Default for Trainer {
    fn default() -> Self {
        Self { training: None, bucket: Bucket::new(RATE) }
    }
}

/// Leave to train, once nobody else does.
pub(crate) async fn turn() -> SemaphorePermit<'static> {
    TRAININGS.acquire().await.expect("the semaphore is never closed")
}

impl Trainer {
    pub(crate) fn may_train(&self, writer: &StoreWriter, now: Moment) -> bool {
        let is_rested = self.bucket.ready_at(now) <= now;
        self.training.is_none() && is_rested && writer.is_training_due()
    }

    /// Trains a dictionary on another thread, while the list or watch goes on.
    pub(crate) fn train(
        &mut self,
        turn: SemaphorePermit<'static>,
        writer: &StoreWriter,
        now: Moment,
    ) {
        if let Some(training) = writer.training() {
            self.bucket.take(1, now);
            self.run(turn, move || training.run());
        }
    }

    fn run(
        &mut self,
        turn: SemaphorePermit<'static>,
        training: impl FnOnce() -> Trained + Send + 'static,
    ) {
        // A panic gives the turn back, too.
        self.training = Some(tokio::task::spawn_blocking(move || {
            let _turn = turn;
            training()
        }));
    }

    /// The training under way, once it is done; never, if there is none.
    pub(crate) async fn done(&mut self) -> Result<Trained, JoinError> {
        match &mut self.training {
            Some(training) => training.await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn adopt(&mut self, trained: Result<Trained, JoinError>, writer: &mut StoreWriter) {
        self.training = None;
        match trained {
            Ok(trained) => writer.adopt(trained),
            Err(error) => {
                // Else it is the runtime that shuts down.
                if error.is_panic() {
                    let error = model::error::chain(&error);
                    tracing::warn!(error, "a dictionary could not be trained, going on without");
                }
                writer.give_up_training();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fill(writer: &mut StoreWriter, count: usize) {
        for index in 0..count {
            let metadata = json!({"name": format!("map-{index}"), "uid": format!("u-{index}"),
                "resourceVersion": "1"});
            let object = json!({"metadata": metadata, "data": {"text": "some text".repeat(1000)}});
            let entry = writer.parse(&object.to_string()).unwrap();
            writer.upsert(&entry);
        }
        writer.finish_replace();
    }

    #[tokio::test]
    async fn a_training_that_panics_is_given_up_until_the_objects_are_others() {
        let (mut writer, mut trainer) = (StoreWriter::default(), Trainer::default());
        let now = Moment::default();
        fill(&mut writer, 100);
        assert!(trainer.may_train(&writer, now));
        trainer.run(turn().await, || panic!("the test wants it"));
        let panicked = trainer.done().await;
        trainer.adopt(panicked, &mut writer);
        assert!(!trainer.may_train(&writer, now), "not at once");
        fill(&mut writer, 110);
        assert!(!trainer.may_train(&writer, now), "nor for a few more");
        let large = "another text".repeat(10_000);
        for index in 0..100 {
            let metadata = json!({"name": format!("map-{index}"), "uid": format!("u-{index}"),
                "resourceVersion": "2"});
            let object = json!({"metadata": metadata, "data": {"text": large}});
            let entry = writer.parse(&object.to_string()).unwrap();
            writer.upsert(&entry);
        }
        assert!(trainer.may_train(&writer, now));
        trainer.train(turn().await, &writer, now);
        let trained = trainer.done().await;
        trainer.adopt(trained, &mut writer);
        assert!(writer.is_recoding(), "this one served");
    }

    #[tokio::test]
    async fn a_store_that_is_always_due_is_trained_now_and_then() {
        let (mut writer, mut trainer) = (StoreWriter::default(), Trainer::default());
        let now = Moment::default();
        fill(&mut writer, 100);
        for _ in 0..RATE.burst {
            assert!(trainer.may_train(&writer, now));
            trainer.train(turn().await, &writer, now);
            assert!(trainer.done().await.is_ok());
            // It is due still: nothing is adopted.
            trainer.training = None;
        }
        assert!(!trainer.may_train(&writer, now));
        assert!(trainer.may_train(&writer, now + RATE.interval));
    }
}
