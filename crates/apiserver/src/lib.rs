//! An embedded, wire-compatible, in-memory Kubernetes API server.
//!
//! It is the default cluster for the demo, tests, the simulation and development on a laptop. All
//! clients use it like any other server, over HTTP or through the same tower service in process.
//!
//! In the order of the data: `server` listens, terminates TLS and checks tokens; `http` is the API;
//! `access` knows users and their rights;
//! `catalog`, `resource`, `kinds`, `types` and `crd` say what is served; `objects`, `schema` and
//! `patch` decide how an object changes; `store` keeps it. `workloads` and `gc` stand in for
//! the cluster's controllers, and are ordinary clients. `program` is what runs in Pods.
//!
//! # Users and rights
//! The server's own token is that of an administrator. The token subresource of a ServiceAccount
//! issues tokens for it, which TokenReview knows. Every valid token may do everything, unless
//! [`Builder::rbac`] turns on authorization by Roles and bindings. Access reviews answer by the same
//! rules, and headers for impersonation work.
//!
//! # Known limits
//! The rules of `x-kubernetes-validations` (CEL) are not evaluated. There are no admission or conversion
//! webhooks, admission policies or quotas, and answers are JSON, never protobuf. Tokens cannot be verified without asking the server. There is no Node authorizer, no check that
//! who grants rights holds them, and no aggregation of ClusterRoles; `admin`, `edit` and `view` are
//! not there. Impersonation needs the verb `impersonate`, without its constrained forms. No
//! controller writes the status of a PodDisruptionBudget, so evictions count the Pods themselves
//! unless somebody writes it. A token has at most 32 audiences of 256 bytes, and a reviewed user
//! at most 1024 groups. Connections to Pods (`portforward`) are websockets with the sub-protocol
//! `v4.channel.k8s.io`; SPDY is not there, which `kubectl port-forward` needs, nor are `exec`, `attach`
//! and `log`.

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
mod program;
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
pub use program::{Exit, Matcher, Process, Program, Start, State};
pub use server::{Builder, Error, Server, merge_kubeconfigs};
pub use store::WindowLimits;
