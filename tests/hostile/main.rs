//! One replica beside clusters that misbehave in every way at once. Alone in its process: memory is counted.

use std::alloc::System;
use std::time::Duration;

use cap::Cap;
use model::Budget;
use tests::hostile::{Mode, Plan, perform};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Two clusters fill their budget of 4 MiB; others have a page or a line of up to 32 MiB under way, of which a
/// buffer that grows holds up to three parts.
const MAX_GROWTH_BYTES: usize = 256 << 20;

/// Those that take minutes are left to `cargo xtask hostile`, and so are a thousand clusters that would have all others
/// wait for their first credentials.
fn short() -> Vec<Mode> {
    let slow = [Mode::SlowBody, Mode::ManyNamespaces, Mode::HangingCredentials];
    Mode::ALL.into_iter().filter(|mode| !slow.contains(mode)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_outlives_every_kind_of_stranger_and_serves_the_rest() {
    let budget = Budget { max_cache_bytes: 4 << 20, ..Budget::default() };
    // Few changes: a machine that builds and tests at once says nothing about how long they take.
    let plan = Plan { observe: Duration::from_secs(45), changes: 50, budget };
    let rows = perform(&short(), plan, || ALLOCATOR.allocated()).await.unwrap();
    let faults: Vec<String> = rows.iter().flat_map(|row| row.faults(MAX_GROWTH_BYTES)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
