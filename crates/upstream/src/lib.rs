//! What one upstream may be asked: the API server of a cluster, or a service outside of Kubernetes.
//! It keeps a cluster from being asked too much, and one that does not answer from costing anything
//! but its own progress.
//!
//! ```text
//!   informers ──▶ wait queue ─┐ turns           breaker ─┐
//!                             ├──────▶ gate ◀── bucket ──┼─ guard ◀── outcome ◀── how requests end
//!   reconciles ─▶ wait queue ─┘         │       limit  ──┘
//!                                       ▼
//!                                 the request is sent
//! ```
//!
//! - `bucket`: requests a second. `limit`: requests at once, adapting. `breaker`: none, while an
//!   upstream fails. `guard` is all three in one. They are pure, like `waiting` (who is next),
//!   `outcome` (what an answer says of the upstream) and `pace` (when which key may ask a service).
//! - [`Gate`] is the shell around them, one for each upstream. [`Services`] holds the gates and paces
//!   of services outside of Kubernetes.
//!
//! A watch counts until the head of its answer has come. Nothing is retried here: the sender of a
//! request that was refused or failed repeats it. A reconcile that meets an open breaker fails at
//! once; its key runs again when the cluster is asked again, and its backoff does not grow. An
//! informer waits for its turn, and is the probe if it is first. Its own backoff counts only
//! attempts that were made, and runs beside the breaker's pause, not after it.
//!
//! The home cluster's Leases, Members and ShardMaps do not pass here: `sharding` has a client of its
//! own, so a gate never stands between a member and its Lease.

mod breaker;
mod bucket;
mod error;
mod gate;
mod gates;
mod guard;
mod limit;
mod limits;
mod outcome;
mod pace;
mod service_metrics;
mod services;
mod status;
mod waiting;

pub use breaker::BreakerPhase;
pub use bucket::{Bucket, Rate};
pub use error::{Upstream, UpstreamError};
pub use gate::{Gate, Ticket};
pub use gates::Gates;
pub use guard::{Reading, Refusal};
pub use limits::{ExternalLimits, UpstreamLimits};
pub use outcome::{MAX_RETRY_AFTER, Outcome};
pub use service_metrics::ServiceMetrics;
pub use services::{Service, Services};
pub use status::UpstreamStatus;
pub use waiting::Caller;
