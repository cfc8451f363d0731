//! The checks, by name. Each is a file of this folder: a story of what is done and what must hold.

mod node;

use anyhow::Result;
use futures::future::LocalBoxFuture;

use super::Scene;
use super::tools::Need;

/// One check.
#[derive(Debug)]
pub struct Check {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// What it cannot do without.
    pub needs: &'static [Need],
    /// Does it.
    pub run: for<'a> fn(&'a Scene) -> LocalBoxFuture<'a, Result<()>>,
}

/// Every check, in the order they run.
pub const CHECKS: &[Check] = &[Check {
    name: "node",
    about: "installed by helm on a node that runs real containers, it survives kills and upgrades",
    needs: &[Need::Kube, Need::Node],
    run: |scene| Box::pin(node::run(scene)),
}];
