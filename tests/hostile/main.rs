//! One replica beside clusters that misbehave in many ways at once, and others beside one at a time.

use std::time::Duration;

use tests::hostile::{MAX_GROWTH_BYTES, Mode, Plan, perform, weigh};
use tokio::sync::Mutex;

/// Both tests need both processors: what a cluster sends must come before the replica gives it up.
static PROCESSORS: Mutex<()> = Mutex::const_new(());

/// Two clusters fill their budget of 4 MiB; others have a page or a line of up to 32 MiB under way, of which a
/// buffer that grows holds up to three parts.
const MAX_TOGETHER_BYTES: u64 = 256 << 20;

/// Those that take minutes are left to `cargo xtask hostile`, and so are a thousand clusters that would have all others
/// wait for their first credentials. Of the others, a member has no room to report more.
fn together() -> Vec<Mode> {
    let slow = [Mode::SlowBody, Mode::ManyNamespaces, Mode::HangingCredentials];
    let beyond = [
        Mode::LongToken,
        Mode::EmptyWatches,
        Mode::LongRefusal,
        Mode::EndlessExtension,
        Mode::EndlessTrailers,
        Mode::ShortBody,
        Mode::TwiceFolded,
        Mode::SlowHandshake,
        Mode::Http2SmallFrames,
        Mode::Http2Resets,
    ];
    let is_left = |mode: &Mode| slow.contains(mode) || beyond.contains(mode);
    Mode::ALL.into_iter().filter(|mode| !is_left(mode)).collect()
}

fn plan() -> Plan {
    Plan {
        harness: env!("CARGO_BIN_EXE_harness").into(),
        observe: Duration::from_secs(45),
        // Few: a machine that builds and tests at once says nothing about how long they take.
        changes: 50,
        max_cache_bytes: 4 << 20,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_outlives_many_kinds_of_strangers_at_once_and_serves_the_rest() {
    let _alone = PROCESSORS.lock().await;
    let rows = perform(&together(), &plan()).await.unwrap();
    let faults: Vec<String> = rows.iter().flat_map(|row| row.faults(MAX_TOGETHER_BYTES)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Beside many others, one that takes twice what it may would not be seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_stranger_takes_more_memory_than_it_may_by_itself() {
    let _alone = PROCESSORS.lock().await;
    let mut modes = Mode::ALL.to_vec();
    // Its cluster does nothing, and a thousand others do.
    modes.retain(|mode| *mode != Mode::HangingCredentials);
    let weighed = weigh(&modes, &plan()).await.unwrap();
    for (mode, bytes) in &weighed {
        println!("{mode}: memory grows by {bytes} bytes");
    }
    let beyond = weighed.iter().filter(|(_, bytes)| *bytes > MAX_GROWTH_BYTES);
    let faults: Vec<String> =
        beyond.map(|(mode, bytes)| format!("{mode}: memory grows by {bytes} bytes")).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
