//! An embedded, wire-compatible, in-memory Kubernetes API server.
//!
//! It is the default cluster for the demo, tests, the simulation and development on a laptop. All
//! clients use it like any other server, over HTTP or through the same tower service in process.
//!
//! In the order of the data: `server` listens, terminates TLS and checks tokens; `http` is the API;
//! `access` knows users and their rights;
//! `catalog`, `resource`, `kinds`, `types` and `crd` say what is served; `objects`, `schema` and
//! `patch` decide how an object changes; `store` keeps it. `workloads` and `gc` stand in for
//! the cluster's controllers, and are ordinary clients.

mod access;
mod api;
mod args;
mod catalog;
mod clock;
mod crd;
pub mod faults;
mod follow;
mod gc;
mod history;
mod http;
mod in_process;
mod kinds;
mod kubeconfig;
mod objects;
mod patch;
mod resource;
mod schema;
mod selector;
mod server;
pub mod status;
mod store;
mod table;
mod tls;
mod types;
mod workloads;

pub use args::{Args, AuthorizationMode};
pub use clock::Clock;
pub use history::Write;
pub use in_process::InProcess;
pub use server::{Builder, Error, Server, merge_kubeconfigs};
pub use store::WindowLimits;
