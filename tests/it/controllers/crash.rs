//! A crash at each write, one after the other: what the manager had sent before is done, what it
//! was about to send is never sent, and another manager continues from there.
//!
//! A crash comes in two forms: the write is not sent, or it is done and its answer is lost. The scenario must
//! end in the same way every time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use apiserver::faults::{Fault, Request};
use leasehold::testing::TestEnv;
use sdk::ControllerSpec;
use tokio::sync::Notify;

/// More writes than any scenario needs, so that one that never ends fails.
const MOST_WRITES: usize = 200;
/// Of how many writes an ordinary run takes one.
const STEP: usize = 3;

/// When the manager crashes. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Crash(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// How many writes are done and answered before it.
    after: usize,
    /// Whether the write at which it crashes is done.
    sent: bool,
    writes: AtomicUsize,
    over: AtomicBool,
    happened: Notify,
    log: Mutex<Vec<String>>,
}

/// What happens to a write of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is done, and answered.
    Done,
    /// It is done, and the answer is lost.
    Unheard,
    /// It is not sent.
    Unsent,
}

impl Crash {
    fn at(after: usize, sent: bool) -> Self {
        Self(Arc::new(Inner {
            after,
            sent,
            writes: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            happened: Notify::new(),
            log: Mutex::default(),
        }))
    }

    /// Decides what happens to the next write, which is `what`. A stand-in for an upstream asks
    /// this before each request that changes something.
    pub(super) fn fate(&self, what: &str) -> Fate {
        if self.0.over.load(Ordering::SeqCst) {
            return Fate::Done;
        }
        let number = self.0.writes.fetch_add(1, Ordering::SeqCst);
        self.0.log.lock().unwrap().push(what.to_owned());
        if number < self.0.after {
            return Fate::Done;
        }
        self.0.happened.notify_one();
        if number == self.0.after && self.0.sent { Fate::Unheard } else { Fate::Unsent }
    }

    /// Asks about every write that controllers send to the environment's API server.
    pub(super) fn watch(&self, env: &TestEnv) {
        let crash = self.clone();
        env.set_faults(move |request: &Request| {
            let reads = matches!(request.verb, "get" | "list" | "watch");
            if reads || !request.user_agent.starts_with("leasehold/") {
                return Fault::None;
            }
            let Request { verb, resource, subresource, name, .. } = request;
            match crash.fate(&format!("{verb} {resource}/{subresource} {name}")) {
                Fate::Done => Fault::None,
                Fate::Unheard => Fault::DropAnswer,
                Fate::Unsent => Fault::Drop,
            }
        });
    }

    /// Runs controllers until `scenario` ends, through the crash if it happens meanwhile. Nothing
    /// crashes after that.
    pub(super) async fn survived(
        &self,
        env: &mut TestEnv,
        controllers: impl Fn() -> Vec<ControllerSpec>,
        scenario: impl AsyncFn(&TestEnv),
    ) {
        env.run(controllers());
        let crashed = tokio::select! {
            biased;
            () = self.0.happened.notified() => true,
            () = scenario(env) => false,
        };
        if crashed {
            env.stop().await;
            self.0.over.store(true, Ordering::SeqCst);
            env.run(controllers());
            scenario(env).await;
        } else {
            self.0.over.store(true, Ordering::SeqCst);
        }
    }

    fn reached(&self) -> bool {
        self.0.writes.load(Ordering::SeqCst) > self.0.after
    }
}

/// Runs `scenario` without a crash, and then with a crash at one write after the other. Returns how many
/// writes it has.
///
/// An ordinary run takes every third write; with `LEASEHOLD_EVERY_WRITE=1` it takes all of them.
///
/// `scenario` gets the crash, and runs the controllers with [`Crash::survived`].
pub(super) async fn at_every_write(scenario: impl AsyncFn(Crash)) -> usize {
    let step = if std::env::var_os("LEASEHOLD_EVERY_WRITE").is_some() { 1 } else { STEP };
    let calm = crash(&scenario, MOST_WRITES, false).await;
    let writes = calm.0.writes.load(Ordering::SeqCst);
    assert!(0 < writes && writes < MOST_WRITES, "it writes something, and ends: {writes} writes");
    for (sent, first) in [(false, 0), (true, step / 2)] {
        for after in (first..writes).step_by(step) {
            // How many there are may vary by a few.
            let is_last = !crash(&scenario, after, sent).await.reached();
            assert!(!is_last || after + STEP >= writes, "write {after} of {writes} does not come");
        }
    }
    writes
}

/// Runs `scenario` with a crash after so many writes.
async fn crash(scenario: &impl AsyncFn(Crash), after: usize, sent: bool) -> Crash {
    let crash = Crash::at(after, sent);
    let run = std::panic::AssertUnwindSafe(scenario(crash.clone()));
    if let Err(panic) = futures::FutureExt::catch_unwind(run).await {
        let log = crash.0.log.lock().unwrap();
        eprintln!("crash at write {after}, sent: {sent}; writes until then: {log:#?}");
        std::panic::resume_unwind(panic);
    }
    crash
}
