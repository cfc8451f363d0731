//! How several clients serve one host. rathole gives a service to the client that asked for it last, so each client
//! has services of its own, on a loopback address of its own, and haproxy passes connections to those that live. Pure.
//!
//! ```text
//!   anybody ──:80──▶ haproxy ─▶ 127.0.0.2:80 ──rathole──▶ client 0 ─▶ Service
//!                       │ └───▶ 127.0.0.3:80 ──rathole──▶ client 1 ─▶ Service
//!                       └check▶ 127.0.0.1:2341 ─rathole─▶ client 1 ─▶ host:2334 ─▶ haproxy
//! ```
//!
//! That rathole listens for a service says little of its client: it goes on until it misses it and one more connection
//! has come. It misses a client that ended within ten seconds, and one whose node was lost only when TCP gives up, a
//! quarter of an hour later. So haproxy asks itself something through each client.
//!
//! A host cannot be told the Service's ports. So its kernel leads every TCP port to haproxy, which connects to the same
//! port at a client's address. UDP, which haproxy does not pass on, is the first client's.
//!
//! haproxy and nft are packages of the host's distribution, whose signature apt checks. haproxy 2.6, 2.8 and 3.0 know
//! each word of the configuration, by their own documentation and source.

use std::fmt::Write;

use crate::api::{Protocol, TunnelPort};

/// The most clients that a Tunnel may have: a host knows every port once for each of them.
pub(crate) const MAX_CLIENTS: usize = 3;
/// Where haproxy listens, and where it says how many clients live. The only client of a host takes what comes there,
/// and closes it, which shows that it lives.
pub(crate) const BALANCE_PORT: i32 = 2334;
/// The port of the first client's check; those of the others follow.
const CHECK_PORT: usize = 2340;
/// The most connections at once, on a machine and beside the manager.
const CONNECTIONS: usize = 20_000;
const LOCAL_CONNECTIONS: usize = 1_000;

/// Installs haproxy and nft, and starts haproxy: what a machine with several clients does before it runs rathole.
pub(crate) const INSTALL: &str = "if ! [ -x /usr/sbin/haproxy ] || ! [ -x /usr/sbin/nft ]; then\n  \
     export DEBIAN_FRONTEND=noninteractive\n  systemctl mask haproxy.service\n  \
     apt-get -q -o DPkg::Lock::Timeout=60 update\n  \
     apt-get -qy -o DPkg::Lock::Timeout=60 --no-install-recommends install haproxy nftables\nfi\n\
     systemctl start leasehold-balance.service\n";

/// The service of haproxy on a machine, with the arguments of [`arguments`]. With `CAP_NET_RAW` it may take connections
/// to other ports than its own
/// (<https://www.kernel.org/doc/html/latest/networking/tproxy.html>).
pub(crate) const UNIT: &str = "[Unit]\nDescription=Balancer of a Tunnel's clients\n\n[Service]\nDynamicUser=yes\n\
     AmbientCapabilities=CAP_NET_RAW\nLimitNOFILE=1048576\n\
     ExecStartPre=+/usr/sbin/nft -f /etc/leasehold/balance.nft\n\
     ExecStart=/usr/sbin/haproxy -db -f /etc/leasehold/haproxy.cfg\nRestart=always\nRestartSec=1\n";

/// Where a host with several clients listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// For everybody.
    pub public: String,
    /// For the checks.
    own: String,
    /// For haproxy, of each client.
    clients: [String; MAX_CLIENTS],
}

impl Addresses {
    /// Those of a machine, which has all of its loopback addresses to itself.
    pub fn machine(public: &str) -> Self {
        let clients = std::array::from_fn(|client| format!("127.0.0.{}", 2 + client));
        Self { public: public.to_owned(), own: "127.0.0.1".to_owned(), clients }
    }

    /// Those of a process beside others, given loopback addresses of names.
    pub(crate) fn process(public: &str, name: &str, of: impl Fn(&str) -> String) -> Self {
        let clients = std::array::from_fn(|client| of(&format!("{name} client {client}")));
        Self { public: public.to_owned(), own: of(&format!("{name} checks")), clients }
    }

    /// Where rathole listens for a port of a client.
    pub(crate) fn port(&self, client: usize, port: i32) -> String {
        format!("{}:{port}", self.clients[client])
    }

    /// Where rathole listens for a client's check.
    pub(crate) fn check(&self, client: usize) -> String {
        format!("{}:{}", self.own, CHECK_PORT + client)
    }
}

/// Whether a Service has that port itself, which it may where its host has one client: this one is not asked then.
pub(crate) fn is_taken(ports: &[TunnelPort]) -> bool {
    ports.contains(&TunnelPort { port: BALANCE_PORT, protocol: Protocol::Tcp })
}

/// haproxy's arguments for a configuration file.
pub(crate) fn arguments(file: &str) -> [&str; 3] {
    ["-db", "-f", file]
}

/// The name that both ends use for a client's check.
pub(crate) fn check_name(client: usize) -> String {
    format!("check-{client}")
}

/// haproxy's configuration on a machine, which the kernel hands the connections to every port.
pub(crate) fn machine(clients: usize) -> String {
    let binds = [
        format!("0.0.0.0:{BALANCE_PORT} transparent"),
        format!("[::]:{BALANCE_PORT} transparent v6only"),
    ];
    config(clients, &Addresses::machine(""), &binds, CONNECTIONS)
}

/// haproxy's configuration beside the manager: it listens on these ports.
pub(crate) fn process(
    clients: usize,
    addresses: &Addresses,
    ports: impl Iterator<Item = i32>,
) -> String {
    let ports = std::iter::once(BALANCE_PORT).chain(ports);
    let binds: Vec<_> = ports.map(|port| format!("{}:{port}", addresses.public)).collect();
    config(clients, addresses, &binds, LOCAL_CONNECTIONS)
}

/// A connection lasts as long as its ends want, which 24 days stand for: haproxy counts no longer. A port that no client
/// has is closed within half a second, so that who waits longer knows that it is open.
fn config(clients: usize, addresses: &Addresses, binds: &[String], connections: usize) -> String {
    let mut text = format!(
        "global\n    maxconn {connections}\ndefaults\n    mode tcp\n    timeout connect 500ms\n    \
         timeout client 24d\n    timeout server 24d\n    timeout check 2s\n    timeout http-request 5s\n    \
         option clitcpka\n    option srvtcpka\n    option redispatch 1\n    retries 1\nfrontend tunnel\n"
    );
    for bind in binds {
        let _ = writeln!(text, "    bind {bind}");
    }
    let _ = write!(
        text,
        "    use_backend alive if {{ dst_port {BALANCE_PORT} }}\n    \
         use_backend clients if {{ nbsrv(clients) gt 0 }}\n    default_backend unchecked\n\
         backend clients\n    option httpchk GET /\n    http-check expect status 200\n    \
         default-server check inter 2s fastinter 500ms fall 2 rise 1 on-marked-down shutdown-sessions\n"
    );
    let clients: Vec<_> = addresses.clients.iter().enumerate().take(clients).collect();
    for (client, address) in &clients {
        let (own, port) = (&addresses.own, CHECK_PORT + client);
        let _ = writeln!(text, "    server {client} {address} addr {own} port {port}");
    }
    // Where none can be checked, as when clients may not connect to this port.
    text.push_str("backend unchecked\n");
    for (client, address) in clients {
        let _ = writeln!(text, "    server {client} {address}");
    }
    text.push_str(
        "backend alive\n    mode http\n    \
         http-request return status 200 content-type text/plain lf-string \"%[nbsrv(clients)]\"\n",
    );
    text
}

/// The rules by which a machine's kernel hands haproxy what comes from elsewhere to any TCP port but these.
pub(crate) fn rules(but: &[i32]) -> String {
    let but: Vec<_> = but.iter().map(ToString::to_string).collect();
    format!(
        "table inet leasehold\ndelete table inet leasehold\ntable inet leasehold {{\n    chain tunnel {{\n        \
         type filter hook prerouting priority mangle\n        iifname \"lo\" return\n        \
         fib daddr type local tcp dport != {{ {} }} tproxy to :{BALANCE_PORT} accept\n    }}\n}}\n",
        but.join(", ")
    )
}

/// The part of a machine's program that writes rathole's services of several clients; it must say what the
/// configuration of a process beside the manager says.
pub(crate) fn write_services(clients: usize, last_port: i32, but: &[i32], any: &str) -> String {
    let but: Vec<_> = but.iter().map(ToString::to_string).collect();
    let but = but.join(", ");
    format!(
        r#"    def serve(name, word, address):
        token = hmac.new(secret, name.encode(), "sha256").hexdigest()[:32]
        config.write(f'\n[server.services.{{name}}]\ntype = "{{word}}"\nbind_addr = "{{address}}"\n'
                     f'token = "{{token}}"\n')
    for client in range({clients}):
        serve(f"check-{{client}}", "tcp", f"127.0.0.1:{{{CHECK_PORT} + client}}")
        for port in range(1, {last_port} + 1):
            if port not in ({but}):
                serve(f"tcp-{{port}}-{{client}}", "tcp", f"127.0.0.{{2 + client}}:{{port}}")
    for port in range(1, {last_port} + 1):
        serve(f"udp-{{port}}", "udp", f"{any}:{{port}}")
"#
    )
}
