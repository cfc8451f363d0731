//! Work of which no object takes much.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ClusterName, ShardId, Work, Workload};

/// The work of another workload, as if it were of many objects.
#[derive(Debug)]
pub(super) struct Divided(pub(super) Arc<dyn Workload>);

impl Workload for Divided {
    fn measure(&self) -> BTreeMap<ShardId, Work> {
        let measured = self.0.measure().into_iter();
        measured.map(|(shard, work)| (shard, Work { heaviest_permille: 0, ..work })).collect()
    }

    fn failing(&self) -> BTreeMap<ClusterName, Arc<str>> {
        self.0.failing()
    }
}
