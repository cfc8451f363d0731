//! An embedded, wire-compatible, in-memory Kubernetes API server.
//!
//! It is the default cluster where none is at hand: demo, tests, simulation, laptop development.
//! Everything talks to it the ordinary way, over HTTP or through the same tower service in
//! process.
//!
//! In data order: `server` listens, terminates TLS and checks tokens; `http` is the API itself;
//! `catalog`, `kinds`, `types` and `crd` say what is served; `objects`, `schema` and `patch` decide
//! what an object becomes; `store` keeps it. `workloads` and `gc` stand in for the cluster's controllers
//! and are ordinary clients.

mod api;
mod args;
mod catalog;
mod clock;
mod crd;
pub mod faults;
mod follow;
pub mod gc;
mod history;
mod http;
mod in_process;
pub mod kinds;
mod kubeconfig;
mod objects;
pub mod patch;
pub mod schema;
mod selector;
mod server;
pub mod status;
mod store;
pub mod table;
mod tls;
mod types;
pub mod workloads;

pub use args::Args;
pub use clock::Clock;
pub use history::Write;
pub use in_process::InProcess;
pub use kinds::KindInfo;
pub use kubeconfig::{KubeconfigParts, merge_kubeconfigs};
pub use server::{Builder, Error, Server};
pub use status::{ApiError, FieldError};
pub use store::{DEFAULT_WINDOW_BYTES, DEFAULT_WINDOW_EVENTS, WindowLimits};
