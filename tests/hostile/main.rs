//! One replica beside clusters that misbehave in every way at once.

use std::time::Duration;

use tests::hostile::{Mode, Plan, perform};

/// Two clusters fill their budget of 4 MiB; others have a page or a line of up to 32 MiB under way, of which a
/// buffer that grows holds up to three parts.
const MAX_GROWTH_BYTES: u64 = 256 << 20;

/// Those that take minutes are left to `cargo xtask hostile`, and so are a thousand clusters that would have all others
/// wait for their first credentials.
fn short() -> Vec<Mode> {
    let slow = [Mode::SlowBody, Mode::ManyNamespaces, Mode::HangingCredentials];
    Mode::ALL.into_iter().filter(|mode| !slow.contains(mode)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_outlives_every_kind_of_stranger_and_serves_the_rest() {
    let plan = Plan {
        harness: env!("CARGO_BIN_EXE_harness").into(),
        observe: Duration::from_secs(45),
        // Few: a machine that builds and tests at once says nothing about how long they take.
        changes: 50,
        max_cache_bytes: 4 << 20,
    };
    let rows = perform(&short(), &plan).await.unwrap();
    let faults: Vec<String> = rows.iter().flat_map(|row| row.faults(MAX_GROWTH_BYTES)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
