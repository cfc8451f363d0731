//! What is known of a Tunnel's clients, and what is said of it. Pure.

use k8s_openapi::api::apps::v1::Deployment;
use sdk::condition::Finding;

use crate::api::{Protocol, TunnelSpec};
use crate::names::CLIENTS;

/// The clients of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clients {
    /// How many are to connect.
    pub wanted: usize,
    /// How many of them have a Pod that runs.
    pub available: usize,
    /// Whether the first one has: it alone has UDP.
    pub first: bool,
    /// How many of them are connected, where the host was asked, if it answered.
    pub connected: Option<Option<usize>>,
    /// How many of as many connections come through, where some were tried.
    pub through: Option<usize>,
    /// Why the API server takes one of them not, in its words.
    pub refused: Option<String>,
}

impl Clients {
    /// Those of these Deployments that are not at rest. The first client's is the first.
    pub(super) fn of<'a>(deployments: impl IntoIterator<Item = Option<&'a Deployment>>) -> Self {
        let works = |client: &&Deployment| client.spec.replicas != Some(0);
        let runs = |client: &Deployment| {
            let status = client.status.as_ref();
            status.is_some_and(|status| status.available_replicas.unwrap_or(0) > 0)
        };
        let all = deployments.into_iter().map(|client| Some(runs(client.filter(works)?)));
        let all: Vec<_> = all.collect();
        let available = all.iter().filter(|runs| **runs == Some(true)).count();
        let first = all.first() == Some(&Some(true));
        Self { wanted: all.iter().flatten().count(), available, first, ..Self::default() }
    }

    /// Whether there may be one that serves.
    pub(super) fn serve(&self, spec: &TunnelSpec) -> bool {
        let has_tcp = spec.ports.iter().any(|port| port.protocol == Protocol::Tcp);
        if has_tcp { self.available > 0 } else { self.first }
    }

    /// Whether all of several are connected and lead to the Service; of one the address says it.
    pub(super) fn finding(&self, spec: &TunnelSpec) -> Option<Finding> {
        let Self { wanted, available, first, connected, through, ref refused } = *self;
        let (live, what) = match connected {
            Some(Some(live)) => (live, "connected"),
            Some(None) | None => (available, "running"),
        };
        let are = if live == 1 { "is" } else { "are" };
        let mut message = format!("{live} of {wanted} clients {are} {what}");
        if connected == Some(None) {
            message += "; the host does not say how many are connected";
        }
        let lost = through.filter(|through| *through < wanted);
        if let Some(through) = lost {
            let come = if through == 1 { "comes" } else { "come" };
            message += &format!(
                "; {through} of {wanted} connections {come} through: a client does not reach the Service"
            );
        }
        let has_udp = spec.ports.iter().any(|port| port.protocol == Protocol::Udp);
        if has_udp && !first {
            message += "; UDP waits for the first one";
        }
        if let Some(why) = refused {
            message += &format!("; {why}");
        }
        let is_told = connected != Some(None);
        let holds = live >= wanted && is_told && lost.is_none() && refused.is_none();
        let reason = if holds { "Complete" } else { "Incomplete" };
        (wanted > 1).then_some(Finding { type_: CLIENTS, holds, reason, message })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::TunnelPort;

    fn of(replicas: i32, available: Option<i32>) -> Deployment {
        let spec = json!({"replicas": replicas, "selector": {}, "template": {}});
        let deployment = json!({"spec": spec, "status": {"availableReplicas": available}});
        serde_json::from_value::<Deployment>(deployment).unwrap()
    }

    fn spec(protocols: &[Protocol]) -> TunnelSpec {
        let port = |protocol: &Protocol| TunnelPort { port: 53, protocol: *protocol };
        TunnelSpec { ports: protocols.iter().map(port).collect(), ..TunnelSpec::default() }
    }

    #[test]
    fn a_client_at_rest_is_no_client() {
        let tcp = spec(&[Protocol::Tcp]);
        let all = [of(1, Some(1)), of(1, None), of(0, Some(1))];
        let clients = Clients::of(all.iter().map(Some));
        let expect = Clients { wanted: 2, available: 1, first: true, ..Clients::default() };
        assert_eq!(clients, expect);
        assert!(clients.serve(&tcp) && !Clients::of(all[1..].iter().map(Some)).serve(&tcp));
        let one = Clients::of(all[..1].iter().map(Some));
        assert_eq!(one.finding(&tcp).map(|found| found.message), None);
    }

    /// The others have none.
    #[test]
    fn udp_waits_for_the_first_client() {
        let (udp, both) = (spec(&[Protocol::Udp]), spec(&[Protocol::Udp, Protocol::Tcp]));
        let (first, second) = (of(1, None), of(1, Some(1)));
        let clients = Clients::of([Some(&first), Some(&second)]);
        assert!(clients.serve(&both) && !clients.serve(&udp));
        let told = clients.finding(&both).unwrap();
        assert_eq!(told.message, "1 of 2 clients is running; UDP waits for the first one");
        assert!(!Clients::of([None, Some(&second)]).serve(&udp));
        assert!(Clients::of([Some(&second), Some(&first)]).serve(&udp));
    }

    /// The host counts such a client as connected, for its own question comes through it.
    #[test]
    fn a_client_that_does_not_reach_its_service_is_missed() {
        let tcp = spec(&[Protocol::Tcp]);
        let all =
            Clients { wanted: 2, available: 2, connected: Some(Some(2)), ..Clients::default() };
        assert!(Clients { through: Some(2), ..all.clone() }.finding(&tcp).unwrap().holds);
        let told = Clients { through: Some(1), ..all }.finding(&tcp).unwrap();
        assert!(!told.holds);
        let expect = "2 of 2 clients are connected; 1 of 2 connections comes through: a client does not reach \
                      the Service";
        assert_eq!(told.message, expect);
    }
}
