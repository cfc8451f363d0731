//! What subscribers receive: a new one what the store holds, and all of them each change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::Moment;
use tracing::Span;

use super::Task;
use crate::mailbox::Sender;
use crate::{Change, Event, Target};
use cache::Entry;
use queue::Priority;

impl Task {
    /// Sends a new subscriber what the store holds already.
    pub(super) async fn admit(&mut self, subscriber: Sender) {
        let received = self.clock.now();
        let event =
            |change| Event { change, priority: Priority::Initial, received, span: Span::none() };
        for new in self.state.store.list(None, &model::Selector::all()) {
            let change = Change::Upsert { old: None, new };
            if !subscriber.send(event(change)).await {
                return;
            }
        }
        let synced = (self.told > 0).then_some(Change::Synced(self.told));
        let absent = self.told_absent.map(|(absence, latest)| Change::Absent(absence, latest));
        for change in synced.into_iter().chain(absent) {
            if !subscriber.send(event(change)).await {
                return;
            }
        }
        self.subscribers.push(subscriber);
        self.state.subscribers.store(self.subscribers.len(), Ordering::Relaxed);
    }

    /// Reports which scopes are met, if more than before.
    pub(super) async fn synced(&mut self, received: Moment) {
        let Some(met) = self.held.met().filter(|met| *met > self.told) else { return };
        self.told = met;
        let (priority, span) = (Priority::Initial, Span::none());
        self.send(Event { change: Change::Synced(met), priority, received, span }).await;
    }

    /// Reports that the kind does not exist, unless that was reported for these scopes already.
    pub(super) async fn absent(&mut self, received: Moment) {
        let Some(absence) = self.state.absence() else { return };
        let absent = (absence, self.held.latest());
        if self.told_absent == Some(absent) {
            return;
        }
        self.told_absent = Some(absent);
        let (priority, span) = (Priority::Initial, Span::none());
        let change = Change::Absent(absent.0, absent.1);
        self.send(Event { change, priority, received, span }).await;
    }

    /// Reports a change of an object.
    pub(super) async fn tell(&mut self, change: Change, received: Moment) {
        let is_settled = |entry: &Arc<Entry>| self.held.is_settled(&entry.header);
        let live = match &change {
            // If the owner changed, the range of either owner may be settled.
            Change::Upsert { old, new } => is_settled(new) || old.as_ref().is_some_and(is_settled),
            Change::Delete { old } => is_settled(old),
            Change::Synced(_) | Change::Absent(..) => false,
        };
        let priority = if live { Priority::Change } else { Priority::Initial };
        let span = if live { self.event_span(&change) } else { Span::none() };
        self.send(Event { change, priority, received, span }).await;
    }

    /// Sends an event to all. Each stays a subscriber while it is told, so that a panic ends no subscription.
    async fn send(&mut self, event: Event) {
        let mut at = 0;
        while let Some(subscriber) = self.subscribers.get(at) {
            if subscriber.send(event.clone()).await {
                at += 1;
            } else {
                self.subscribers.remove(at);
                self.state.subscribers.store(self.subscribers.len(), Ordering::Relaxed);
            }
        }
    }

    fn event_span(&self, change: &Change) -> Span {
        let (entry, what) = match change {
            Change::Upsert { old: None, new } => (new, "added"),
            Change::Upsert { new, .. } => (new, "modified"),
            Change::Delete { old } => (old, "deleted"),
            Change::Synced(_) | Change::Absent(..) => return Span::none(),
        };
        let Target { cluster, kind, .. } = &self.state.target;
        let key = &entry.header.key;
        tracing::info_span!(
            parent: None,
            "watch.event",
            %cluster,
            %kind,
            namespace = key.namespace.as_deref(),
            name = &*key.name,
            resource_version = %entry.header.resource_version,
            change = what,
            otel.kind = "consumer",
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cache::{DecodedCache, StoreOptions, StoreWriter};
    use extent::Ledger;
    use k8s_openapi::api::core::v1::ConfigMap;
    use listwatch::{Form, Intake, Scope};
    use metrics::Metrics;
    use model::testing::PausedClock;
    use model::{Budget, Clock, Cluster, Kind};
    use tokio::sync::mpsc;

    use super::*;
    use crate::InformerState;
    use crate::mailbox::{SUBSCRIBER_BUFFER, mailbox};
    use crate::scopes::Scopes;
    use crate::testing::server;

    /// A task that was never run.
    fn task() -> (Task, Sender, crate::Subscription) {
        let (client, _server) = server();
        let Cluster { name: cluster, wire, .. } = Cluster::new("east".parse().unwrap(), client, 1);
        let account = Ledger::new(usize::MAX).open(&cluster, Budget::default());
        let metrics = Metrics::new(&prometheus::Registry::new(), Arc::default()).unwrap();
        let metrics = metrics.informer(&cluster);
        let (kind, scope, form) = (Kind::of::<ConfigMap>(), Scope::default(), Form::Whole);
        let target = Target { cluster, engagement: 1, kind, scope, form };
        let writer = StoreWriter::new(StoreOptions::default(), Arc::new(DecodedCache::new(0)));
        let clock = PausedClock::new();
        let state =
            Arc::new(InformerState::new(target, writer.store(), clock.now(), Intake::default()));
        let (sender, subscription) = mailbox(&state, account.part());
        let task = Task::new(
            state,
            (writer, account.part()),
            Scopes::default().follow(),
            wire,
            mpsc::channel(1).1,
            Intake::default(),
            (clock, metrics, fastrand::Rng::with_seed(1)),
        );
        (task, sender, subscription)
    }

    /// What is told to one may end in a panic: it is dropped where it is, as here.
    #[tokio::test(start_paused = true)]
    async fn nobody_loses_a_subscription_while_it_is_told() {
        let (mut task, sender, _subscription) = task();
        task.subscribers.push(sender);
        let event = || Event {
            change: Change::Synced(1),
            priority: Priority::Initial,
            received: Moment::default(),
            span: Span::none(),
        };
        for _ in 0..SUBSCRIBER_BUFFER {
            task.send(event()).await;
        }
        let waits = tokio::time::timeout(Duration::from_millis(1), task.send(event())).await;
        assert!(waits.is_err());
        assert_eq!(task.subscribers.len(), 1);
    }
}
