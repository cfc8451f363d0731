//! The journal: a record of every dispatch as JSON lines, for checks that compare the journals of all
//! members. Shell: writes a file.
//!
//! ```text
//!   engine ── started/finished ──▶ bounded queue ──▶ own thread ──▶ file
//! ```
//!
//! A line is `{"t":<µs>,"event":"start"|"end","member":..,"shard":..,"epoch":n,"controller":..,
//! "key":"cluster/ns/name"}`, with `t` on `CLOCK_BOOTTIME`, which all processes of a machine share. One
//! of an end has also `"ran":<µs>`: when the reconciler's code was last let run.
//! The engine never waits: records that do not fit the queue are counted, and the gap is recorded as
//! `{"event":"lost","count":n}`, so that a reader does not mistake it for a time without dispatches.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use engine::{Dispatch, DispatchObserver};
use model::{Clock, Moment};
use serde::Serialize;
use tracing::error;

/// Lines on their way to the file.
const QUEUE: usize = 1 << 16;

/// Writes the journal. Dropping it writes what is queued.
#[derive(Debug)]
pub struct Journal {
    // Both are taken by `drop`.
    queue: Option<SyncSender<Record>>,
    thread: Option<JoinHandle<()>>,
    clock: Arc<dyn Clock>,
    lost: Arc<AtomicU64>,
}

/// The journal cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("open the journal {}: give journal a path in a folder this process may write to", path.display())]
pub struct JournalError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Event {
    Start,
    End,
}

#[derive(Debug)]
struct Record {
    at: Moment,
    event: Event,
    /// When the reconciler's code was last let run, at an end.
    ran: Option<Moment>,
    dispatch: Dispatch,
}

#[derive(Serialize)]
struct Line<'a> {
    t: u64,
    event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran: Option<u64>,
    member: &'a model::MemberId,
    shard: &'a model::ShardId,
    epoch: model::Epoch,
    controller: &'a model::ControllerName,
    key: String,
}

#[derive(Serialize)]
struct Hole {
    event: &'static str,
    count: u64,
}

impl Journal {
    /// Appends to the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be opened or its thread cannot be started.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, JournalError> {
        let failed = |source| JournalError { path: path.to_owned(), source };
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        let (queue, records) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let (shared, owned_path) = (Arc::clone(&lost), path.to_owned());
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || {
                if let Err(error) = write_all(&records, &shared, BufWriter::new(file)) {
                    let path = owned_path.display();
                    error!(%error, "the journal {path} cannot be written and ends here");
                }
            })
            .map_err(failed)?;
        Ok(Self { queue: Some(queue), thread: Some(thread), clock, lost })
    }

    fn record(&self, event: Event, ran: Option<Moment>, dispatch: &Dispatch) {
        let record = Record { at: self.clock.now(), event, ran, dispatch: dispatch.clone() };
        let sent = self.queue.as_ref().is_some_and(|queue| queue.try_send(record).is_ok());
        if !sent {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl DispatchObserver for Journal {
    fn started(&self, dispatch: &Dispatch) {
        self.record(Event::Start, None, dispatch);
    }

    fn finished(&self, dispatch: &Dispatch, ran: Moment) {
        self.record(Event::End, Some(ran), dispatch);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Writes records until the journal is dropped. It flushes whenever it has caught up, so that a killed
/// process loses almost nothing.
fn write_all(
    records: &Receiver<Record>,
    lost: &AtomicU64,
    mut file: BufWriter<File>,
) -> io::Result<()> {
    loop {
        let record = match records.try_recv() {
            Ok(record) => record,
            Err(TryRecvError::Disconnected) => return finish(lost, file),
            Err(TryRecvError::Empty) => {
                file.flush()?;
                match records.recv() {
                    Ok(record) => record,
                    Err(_) => return finish(lost, file),
                }
            }
        };
        write_hole(lost, &mut file)?;
        line(&mut file, &Line::of(&record))?;
    }
}

fn finish(lost: &AtomicU64, mut file: BufWriter<File>) -> io::Result<()> {
    write_hole(lost, &mut file)?;
    file.flush()
}

fn write_hole(lost: &AtomicU64, file: &mut BufWriter<File>) -> io::Result<()> {
    match lost.swap(0, Ordering::Relaxed) {
        0 => Ok(()),
        count => line(file, &Hole { event: "lost", count }),
    }
}

fn line(file: &mut BufWriter<File>, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, value)?;
    file.write_all(b"\n")
}

impl<'a> Line<'a> {
    fn of(record: &'a Record) -> Self {
        let Dispatch { member, shard, epoch, controller, key } = &record.dispatch;
        Self {
            t: micros(record.at),
            event: record.event,
            ran: record.ran.map(micros),
            member,
            shard,
            epoch: *epoch,
            controller,
            key: key.to_string(),
        }
    }
}

fn micros(moment: Moment) -> u64 {
    u64::try_from(moment.since_origin().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use model::{Epoch, ManualClock, ObjectKey};

    use super::*;

    #[test]
    fn each_dispatch_leaves_two_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        clock.advance(Duration::from_micros(7));
        let journal = Journal::open(&path, clock.clone()).unwrap();
        let dispatch = Dispatch {
            member: "replica-0-abcde".parse().unwrap(),
            shard: "east/tdset/0/1".parse().unwrap(),
            epoch: Epoch(3),
            controller: "tdset".parse().unwrap(),
            key: ObjectKey::new("east".parse().unwrap(), Some("default"), "web"),
        };
        journal.started(&dispatch);
        clock.advance(Duration::from_micros(5));
        let ran = Moment::from_origin(Duration::from_micros(9));
        journal.finished(&dispatch, ran);
        drop(journal);
        let tail = r#","member":"replica-0-abcde","shard":"east/tdset/0/1","epoch":3,"controller":"tdset","key":"east/default/web"}"#;
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            format!(
                "{{\"t\":7,\"event\":\"start\"{tail}\n{{\"t\":12,\"event\":\"end\",\"ran\":9{tail}\n"
            )
        );
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
        let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        let error = Journal::open(Path::new("/nowhere/j.jsonl"), clock).unwrap_err();
        assert!(model::error::chain(&error).starts_with("open the journal /nowhere/j.jsonl: give"));
    }
}
