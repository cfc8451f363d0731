//! A queue with many senders and one receiver.

use std::sync::{Arc, Mutex, PoisonError};

/// A queue of items. It is bounded by what is sent in one slice of the world's time.
#[derive(Debug)]
pub struct Mailbox<T>(Arc<Mutex<Vec<T>>>);

impl<T> Mailbox<T> {
    /// Everything that was sent since the last call. Sort it: tokio decides the order, not the
    /// seed.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends an item.
    pub fn add(&self, sent: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
    }
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}
