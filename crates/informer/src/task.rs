//! The informer's task: what each answer of the server changes, and who is told.

mod objects;
mod tell;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use listwatch::wire::{self, Line};
use listwatch::{Arrival, Connection, End, Intake, Machine, Progress, Request, Signal};
use model::{Clock, Moment, Wire, panic_text, uid_hash};
use tokio::sync::mpsc;

use crate::mailbox::Sender;
use crate::scopes::ScopeWatch;
use crate::trainer::{self, Trainer};
use crate::{Absence, Change, InformerState, LogLines, Target};
use cache::{Entry, PartialMetadata, ResourceVersion, StoreWriter};
use extent::{Census, Held, Overrun, Part, ShardedList};
use metrics::InformerMetrics;

/// Entries packed again before the informer looks up: about a millisecond.
const RECODED_AT_ONCE: usize = 32;
/// Entries looked at, to be dropped if nobody scopes them, before the informer looks up.
const SWEPT_AT_ONCE: usize = 256;
/// Entries taken out that a list did not mention, before other tasks have a turn.
const MISSING_AT_ONCE: usize = 256;

/// How often a change between failing and working is told to a log, at most.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// A watch that ends so soon, with nothing in it, is as good as one that was refused.
const BRIEF: Duration = Duration::from_secs(1);

/// JSON that is taken in without letting other tasks of the thread have a turn, in bytes: some 200 microseconds of work.
const TURN_BYTES: usize = 32 << 10;
/// What an object counts for besides.
const OBJECT_BYTES: usize = 256;

/// Why a list of pages is given up that brings nothing new.
const ENDLESS: &str = "the server's list does not end: it repeats a continue token, or sends page after page \
                       without objects";
/// Why a streaming list is given up.
const REPETITIVE: &str =
    "the server's list does not end: it has many times as many lines as objects";
/// Why a watch is a failure that the server ends by itself.
const FUTILE: &str = "the server ends its watch as soon as it begins, and brings nothing";
/// Why a line or page is refused whose protocol is wrong.
const UNUSABLE: &str = "the server names no resourceVersion, or one of more than 253 bytes, or a continue token of \
                        more than 8 KiB";

/// How a request ended, with a text for people where it failed.
type Ended = (End, Option<String>);

/// The state of one informer, owned by its task.
pub(crate) struct Task {
    state: Arc<InformerState>,
    writer: StoreWriter,
    /// What the store takes, on the cluster's account.
    part: Part,
    /// How the cluster exceeds its budget: the end of this informer.
    overrun: Option<Overrun>,
    /// Bytes of a line or page under way that are counted.
    counted: usize,
    /// Bytes taken in since other tasks had a turn.
    taken: usize,
    /// Lines of the streaming list under way.
    lines: usize,
    trainer: Trainer,
    scopes: ScopeWatch,
    held: Held,
    census: Census,
    sharded_list: ShardedList,
    /// The number of the last [`Change::Synced`].
    told: u64,
    /// When the log was last told that it fails.
    warned: Option<Moment>,
    /// Whether the log was told so since it worked.
    is_warned: bool,
    log_lines: LogLines,
    /// The last [`Change::Absent`]; none while the kind is there.
    told_absent: Option<(Absence, u64)>,
    machine: Machine,
    connection: Connection,
    waiting: mpsc::Receiver<Sender>,
    subscribers: Vec<Sender>,
    clock: Arc<dyn Clock>,
    metrics: InformerMetrics,
}

impl Task {
    pub(crate) fn new(
        state: Arc<InformerState>,
        (writer, part): (StoreWriter, Part),
        scopes: ScopeWatch,
        wire: Wire,
        waiting: mpsc::Receiver<Sender>,
        intake: Intake,
        (clock, metrics, rng): (Arc<dyn Clock>, InformerMetrics, fastrand::Rng),
    ) -> Self {
        let Target { kind, scope, form, .. } = state.target.clone();
        Self {
            state,
            writer,
            part,
            overrun: None,
            counted: 0,
            taken: 0,
            lines: 0,
            trainer: Trainer::default(),
            scopes,
            held: Held::default(),
            census: Census::default(),
            sharded_list: ShardedList::default(),
            told: 0,
            warned: None,
            is_warned: false,
            log_lines: LogLines::default(),
            told_absent: None,
            machine: Machine::new(rng),
            connection: Connection::new(wire, kind, scope, form, intake),
            waiting,
            subscribers: Vec::new(),
            clock,
            metrics,
        }
    }

    /// Runs until it is dropped, or until its cluster is overdrawn. A panic is a failure like others: what it left
    /// half done is listed again. A replica has thousands of these at rest: their size counts.
    pub(crate) async fn run(mut self: Box<Self>) {
        while self.held.wanted().is_empty() {
            let (wanted, latest) = self.scopes.wanted();
            self.held.want(wanted, latest);
            if self.held.wanted().is_empty() {
                self.scopes.changed().await;
            }
        }
        self.request(Duration::ZERO);
        while let Err(panic) = AssertUnwindSafe(self.follow()).catch_unwind().await {
            let why =
                format!("the informer panicked: {}", model::error::foreign(&panic_text(&*panic)));
            self.ended(End::Panicked, Some(why));
        }
    }

    async fn follow(&mut self) {
        loop {
            tokio::select! {
                biased;
                () = self.scopes.changed() => self.rescope().await,
                Some(subscriber) = self.waiting.recv() => self.admit(subscriber).await,
                trained = self.trainer.done() => self.trainer.adopt(trained, &mut self.writer),
                turn = trainer::turn(), if self.trainer.may_train(&self.writer, self.clock.now()) => {
                    self.trainer.train(turn, &self.writer, self.clock.now());
                }
                arrival = self.connection.next() => {
                    self.arrived(arrival).await;
                    if self.overrun.is_some() {
                        return;
                    }
                }
                () = tokio::task::yield_now(), if self.writer.is_busy() => self.tidy(),
            }
        }
    }

    /// Does a little of what need not be done at once.
    fn tidy(&mut self) {
        let wanted = self.held.wanted();
        self.writer.sweep(SWEPT_AT_ONCE, |header| wanted.holds(header));
        self.writer.recode(RECODED_AT_ONCE);
    }

    fn request(&mut self, after: Duration) {
        let (request, selector) = self.next_request(after);
        self.connection.request(request, selector, after);
    }

    /// What to ask the server for, and for which part.
    fn next_request(&mut self, after: Duration) -> (Request, Option<String>) {
        let wanted = self.held.wanted();
        if self.sharded_list.is_open(wanted) {
            self.machine.page_next();
        }
        self.state.update(|condition| condition.opened = None);
        let (request, anew) = self.machine.begin(self.clock.now() + after);
        let selector = self.sharded_list.ask(&request, wanted);
        if anew {
            let now = self.clock.now();
            self.state.update(|condition| {
                condition.listing_since.get_or_insert(now);
            });
            self.lines = 0;
            self.writer.begin_replace();
            self.held.list_begins(selector.is_some());
            self.census.begin(matches!(request, Request::List { .. }));
        }
        self.publish();
        (request, selector)
    }

    /// Takes in that other objects are required than before.
    async fn rescope(&mut self) {
        let (wanted, latest) = self.scopes.wanted();
        let shift = self.held.want(wanted, latest);
        if shift.sweep {
            self.writer.begin_sweep();
        }
        if shift.relist {
            // What is held stays, and what changes meanwhile comes with the list.
            self.machine.restart();
            self.state.update(|condition| condition.listing_since = None);
            let (request, selector) = self.next_request(Duration::ZERO);
            self.connection.instead(request, selector);
        }
        self.publish();
        self.synced(self.clock.now()).await;
        self.absent(self.clock.now()).await;
    }

    fn publish(&self) {
        let wanted = self.held.wanted();
        let mode = self.sharded_list.mode(wanted);
        self.state.update(|condition| {
            condition.filter.clone_from(wanted);
            condition.mode = mode;
        });
    }

    async fn arrived(&mut self, arrival: Arrival) {
        // What is no object must not starve the other tasks of this thread either.
        tokio::task::consume_budget().await;
        let now = self.clock.now();
        if self.counted > 0 || matches!(arrival, Arrival::More) {
            self.count();
        }
        let (end, why) = match arrival {
            Arrival::More => return,
            Arrival::Opened => {
                self.held.answered();
                self.state.update(|condition| {
                    condition.opened = Some((now, condition.failing_since));
                });
                return self.heard(now);
            }
            Arrival::Line(bytes) => {
                self.heard(now);
                self.in_turn(bytes.len()).await;
                match self.line(&bytes, now).await.and_then(|()| self.progresses()) {
                    Ok(()) => return self.state.update(|condition| condition.opened = None),
                    Err(end) => end,
                }
            }
            Arrival::Page(bytes) => {
                self.heard(now);
                self.page(&bytes, now).await
            }
            Arrival::End(end, why) => (end, why),
        };
        if self.overrun.is_some() {
            return;
        }
        self.ended(end, why);
        self.absent(now).await;
    }

    /// Before an object of so many bytes is taken in: a long list must not starve the other tasks of this thread.
    async fn in_turn(&mut self, bytes: usize) {
        self.taken += bytes + OBJECT_BYTES;
        if self.taken >= TURN_BYTES {
            self.taken = 0;
            tokio::task::yield_now().await;
        }
    }

    fn heard(&mut self, now: Moment) {
        self.told_absent = None;
        self.state.update(|condition| {
            condition.heard = Some(now);
            condition.absent = None;
        });
        // That a list begins says nothing: it may fail in the same place again.
        if self.machine.is_following() {
            self.recovered();
        }
    }

    fn recovered(&mut self) {
        let recovered = self.state.update(|condition| {
            condition.failing_since = None;
            condition.error.take()
        });
        if recovered.is_some() && std::mem::take(&mut self.is_warned) {
            let Target { cluster, kind, .. } = &self.state.target;
            tracing::info!(%cluster, %kind, "watch works again");
        }
    }

    fn ended(&mut self, end: End, why: Option<String>) {
        if end != End::Page {
            self.metrics.restarted(end.reason());
        }
        self.sharded_list.ended(end);
        let now = self.clock.now();
        let after = self.machine.end(end, now);
        let brief = self.state.update(|condition| condition.opened.take());
        let brief = brief.filter(|(opened, _)| now.since(*opened) < BRIEF);
        let is_futile = brief.is_some() && end == End::Closed && self.machine.is_following();
        if let Some(error) = why.or_else(|| is_futile.then(|| FUTILE.to_owned())) {
            let Target { cluster, kind, .. } = &self.state.target;
            let retry_ms = after.as_millis();
            let absent = Absence::of(end);
            let since = brief.and_then(|(_, since)| since).unwrap_or(now);
            self.state.update(|condition| {
                condition.absent = absent.or(condition.absent);
                condition.failing_since.get_or_insert(since);
                condition.error = Some(error.clone());
            });
            // Say it once, not with each attempt, nor each time that the server has something to say before.
            let lately = self.warned.is_some_and(|warned| now.since(warned) < TOLD_EVERY);
            if !self.is_warned && !lately {
                (self.warned, self.is_warned) = (Some(now), true);
                tracing::warn!(%cluster, %kind, error, retry_ms, "watch failed, retrying");
            } else {
                tracing::debug!(%cluster, %kind, error, retry_ms, "watch failed again");
            }
        }
        self.request(after);
    }

    /// Takes in one line; an error ends the connection.
    async fn line(&mut self, bytes: &Bytes, now: Moment) -> Result<(), Ended> {
        let line = wire::line(bytes).map_err(|error| garbage(&error))?;
        if let Line::Upsert(raw) | Line::Delete(raw) = line
            && let Some(found) = self.foreign(raw)
        {
            let named = (found.namespace.as_deref(), &*found.name);
            self.mention(named, uid_hash(&found.uid), || found.uid.to_string())?;
            self.change(&found.resource_version)?;
            self.leave(&found, now).await;
            self.show();
            return Ok(());
        }
        let progress = match line {
            Line::Upsert(raw) => {
                let entry = self.object(raw, bytes)?;
                self.mention_entry(&entry)?;
                let progress = self.change(&entry.header.resource_version.to_string())?;
                self.upsert(entry, now).await;
                progress
            }
            Line::Delete(raw) => match self.unheld(raw) {
                Some(found) => {
                    let progress = self.change(&found.resource_version)?;
                    self.show();
                    progress
                }
                None => {
                    let entry = self.object(raw, bytes)?;
                    let progress = self.change(&entry.header.resource_version.to_string())?;
                    if self.writer.remove(&entry.header.key).is_some() {
                        self.count();
                        self.show();
                        self.tell(Change::Delete { old: entry }, now).await;
                    }
                    progress
                }
            },
            Line::Bookmark { resource_version, initial_end } => {
                let signal = Signal::Bookmark { resource_version: &resource_version, initial_end };
                let progress = usable(self.machine.line(signal))?;
                if progress == Progress::Continue {
                    self.show();
                }
                progress
            }
            Line::Error(refusal) => return Err((refusal.end(), Some(refusal.to_string()))),
        };
        if progress == Progress::Synced {
            self.listed(now).await;
        }
        Ok(())
    }

    /// Tells those who wait for their own writes that the store has changed, and up to where it shows
    /// everything.
    fn show(&self) {
        let position = self.machine.position().map(ResourceVersion::new);
        self.state.seen.send_modify(|seen| *seen = position.or_else(|| seen.take()));
    }

    /// Takes in the version of an object that came.
    fn change(&mut self, version: &str) -> Result<Progress, Ended> {
        usable(self.machine.line(Signal::Change(version)))
    }

    /// An object lies outside. If one of its name was held, that one is gone or left.
    async fn leave(&mut self, found: &PartialMetadata<'_>, now: Moment) {
        let Some(old) = self.state.store.get(found.namespace.as_deref(), &found.name) else {
            return;
        };
        self.writer.remove(&old.header.key);
        self.count();
        self.show();
        // Else it was about to be swept.
        if self.held.wanted().holds(&old.header) {
            self.tell(Change::Delete { old }, now).await;
        }
    }

    /// Takes in one page. Returns how its request ended.
    async fn page(&mut self, bytes: &Bytes, now: Moment) -> Ended {
        let page = match wire::page(bytes) {
            Ok(page) => page,
            Err(error) => return garbage(&error),
        };
        self.sharded_list.answered(page.shard_info.as_deref());
        self.held.answered();
        let objects = page.items.len();
        for raw in page.items {
            self.in_turn(raw.len()).await;
            if let Err(end) = self.item(raw, now).await {
                return end;
            }
            if self.overrun.is_some() {
                return (End::Page, None);
            }
        }
        match usable(self.machine.page(&page.resource_version, page.continue_token, objects)) {
            Err(end) => return end,
            Ok(Progress::Synced) => self.listed(now).await,
            Ok(_) => {}
        }
        (End::Page, None)
    }

    /// Takes in one object of a page.
    async fn item(&mut self, raw: &str, now: Moment) -> Result<(), Ended> {
        if let Some(found) = self.foreign(raw) {
            let named = (found.namespace.as_deref(), &*found.name);
            self.mention(named, uid_hash(&found.uid), || found.uid.to_string())?;
            self.leave(&found, now).await;
            return Ok(());
        }
        let entry = self.parse(raw).map_err(|error| garbage(&error))?;
        self.mention_entry(&entry)?;
        self.upsert(entry, now).await;
        Ok(())
    }

    /// A list is complete: what it did not mention was deleted while we did not look.
    async fn listed(&mut self, now: Moment) {
        let mut missing = Vec::new();
        loop {
            let some = self.writer.finish_some(MISSING_AT_ONCE);
            let is_end = some.len() < MISSING_AT_ONCE;
            missing.extend(some);
            if is_end {
                break;
            }
            // They may be all that there were: other tasks of this thread have their turn.
            tokio::task::yield_now().await;
        }
        self.count();
        self.census.end();
        self.connection.listed();
        self.recovered();
        self.show();
        for old in missing {
            self.tell(Change::Delete { old }, now).await;
        }
        self.held.list_ends();
        let is_first = self.state.update(|condition| {
            condition.listing_since = None;
            !std::mem::replace(&mut condition.synced, true)
        });
        if is_first {
            let Target { cluster, kind, .. } = &self.state.target;
            tracing::debug!(%cluster, %kind, objects = self.state.store.len(), "synced");
        }
        self.synced(now).await;
    }

    async fn upsert(&mut self, new: Arc<Entry>, now: Moment) {
        let old = self.writer.upsert(&new);
        self.count();
        self.show();
        match old {
            // A list after a gap tells of what did not change, too.
            Some(old) if old.header.resource_version == new.header.resource_version => {}
            // Deleted and created again in a gap: two objects, two events.
            Some(old) if old.header.uid != new.header.uid => {
                self.tell(Change::Delete { old }, now).await;
                self.tell(Change::Upsert { old: None, new }, now).await;
            }
            old => self.tell(Change::Upsert { old, new }, now).await,
        }
    }
}

/// What follows from a line or a page, unless the request ends with it.
fn usable(progress: Progress) -> Result<Progress, Ended> {
    match progress {
        Progress::Restart(end @ End::Endless) => Err((end, Some(ENDLESS.to_owned()))),
        Progress::Restart(end) => Err((end, Some(UNUSABLE.to_owned()))),
        progress => Ok(progress),
    }
}

fn garbage(error: &(dyn std::error::Error + 'static)) -> Ended {
    (End::Garbage, Some(model::error::chain(error)))
}
