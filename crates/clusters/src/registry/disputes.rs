//! Names by which the fleet knows another cluster than the one that is engaged here. A replica that starts has
//! nothing engaged, so of several sources of a name it begins with the first. If that is not the fleet's cluster
//! of that name, it tries the others, and stays with one that is, or of which it does not know that it is not.

use std::future::pending;
use std::sync::Arc;

use model::DisputedNames;
use tokio::sync::watch;

use super::Task;

/// Waits until other names are disputed.
pub(super) async fn changed(disputed: &mut watch::Receiver<Arc<DisputedNames>>) {
    if disputed.changed().await.is_err() {
        pending().await
    }
}

impl Task {
    /// Takes in which names are disputed. Where that is news, another source may have more right to the name.
    pub(super) fn heed_disputes(&mut self) {
        let disputed = Arc::clone(&self.disputed.borrow_and_update());
        let entries = self.entries.iter_mut();
        let news = entries.filter_map(|(name, entry)| entry.heed(disputed.get(name)).then_some(()));
        if news.count() > 0 {
            self.merge();
        }
    }
}
