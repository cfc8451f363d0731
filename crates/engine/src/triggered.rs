//! An engine's end of a trigger: receives keys and queues them. See [`crate::trigger`].

use std::sync::Arc;

use model::ObjectKey;
use queue::{HashedKey, Priority};
use tokio::sync::mpsc;
use tracing::Span;

use crate::assigned::{Assigned, enqueue_all};
use crate::assignment::AssignmentQueue;
use crate::trigger::{Ask, Trigger};

/// One engine's end of a trigger, for one controller.
pub(crate) struct Triggered {
    asks: mpsc::Receiver<Ask>,
    assigned: Arc<Assigned>,
    queue: Arc<AssignmentQueue>,
}

impl Triggered {
    /// An end for a controller.
    pub(crate) fn of(
        trigger: &Trigger,
        assigned: &Arc<Assigned>,
        queue: &Arc<AssignmentQueue>,
    ) -> Self {
        let (assigned, queue) = (Arc::clone(assigned), Arc::clone(queue));
        Self { asks: trigger.attach(), assigned, queue }
    }

    /// Queues what is asked for, until nobody can ask any more.
    pub(crate) async fn run(mut self) {
        while let Some(ask) = self.asks.recv().await {
            match ask {
                Ask::One(key, span) => self.one(key, &span).await,
                Ask::All => self.all().await,
            }
        }
    }

    async fn one(&self, key: ObjectKey, span: &Span) {
        let Some(entry) = self.assigned.primary(&key) else { return };
        let key: HashedKey = (key, Some(entry.header.hash()));
        self.queue.add(&[key], Priority::Change, span).await;
    }

    async fn all(&self) {
        let all = self.assigned.all();
        for of_context in all.chunk_by(|a, b| Arc::ptr_eq(&a.context, &b.context)) {
            enqueue_all(Arc::clone(&self.queue), of_context.to_vec(), Priority::Resync).await;
        }
    }
}
