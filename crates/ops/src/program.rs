//! What the commands need of the program that they are part of.

use futures::future::BoxFuture;
use serde_json::Value;

use crate::home::{HomeArgs, HomeCluster};

/// Makes a client for the home cluster that arguments name.
pub type Connect = for<'a> fn(&'a HomeArgs) -> BoxFuture<'a, anyhow::Result<HomeCluster>>;

/// The program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The way to a home cluster.
    pub connect: Connect,
    /// Which build it is, for a support bundle.
    pub version: Value,
}

impl Program {
    /// The home cluster that the arguments name.
    pub(crate) async fn home(&self, args: &HomeArgs) -> anyhow::Result<HomeCluster> {
        (self.connect)(args).await
    }
}
