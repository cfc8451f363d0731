//! The work queue alone: how fast keys pass from one thread, which adds them, to another, which takes and finishes them,
//! with the clock, metrics and waiting of a manager.

use std::sync::Arc;
use std::{slice, thread};

use anyhow::{Result, anyhow};
use leasehold::clock::SystemClock;
use model::{Epoch, ObjectKey, Range, ShardId};
use peer::clock::Begin;
use peer::lines::{Line, say};
use prometheus::{Histogram, HistogramOpts, IntCounter, exponential_buckets};
use queue::{Limits, Outcome, Priority, QueueMetrics, RateLimiter, WorkQueue};
use tokio::runtime::Builder;
use tracing::Span;

/// How many different keys pass through the queue.
const KEYS: usize = 1_000_000;

/// Says how fast it is.
///
/// # Errors
/// If a runtime cannot be made.
pub fn measure() -> Result<()> {
    let per_second = keys_per_second(KEYS)?;
    say(Line::Queue { keys: KEYS, per_second });
    Ok(())
}

fn keys_per_second(count: usize) -> Result<f64> {
    let keys = keys(count)?;
    let queue = work_queue()?;
    let begin = Begin::now();
    thread::scope(|scope| {
        let adding = scope.spawn(|| {
            on_this_thread(async {
                for key in &keys {
                    let key = (key.clone(), None);
                    queue.add(slice::from_ref(&key), Priority::Change, &Span::none()).await;
                }
            })
        });
        on_this_thread(async {
            // As a worker does, which takes its next key where it ends a run.
            let mut next = None;
            for _ in &keys {
                let popped = match next.take() {
                    Some(popped) => popped,
                    None => queue.next().await,
                };
                queue.succeeded(&popped.key);
                next = queue.finish_and_take(&popped.key, Outcome::Done);
            }
        })?;
        adding.join().map_err(|_| anyhow!("the thread that adds keys panicked"))?
    })?;
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

/// Runs it in a runtime of its own.
fn on_this_thread(work: impl Future<Output = ()>) -> Result<()> {
    Builder::new_current_thread().enable_time().build()?.block_on(work);
    Ok(())
}

fn keys(count: usize) -> Result<Vec<ObjectKey>> {
    let cluster: model::ClusterName = "east".parse()?;
    let key = |index| ObjectKey::new(cluster.clone(), Some("ns"), &format!("object-{index}"));
    Ok((0..count).map(key).collect())
}

/// A queue with one shard, open.
fn work_queue() -> Result<WorkQueue<()>> {
    let histogram = |name| {
        let buckets = exponential_buckets(1e-8, 10.0, 12)?;
        Histogram::with_opts(HistogramOpts::new(name, name).buckets(buckets))
    };
    let metrics = QueueMetrics {
        adds: IntCounter::new("adds", "adds")?,
        retries: IntCounter::new("retries", "retries")?,
        waited: histogram("waited")?,
        worked: histogram("worked")?,
    };
    let limits = Limits { per_cluster: 64, total: 64 };
    let retries = (RateLimiter::default(), fastrand::Rng::with_seed(1));
    let queue =
        WorkQueue::new(super::NAME.parse()?, limits, retries, Arc::new(SystemClock), metrics);
    let shard = ShardId { cluster: "east".parse()?, group: "g".parse()?, range: Range::WHOLE };
    queue.warm(&shard, Epoch(1), ());
    queue.open(&shard, Epoch(1));
    Ok(queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_pass() {
        assert!(keys_per_second(1000).unwrap() > 0.0);
    }
}
