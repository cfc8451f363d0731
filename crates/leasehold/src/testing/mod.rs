//! A kit for tests of controllers: a whole cluster in the test's process, and an engine on it.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use leasehold::testing::TestEnv;
//! # use leasehold::{Action, Context, Controller, ObjectKey, ReconcileError, Reconciler};
//! # struct Stamp;
//! # impl Reconciler for Stamp {
//! #     type Kind = ConfigMap;
//! #     async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
//! #         let Some(map) = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)? else {
//! #             return Ok(Action::Done);
//! #         };
//! #         let mut stamped = ConfigMap { metadata: Default::default(), ..Default::default() };
//! #         stamped.metadata.name = map.metadata.name.clone();
//! #         stamped.metadata.namespace = map.metadata.namespace.clone();
//! #         stamped.data = Some([("stamp".to_owned(), "seen".to_owned())].into());
//! #         ctx.apply(&stamped).await?;
//! #         Ok(Action::Done)
//! #     }
//! # }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! // In a `#[tokio::test(start_paused = true)]`: waiting costs no time.
//! let mut env = TestEnv::builder().namespace("web").start().await;
//! env.run([Controller::for_kind::<ConfigMap>("stamp").reconciler(Stamp)]);
//! env.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: web}}").await;
//! env.until_object(&env.api::<ConfigMap>("web"), "a", |map| {
//!     map.data.as_ref().is_some_and(|data| data.contains_key("stamp"))
//! })
//! .await;
//! # }
//! ```
//!
//! [`TestEnv`] is the cluster: an embedded API server, with stand-ins for the controllers that run
//! Deployments, StatefulSets, DaemonSets and Pods and collect garbage. Its fault hook
//! ([`TestEnv::set_faults`]) delays, refuses, drops and loses requests. The engine can be stopped and
//! started again, as after a crash. Several clusters ([`Builder::clusters`]) are for controllers that
//! work across them. Several replicas ([`TestEnv::join`]) divide their shards by Lease: one that leaves
//! hands over, others take over from one that is killed, and faults of [`TestEnv::home`] make one lose
//! its Lease. A unit test that calls a reconciler itself gets a context from [`TestEnv::context`].
//! [`Sole`] and [`TokioClock`] are what an engine needs without a fleet.

mod clock;
mod context;
mod env;
mod ownership;
mod replica;

pub use apiserver::faults::{Fault, Request};
pub use apiserver::status::{ApiError, Reason};
pub use clock::TokioClock;
pub use context::TestContext;
pub use env::{Builder, TestCluster, TestEnv};
pub use ownership::Sole;
pub use replica::TestReplica;
