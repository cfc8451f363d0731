//! On what terms a source takes part whose authors are not those of the configuration: a folder, or labelled
//! Secrets.

use std::collections::BTreeSet;

use model::Prefix;

use crate::risk::Risk;
use crate::trust::Trust;

/// The most clusters of such a source, unless it is told otherwise.
pub const DEFAULT_QUOTA: usize = 1000;

/// What its authors may do beside [`Trust::stranger`], and what they may not take.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What its clusters' names begin with, before a dot. It keeps them apart from all others.
    pub prefix: Option<Prefix>,
    /// How many of its clusters count.
    pub quota: usize,
    /// The risks that are taken for it.
    pub allow: BTreeSet<Risk>,
}

impl Default for Terms {
    /// No prefix, the quota [`DEFAULT_QUOTA`] and no risk allowed.
    fn default() -> Self {
        Self { prefix: None, quota: DEFAULT_QUOTA, allow: BTreeSet::new() }
    }
}

impl Terms {
    /// What its kubeconfigs may do.
    pub(crate) fn trust(&self) -> Trust {
        Trust::stranger().allow(self.allow.iter().copied())
    }
}
