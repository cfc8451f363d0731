//! Processes as hosts: a program that does nothing stands in for rathole.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::*;
use crate::api::{Placement, Protocol, TunnelPort};
use crate::credentials::Credentials;
use crate::names::{cluster_tag, tags, tunnel_tag};

fn wanted() -> HostRequest {
    let ports = vec![TunnelPort { port: 80, protocol: Protocol::Tcp }];
    let exit = Exit {
        credentials: Credentials::draw().unwrap(),
        ports,
        archives: Default::default(),
        address: None,
        clients: 1,
    };
    let mut tags = tags("cluster", "uid", "ns", "web-tunnel");
    tags.push(exit_tag(exit.digest()));
    let placement = Placement {
        provider: "local".to_owned(),
        endpoint: None,
        region: "here".to_owned(),
        size: "process".to_owned(),
        account: None,
        token_key: None,
    };
    HostRequest {
        name: "leasehold-uid".to_owned(),
        tags,
        placement,
        exit,
        ipv6: true,
        now: "2026-11-22T12:00:00Z".parse().unwrap(),
    }
}

/// Hosts whose programs do nothing for a while.
fn hosts(folder: &Path) -> Processes {
    let program = folder.join("program");
    fs::write(&program, "#!/bin/sh\nsleep 20\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let programs = Programs { rathole: Some(program.clone()), haproxy: Some(program) };
    Processes { folder: folder.join("hosts"), programs }
}

/// The host once `come` is true of it.
async fn until(hosts: &Processes, come: impl Fn(&Host) -> bool) -> Host {
    let looking = async {
        loop {
            let found = hosts.get("leasehold-uid".to_owned()).await.unwrap();
            if let Some(host) = found.filter(&come) {
                return host;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), looking).await.unwrap()
}

#[tokio::test]
async fn a_host_is_made_once_found_by_its_tag_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = hosts(folder.path());
    assert_eq!(hosts.list_by_tag(tunnel_tag("uid")).await.unwrap(), []);

    let made = hosts.create(wanted()).await.unwrap();
    assert_eq!((made.state, made.tunnel.as_deref()), (State::Starting, Some("uid")));
    assert!(made.has(&tunnel_tag("uid")) && made.has(&cluster_tag("cluster")));
    assert!(!made.has(&tunnel_tag("cluster")) && !made.has(&exit_tag("uid".to_owned())));
    assert!(made.address.clone().unwrap().starts_with("127."));
    let made = until(&hosts, |host| host.state == State::Running).await;
    assert_eq!(hosts.create(wanted()).await.unwrap(), made, "though with another key");
    let found = hosts.list_by_tag(tunnel_tag("uid")).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&made));
    assert_eq!(hosts.list_by_tag(tunnel_tag("other")).await.unwrap(), []);

    for _ in 0..2 {
        hosts.delete(made.id.clone()).await.unwrap();
        assert_eq!(hosts.get(made.id.clone()).await.unwrap(), None);
    }
}

/// The first step ends the process, and the next one that finds none starts another.
#[tokio::test]
async fn a_host_is_stopped_and_then_runs_what_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = hosts(folder.path());
    hosts.create(wanted()).await.unwrap();
    let made = until(&hosts, |host| host.state == State::Running).await;
    let home = hosts.folder.join(&made.id);
    let before = processes(&home.join(CONFIG));
    let mut other = wanted().exit;
    other.credentials = Credentials::draw().unwrap();
    let reconfigure = async || {
        hosts.reconfigure(made.id.clone(), other.clone()).unwrap().await.unwrap();
    };
    reconfigure().await;
    let stopped = until(&hosts, |host| host.state == State::Stopped).await;
    assert_eq!(stopped.exit, made.exit, "not before it runs");
    reconfigure().await;
    let told = until(&hosts, |host| host.state == State::Running).await;
    assert_eq!(told, Host { exit: Some(other.digest()), ..made.clone() });
    let after = processes(&home.join(CONFIG));
    assert!(after.iter().all(|pid| !before.contains(pid)), "{before:?} {after:?}");
    let config = fs::read_to_string(home.join(CONFIG)).unwrap();
    assert_eq!(config, other.config(&addresses(&home, &made.address.unwrap())));
    hosts.delete(made.id).await.unwrap();
}

/// Such a host runs once both of its processes do, and listens for everybody with the balancer alone.
#[tokio::test]
async fn a_host_with_several_clients_has_a_balancer() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = hosts(folder.path());
    let request = |clients| {
        let wanted = wanted();
        HostRequest { exit: Exit { clients, ..wanted.exit.clone() }, ..wanted }
    };
    hosts.create(request(2)).await.unwrap();
    let made = until(&hosts, |host| host.state == State::Running).await;
    let home = hosts.folder.join(&made.id);
    let [rathole, balancer] = [CONFIG, BALANCER].map(|name| home.join(name));
    let address = made.address.clone().unwrap();
    let told = fs::read_to_string(&balancer).unwrap();
    assert!(told.contains(&format!("    bind {address}:80\n")), "{told}");
    let config = fs::read_to_string(&rathole).unwrap();
    assert!(!config.contains("tcp-80]") && config.contains("tcp-80-1]"));
    for pid in processes(&balancer) {
        kill_process(pid, Signal::KILL).unwrap();
    }
    until(&hosts, |host| host.state == State::Stopped).await;
    // One client again: the first step ends what is left, the next starts rathole alone.
    let alone = async || {
        let exit = request(1).exit;
        hosts.reconfigure(made.id.clone(), exit).unwrap().await.unwrap();
    };
    alone().await;
    until(&hosts, |_| processes(&rathole).is_empty()).await;
    alone().await;
    until(&hosts, |host| host.state == State::Running).await;
    assert!(!balancer.exists());
    let none = Programs { haproxy: None, ..hosts.programs.clone() };
    let hosts = Processes { programs: none, ..hosts };
    let failure = hosts.reconfigure(made.id.clone(), request(2).exit).unwrap().await.unwrap_err();
    assert!(failure.message.contains("LEASEHOLD_HAPROXY"), "{failure}");
    hosts.delete(made.id).await.unwrap();
}

#[tokio::test]
async fn what_is_missing_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let programs = Programs { rathole: None, haproxy: None };
    let hosts = Processes { folder: folder.path().to_owned(), programs };
    let failure = hosts.create(wanted()).await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "local says: provider local needs the program rathole: put it into PATH, or name it in \
         LEASEHOLD_RATHOLE"
    );
    let failure = Local::Forbidden.provider().err().unwrap();
    assert!(failure.message.contains("LEASEHOLD_TUNNEL_LOCAL=1"), "{failure}");
}

/// The host that is given an address listens there, and so does the next one.
#[tokio::test]
async fn an_address_is_reserved_once_given_to_a_host_and_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = hosts(folder.path());
    let request = || AddressRequest {
        name: "leasehold-uid".to_owned(),
        tags: tags("cluster", "uid", "ns", "web-tunnel"),
        region: "here".to_owned(),
        host: None,
        now: wanted().now,
    };
    assert_eq!(hosts.addresses().await.unwrap(), []);
    let reserved = hosts.reserve(request()).await.unwrap();
    assert_eq!(hosts.reserve(request()).await.unwrap(), reserved);
    assert_eq!(hosts.addresses().await.unwrap(), std::slice::from_ref(&reserved));
    assert_eq!(
        (reserved.tunnel.as_deref(), reserved.cluster.as_deref()),
        (Some("uid"), Some("cluster"))
    );
    for _ in 0..2 {
        hosts.create(wanted()).await.unwrap();
        let made = until(&hosts, |host| host.state == State::Running).await;
        assert_ne!(made.address.as_ref(), Some(&reserved.ip));
        for _ in 0..2 {
            hosts.assign(reserved.id.clone(), made.id.clone()).await.unwrap();
        }
        let is_there = |host: &Host| {
            host.state == State::Running && host.address.as_ref() == Some(&reserved.ip)
        };
        until(&hosts, is_there).await;
        let config = fs::read_to_string(hosts.folder.join(&made.id).join(CONFIG)).unwrap();
        assert_eq!(config, wanted_config(&config, &reserved.ip));
        assert_eq!(hosts.addresses().await.unwrap()[0].host.as_ref(), Some(&made.id));
        hosts.delete(made.id).await.unwrap();
    }
    for _ in 0..2 {
        hosts.release(reserved.id.clone()).await.unwrap();
        assert_eq!(hosts.addresses().await.unwrap(), []);
    }
}

/// A configuration in which every address that is listened on is this one.
fn wanted_config(config: &str, ip: &str) -> String {
    let lines = config.lines().map(|line| match line.split_once("bind_addr = \"") {
        Some((_, address)) => {
            let (_, port) = address.split_once(':').unwrap();
            format!("bind_addr = \"{ip}:{port}\n")
        }
        None => format!("{line}\n"),
    });
    lines.collect()
}
