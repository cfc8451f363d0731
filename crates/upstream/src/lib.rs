//! How many requests one upstream gets: the API server of a cluster, or a service outside of Kubernetes.
//! It keeps a cluster from being overloaded, and one that does not answer from delaying others.
//!
//! ```text
//!   informers ──▶ wait queue ─┐ turns           breaker ─┐
//!                             ├──────▶ gate ◀── bucket ──┼─ guard ◀── outcome ◀── how requests end
//!   reconciles ─▶ wait queue ─┘         │       limit  ──┘
//!                                       ▼
//!                                 the request is sent
//! ```
//!
//! - [`bucket`](model::bucket): requests a second. `limit`: requests at once, adapting. `breaker`: none, while an
//!   upstream fails. `guard` combines all three. They are pure, like `waiting` (who is next), `outcome`
//!   (what an answer says about the upstream) and `pace` (when which key may ask a service).
//! - [`Gate`] is the shell around them, one for each upstream. [`Services`] holds the gates and paces
//!   of services outside of Kubernetes.
//!
//! A watch counts until the head of its answer has come. Nothing is retried here: the sender of a
//! request that was refused or failed repeats it. A reconcile that meets an open breaker fails at
//! once; its key runs again when the breaker closes, and its backoff does not grow. An informer waits
//! for its turn, and is the probe if it is first. Its own backoff counts only attempts that were made,
//! and runs concurrently with the breaker's pause, not after it.
//!
//! Requests for the home cluster's Leases, Members and ShardMaps do not pass here: `sharding` has its
//! own client, so a gate never comes between a member and its Lease.

mod breaker;
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
