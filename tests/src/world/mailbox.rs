//! What many have sent and one has not yet taken.

use std::sync::{Arc, Mutex, PoisonError};

/// Bounded by what is sent in one slice of the world's time.
#[derive(Debug)]
pub struct Mailbox<T>(Arc<Mutex<Vec<T>>>);

impl<T> Mailbox<T> {
    /// Everything sent since the last call. The order in which tokio let its senders run is not the
    /// seed's: sort it by what is.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends one more.
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
