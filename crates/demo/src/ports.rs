//! The ports of the demo: consecutive ones from `--port`, or any free ones.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use model::ClusterName;

/// Ports from the first one to the replicas' admin ports: room for the clusters.
const ADMIN_PORT_OFFSET: u16 = 100;

/// Where everything listens, on loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    /// The home cluster's API server.
    pub home: SocketAddr,
    /// The workload clusters' API servers, in order.
    pub clusters: Vec<SocketAddr>,
    /// The replicas' probes and metrics, in order.
    pub replicas: Vec<SocketAddr>,
}

/// A port is not free.
#[derive(Debug, thiserror::Error)]
#[error(
    "listen on {address} for {user}: is another demo running? stop what uses the port, or give --port another first port (0 takes any free ones)"
)]
pub(crate) struct PortError {
    address: SocketAddr,
    user: String,
    #[source]
    source: std::io::Error,
}

impl Ports {
    /// Finds the ports and checks that all are free. They are released at once, for the servers and the
    /// replicas to take.
    ///
    /// # Errors
    /// The first port that is in use, and its intended user.
    pub(crate) fn find(
        first: u16,
        clusters: &[ClusterName],
        replicas: u16,
    ) -> Result<Self, PortError> {
        // All are held until the last one is found, so that no free port is found twice.
        let mut held = Vec::new();
        let mut take = |offset: u16, user: &dyn Fn() -> String| {
            let port = if first == 0 { 0 } else { first.saturating_add(offset) };
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let failed = |source| PortError { address, user: user(), source };
            let listener = TcpListener::bind(address).map_err(failed)?;
            let found = listener.local_addr().map_err(failed)?;
            held.push(listener);
            Ok(found)
        };
        let home = take(0, &|| "the home cluster".to_owned())?;
        let clusters = (1..)
            .zip(clusters)
            .map(|(offset, name)| take(offset, &|| format!("cluster {name}")))
            .collect::<Result<_, _>>()?;
        let replicas = (0..replicas)
            .map(|index| {
                let user = || format!("probes and metrics of replica-{index}");
                take(ADMIN_PORT_OFFSET + index, &user)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { home, clusters, replicas })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn clusters() -> Vec<ClusterName> {
        ["east", "west"].map(|name| name.parse().unwrap()).to_vec()
    }

    #[test]
    fn free_ports_are_all_different() {
        let ports = Ports::find(0, &clusters(), 3).unwrap();
        let all = [ports.home].into_iter().chain(ports.clusters).chain(ports.replicas);
        assert_eq!(all.map(|address| address.port()).collect::<BTreeSet<_>>().len(), 6);
    }

    #[test]
    fn a_port_in_use_is_named_with_its_intended_user() {
        let user = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = user.local_addr().unwrap().port();
        let error = Ports::find(port, &clusters(), 1).unwrap_err();
        let text = error.to_string();
        let expect = format!("listen on 127.0.0.1:{port} for the home cluster: is another demo");
        assert!(text.starts_with(&expect), "{text}");
    }
}
