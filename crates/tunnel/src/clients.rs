//! What is known of a Tunnel's clients, and what is said of it. Pure.

use k8s_openapi::api::apps::v1::Deployment;
use sdk::condition::Finding;

use crate::names::CLIENTS;

/// The clients of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clients {
    /// How many are to connect.
    pub wanted: usize,
    /// How many of them have a Pod that runs.
    pub available: usize,
    /// How many of them are connected, where the host says so.
    pub connected: Option<usize>,
}

impl Clients {
    /// Those of these Deployments that are not at rest.
    pub(super) fn of<'a>(deployments: impl IntoIterator<Item = &'a Deployment>) -> Self {
        let works = |client: &&Deployment| client.spec.replicas != Some(0);
        let runs = |client: &&Deployment| {
            let status = client.status.as_ref();
            status.is_some_and(|status| status.available_replicas.unwrap_or(0) > 0)
        };
        let working: Vec<_> = deployments.into_iter().filter(works).collect();
        let available = working.iter().copied().filter(runs).count();
        Self { wanted: working.len(), available, connected: None }
    }

    /// Whether there may be one that serves.
    pub(super) fn serve(self) -> bool {
        self.available > 0
    }

    /// Whether all of several are connected; of one the address says it.
    pub(super) fn finding(self) -> Option<Finding> {
        let Self { wanted, available, connected } = self;
        let (live, what) = match connected {
            Some(live) => (live, "connected"),
            None => (available, "running"),
        };
        let holds = live >= wanted;
        let reason = if holds { "Complete" } else { "Incomplete" };
        let are = if live == 1 { "is" } else { "are" };
        let message = format!("{live} of {wanted} clients {are} {what}");
        (wanted > 1).then_some(Finding { type_: CLIENTS, holds, reason, message })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_client_at_rest_is_no_client() {
        let of = |replicas: i32, available: Option<i32>| {
            let spec = json!({"replicas": replicas, "selector": {}, "template": {}});
            let deployment = json!({"spec": spec, "status": {"availableReplicas": available}});
            serde_json::from_value::<Deployment>(deployment).unwrap()
        };
        let all = [of(1, Some(1)), of(1, None), of(0, Some(1))];
        let clients = Clients::of(&all);
        assert_eq!(clients, Clients { wanted: 2, available: 1, connected: None });
        assert!(clients.serve() && !Clients::of(&all[1..]).serve());
        assert_eq!(Clients::of(&all[..1]).finding().map(|found| found.message), None);
    }
}
