//! What the admin server shows of a manager: readiness and debug views.
//!
//! The server starts before the rest is assembled, so that a replica that waits for its home cluster
//! answers its probes: it is alive, but not ready.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use admin::{Admin, CHECK_TIMEOUT, Check, ExplainFn, Guard, Probe, Readiness, ViewFn};
use clusters::Clusters;
use engine::EngineStatus;
use explain::{NoObject, Sought, Told};
use serde_json::{Value, json};
use sharding::Sharding;

/// Why a replica says nothing yet.
pub(crate) const STARTS: &str = "this replica reads its clusters and home first";

/// Read handles on the parts of the manager, once it is assembled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside(Arc<OnceLock<Handles>>);

/// Read handles on the parts of the manager.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) clusters: Clusters,
    pub(crate) sharding: Sharding,
    pub(crate) engine: EngineStatus,
}

/// The checks that the program brings along.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) readiness: Vec<Probe>,
    pub(crate) liveness: Vec<Probe>,
}

impl Inside {
    /// Shows these handles from now on.
    pub(crate) fn show(&self, handles: Handles) {
        // A manager is assembled once.
        let _ = self.0.set(handles);
    }

    /// The same, for whoever must not keep it.
    pub(crate) fn downgrade(&self) -> Weak<OnceLock<Handles>> {
        Arc::downgrade(&self.0)
    }

    /// What was downgraded, if the manager is still there.
    pub(crate) fn upgrade(weak: &Weak<OnceLock<Handles>>) -> Option<Self> {
        weak.upgrade().map(Self)
    }

    /// The views for the admin server.
    pub(crate) fn admin(
        &self,
        registry: prometheus::Registry,
        checks: Checks,
        console: Option<axum::Router>,
        guard: Option<Guard>,
    ) -> Admin {
        let inside = self.clone();
        let ready = Arc::new(move || inside.readiness());
        let debug = BTreeMap::from([
            ("shards", self.view(|handles| json!(handles.sharding.status()))),
            ("queues", self.view(|handles| json!(handles.engine.queues()))),
            ("clusters", self.view(Handles::clusters)),
        ]);
        let inside = self.clone();
        let explain: ExplainFn = Arc::new(move |object| {
            let sought: Sought = object.parse().map_err(|wrong: NoObject| wrong.to_string())?;
            Ok(json!(inside.explain(&sought).ok_or(STARTS)?))
        });
        let Checks { readiness, liveness } = checks;
        let liveness = [self.sharding_turns()].into_iter().chain(liveness).collect();
        Admin { registry, ready, readiness, liveness, debug, explain, console, guard }
    }

    /// What this replica says of an object, once it is assembled.
    pub(crate) fn explain(&self, sought: &Sought) -> Option<Told> {
        Some(self.0.get()?.explain(sought))
    }

    /// Its queues, once it is assembled.
    #[cfg(feature = "console")]
    pub(crate) fn queues(&self) -> Option<Vec<queue::QueueStatus>> {
        Some(self.0.get()?.engine.queues())
    }

    fn view(&self, of: impl Fn(&Handles) -> Value + Send + Sync + 'static) -> ViewFn {
        let inside = self.clone();
        Arc::new(move || inside.0.get().map_or(Value::Null, &of))
    }

    /// Whether the loop that renews the Lease and follows the ShardMaps turns. The admin server asks on
    /// another thread than the loop's.
    fn sharding_turns(&self) -> Probe {
        let inside = self.clone();
        Probe::new("sharding", CHECK_TIMEOUT, move || {
            let inside = inside.clone();
            async move {
                // What is not assembled yet waits for the home cluster, which no restart repairs.
                let Some(handles) = inside.0.get() else { return Ok(()) };
                handles.sharding.turns().await.map_err(|stalled| stalled.to_string())
            }
        })
    }

    /// Whether the manager is ready, as far as it can tell without the program's own checks.
    pub(crate) fn readiness(&self) -> Readiness {
        let checks = match self.0.get() {
            Some(handles) => handles.checks(),
            None => {
                vec![Check::new("start", Err("clusters and home are being read".to_owned()))]
            }
        };
        Readiness { checks }
    }
}

impl Handles {
    /// Ready means: the home cluster answers, this member speaks the fleet's version of the protocol, and
    /// the first lists of its shards have been waited for. What is wrong with the fleet, such as a policy that selects
    /// nothing, no other replica could do better.
    fn checks(&self) -> Vec<Check> {
        let own = self.sharding.status();
        let home = match own.hindrance {
            Some(hindrance) => Err(hindrance),
            None if !own.synced => Err("the home cluster is not read yet".to_owned()),
            None if own.lease_valid_seconds <= 0.0 => {
                Err("this member has no valid Lease".to_owned())
            }
            None => Ok(()),
        };
        let informers = match self.engine.is_ready() {
            true => Ok(()),
            false => Err(format!("waiting for {}", self.engine.readiness().waiting.join(", "))),
        };
        vec![Check::new("home", home), Check::new("informers", informers)]
    }

    /// What this replica says of an object.
    fn explain(&self, sought: &Sought) -> Told {
        let status = self.clusters.status();
        let cluster = status.clusters.iter().find(|cluster| cluster.name == sought.cluster);
        let reason = cluster.and_then(|cluster| cluster.reason.as_ref());
        Told {
            member: self.sharding.status().member.to_string(),
            configured: cluster.is_some(),
            down: reason.map(ToString::to_string),
            explanation: self.engine.explain(sought),
        }
    }

    fn clusters(&self) -> Value {
        let status = self.clusters.status();
        json!({
            "clusters": status.clusters,
            "problems": status.problems,
            "upstreams": self.engine.upstreams(),
            "quarantines": self.engine.quarantines(),
            "informers": self.engine.informers(),
            "absent": self.engine.absent(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_is_not_assembled_is_not_ready_and_says_why() {
        let admin =
            Inside::default().admin(prometheus::Registry::new(), Checks::default(), None, None);
        let readiness = (admin.ready)();
        assert!(!readiness.is_ready());
        assert_eq!(
            readiness.text("readyz", false),
            "[-]start failed: clusters and home are being read\nreadyz check failed\n"
        );
        assert_eq!(admin.debug["clusters"](), Value::Null);
    }
}
