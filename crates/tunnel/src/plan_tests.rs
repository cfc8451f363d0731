//! The next step as a table, and the statuses as a snapshot.

use super::*;
use crate::api::TunnelSpec;

/// The only client, whose Pod runs.
const RUNS: Option<Clients> = Some(Clients {
    wanted: 1,
    available: 1,
    first: true,
    connected: None,
    through: None,
    refused: None,
});

fn now() -> Timestamp {
    "2026-11-22T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Option<Time> {
    Some(Time(now() - jiff::SignedDuration::from_secs(seconds)))
}

fn placement(region: &str) -> Placement {
    Placement {
        provider: "digitalocean".to_owned(),
        endpoint: None,
        region: region.to_owned(),
        size: "small".to_owned(),
        account: None,
        token_key: None,
    }
}

fn host(id: &str, state: State, address: Option<&str>) -> Host {
    Host {
        id: id.to_owned(),
        state,
        address: address.map(str::to_owned),
        ipv6: None,
        created: Some(now()),
        tunnel: Some("uid".to_owned()),
        cluster: None,
        exit: Some("web".to_owned()),
    }
}

fn tunnel(status: TunnelStatus) -> Tunnel {
    let mut tunnel = Tunnel::new(
        "web-tunnel",
        TunnelSpec { service_name: "web".to_owned(), ..TunnelSpec::default() },
    );
    tunnel.metadata.generation = Some(1);
    let status =
        TunnelStatus { placement: Some(placement("fra1")), observed_generation: Some(1), ..status };
    tunnel.status = Some(status);
    tunnel
}

fn marked(seconds: i64) -> TunnelStatus {
    TunnelStatus { creating_since: ago(seconds), ..TunnelStatus::default() }
}

fn recorded(id: &str, seconds: i64) -> TunnelStatus {
    TunnelStatus {
        host_id: Some(id.to_owned()),
        host_since: ago(seconds),
        ..TunnelStatus::default()
    }
}

fn word(step: &Step) -> String {
    match step {
        Step::Create => "create".to_owned(),
        Step::Await(wait) => format!("await {}", wait.as_secs()),
        Step::Follow(host) => format!("follow {}", host.id),
        Step::Connect { host, address } => format!("connect {} {address}", host.id),
        Step::Lost(id) => format!("lost {id}"),
        Step::Outdated(host) => format!("outdated {}", host.id),
        Step::Switch { host, address } => format!("switch {} {address}", host.id),
        Step::GiveUp(host) => format!("give up {}", host.id),
        Step::Discard(hosts) => {
            let ids: Vec<_> = hosts.iter().map(|host| &*host.id).collect();
            format!("discard {}", ids.join(" "))
        }
    }
}

#[test]
fn the_next_step() {
    use State::{Leaving, Running, Starting, Stopped, Unclear};
    let none = TunnelStatus::default;
    let served = |off: Option<Time>| TunnelStatus {
        host_ip: Some("1.2.3.4".to_owned()),
        stopped_since: off,
        ..recorded("1", 600)
    };
    let refused = |seconds: i64| TunnelStatus { retry_at: ago(-seconds), ..none() };
    let starts =
        |seconds: i64| TunnelStatus { starting_since: ago(seconds), ..recorded("1", seconds) };
    let ip = Some("1.2.3.4");
    for (case, status, hosts, expect) in [
        ("nothing yet", none(), vec![], "create"),
        ("refused a while ago", refused(300), vec![], "await 300"),
        ("refused long ago", refused(-1), vec![], "create"),
        ("refused by a clock that was ahead", refused(7_200), vec![], "create"),
        ("asked, not seen", marked(5), vec![], "await 10"),
        ("asked, the grace time nearly over", marked(115), vec![], "await 5"),
        ("asked, never seen", marked(120), vec![], "create"),
        ("asked by a clock a little ahead", marked(-60), vec![], "await 10"),
        ("asked by a clock that was ahead", marked(-7_200), vec![], "create"),
        ("asked, and seen", marked(5), vec![host("1", Starting, None)], "follow 1"),
        ("made without our hearing", none(), vec![host("1", Running, ip)], "connect 1 1.2.3.4"),
        ("runs without address", recorded("1", 5), vec![host("1", Running, None)], "follow 1"),
        ("missing right after", recorded("1", 5), vec![], "await 10"),
        ("missing", recorded("1", 600), vec![], "lost 1"),
        ("on its way out", recorded("1", 600), vec![host("1", Leaving, ip)], "lost 1"),
        ("off at one look", recorded("1", 600), vec![host("1", Stopped, ip)], "follow 1"),
        ("off, and it served", served(None), vec![host("1", Stopped, ip)], "connect 1 1.2.3.4"),
        ("off a while", served(ago(179)), vec![host("1", Stopped, ip)], "connect 1 1.2.3.4"),
        ("off for minutes", served(ago(180)), vec![host("1", Stopped, ip)], "discard 1"),
        ("on again", served(ago(180)), vec![host("1", Running, ip)], "connect 1 1.2.3.4"),
        ("starts for a while", starts(899), vec![host("1", Starting, None)], "follow 1"),
        ("starts for ever", starts(900), vec![host("1", Starting, None)], "discard 1"),
        ("started after all", starts(900), vec![host("1", Running, ip)], "connect 1 1.2.3.4"),
        ("starts anew", recorded("1", 99_999), vec![host("1", Starting, ip)], "follow 1"),
        ("another one starts", starts(900), vec![host("2", Starting, None)], "follow 2"),
        ("nobody knows", served(None), vec![host("1", Unclear, ip)], "connect 1 1.2.3.4"),
        ("nobody knows of a new one", marked(5), vec![host("1", Unclear, ip)], "follow 1"),
        (
            "of two that are not on record one is off",
            marked(5),
            vec![host("1", Stopped, ip), host("2", Running, ip)],
            "discard 1",
        ),
        (
            "two, of which one is on record",
            recorded("2", 600),
            vec![host("1", Running, ip), host("2", Running, ip)],
            "discard 1",
        ),
        (
            "two, of which none is on record",
            marked(5),
            vec![host("10", Starting, None), host("9", Starting, None)],
            "discard 10",
        ),
    ] {
        let found = next(&tunnel(status), &placement("fra1"), &["web"], &hosts, now());
        assert_eq!(word(&found), expect, "{case}");
    }
}

/// What a look shows is recorded, so that the next one knows.
#[test]
fn a_host_that_is_off_is_on_record_until_it_is_on() {
    let active = |state| Outcome::Active {
        host: host("1", state, Some("1.2.3.4")),
        at: placement("fra1"),
        address: "1.2.3.4".to_owned(),
        closed: None,
        ipv6: None,
    };
    let mut tunnel = tunnel(recorded("1", 600));
    let mut looks = |state, at| {
        tunnel.status = Some(status(&tunnel, &active(state), None, at));
        tunnel.status.clone().unwrap().stopped_since.map(|since| since.0)
    };
    let later = now() + jiff::SignedDuration::from_secs(170);
    assert_eq!(looks(State::Stopped, now()), Some(now()));
    assert_eq!(looks(State::Stopped, later), Some(now()));
    assert_eq!(looks(State::Unclear, later), None);
    assert_eq!(looks(State::Stopped, later), Some(later));
    assert_eq!(looks(State::Running, later), None);
}

#[test]
fn another_place_discards_the_host_and_then_asks_there() {
    let there = placement("ams3");
    let hosts = [host("1", State::Running, Some("1.2.3.4"))];
    let found = next(&tunnel(recorded("1", 600)), &there, &["web"], &hosts, now());
    assert_eq!(word(&found), "discard 1");
    let unseen = next(&tunnel(marked(5)), &there, &["web"], &[], now());
    assert_eq!(word(&unseen), "await 10", "one may still appear in the first place");
    assert_eq!(
        word(&next(&tunnel(TunnelStatus::default()), &there, &["web"], &[], now())),
        "create"
    );
}

#[test]
fn a_host_that_runs_something_else_is_outdated() {
    use State::{Leaving, Running, Starting, Stopped};
    let ip = Some("1.2.3.4");
    let host = |id: &str, state, exit: Option<&str>| Host {
        exit: exit.map(str::to_owned),
        ..host(id, state, ip)
    };
    for (case, status, hosts, expect) in [
        ("the same", recorded("1", 9), vec![host("1", Running, Some("web"))], "connect 1 1.2.3.4"),
        ("other ports", recorded("1", 9), vec![host("1", Running, Some("dns"))], "outdated 1"),
        ("not known", recorded("1", 9), vec![host("1", Running, None)], "outdated 1"),
        (
            "still being made",
            recorded("1", 5),
            vec![host("1", Starting, Some("dns"))],
            "outdated 1",
        ),
        (
            "stopped meanwhile",
            recorded("1", 9),
            vec![host("1", Stopped, Some("dns"))],
            "outdated 1",
        ),
        ("on its way out", recorded("1", 600), vec![host("1", Leaving, Some("dns"))], "lost 1"),
        (
            "another runs in its place",
            recorded("1", 9),
            vec![host("1", Running, Some("dns")), host("2", Running, Some("web"))],
            "switch 2 1.2.3.4",
        ),
        (
            "another is being made",
            recorded("1", 9),
            vec![host("1", Running, Some("dns")), host("2", Starting, Some("web"))],
            "await 10",
        ),
        (
            "another should have been made long ago",
            recorded("1", 9),
            vec![
                host("1", Running, Some("dns")),
                Host { created: ago(900).map(|at| at.0), ..host("2", Starting, Some("web")) },
            ],
            "give up 2",
        ),
        (
            "another was asked for",
            TunnelStatus { creating_since: ago(5), ..recorded("1", 9) },
            vec![host("1", Running, Some("dns"))],
            "await 10",
        ),
        (
            "another was refused",
            TunnelStatus { retry_at: ago(-300), ..recorded("1", 9) },
            vec![host("1", Running, Some("dns"))],
            "await 300",
        ),
        (
            "two others",
            recorded("1", 9),
            vec![
                host("1", Running, Some("dns")),
                host("2", Running, Some("web")),
                host("3", Running, Some("web")),
            ],
            "discard 3",
        ),
        (
            "a double that is outdated",
            recorded("1", 9),
            vec![host("1", Running, Some("web")), host("2", Running, Some("dns"))],
            "discard 2",
        ),
    ] {
        let found = next(&tunnel(status), &placement("fra1"), &["web"], &hosts, now());
        assert_eq!(word(&found), expect, "{case}");
    }
}

#[test]
fn a_changed_spec_is_tried_at_once() {
    let mut tunnel = tunnel(TunnelStatus { retry_at: ago(-600), ..TunnelStatus::default() });
    tunnel.metadata.generation = Some(2);
    assert_eq!(word(&next(&tunnel, &placement("fra1"), &["web"], &[], now())), "create");
}

#[test]
fn a_tunnel_goes_when_no_host_can_be_left() {
    let running = host("1", State::Running, None);
    let leaving = host("1", State::Leaving, None);
    for (case, status, hosts, expect) in [
        ("a host", recorded("1", 9), vec![running.clone()], Cleanup::Delete(vec![running.clone()])),
        ("on its way out", recorded("1", 9), vec![leaving], Cleanup::Await(POLL)),
        ("none", recorded("1", 9), vec![], Cleanup::Release),
        ("asked for, not seen", marked(30), vec![], Cleanup::Await(POLL)),
        ("asked for, never seen", marked(130), vec![], Cleanup::Release),
    ] {
        assert_eq!(cleanup(&status, &hosts, now()), expect, "{case}");
    }
}

#[test]
fn what_the_status_tells() {
    let running = host("7", State::Running, Some("1.2.3.4"));
    let active = Outcome::Active {
        host: running,
        at: placement("fra1"),
        address: "1.2.3.4".to_owned(),
        closed: None,
        ipv6: None,
    };
    let told = |outcome: &Outcome, clients| status(&tunnel(marked(5)), outcome, clients, now());
    insta::assert_yaml_snapshot!(
        "statuses",
        [
            told(&Outcome::Creating(placement("fra1")), None),
            told(
                &Outcome::Provisioning {
                    host: host("7", State::Starting, None),
                    at: placement("fra1")
                },
                None
            ),
            told(&active, None),
            told(&active, RUNS),
            told(&Outcome::Gone { reason: "HostLost", message: "gone".to_owned() }, None),
            told(
                &Outcome::NotCreated { obstacle: Some(("QuotaExceeded", "full".to_owned())) },
                None
            ),
        ]
    );
}

#[test]
fn a_host_that_serves_is_as_it_was_while_nothing_can_be_done_about_it() {
    let recorded = tunnel(TunnelStatus {
        host_ip: Some("1.2.3.4".to_owned()),
        host_status: Some(HostStatus::Active),
        creating_since: ago(9),
        ..recorded("7", 9)
    });
    for (closed, clients, expect) in [
        (None, RUNS, "Ready True Connected"),
        (Some("1.2.3.4:80: refused"), RUNS, "Ready False Unreachable"),
        (None, None, "Ready False ClientUnavailable"),
    ] {
        let outcome = Outcome::Serving {
            obstacle: Some(("TokenRefused", "renew it".to_owned())),
            address: "1.2.3.4".to_owned(),
            closed: closed.map(str::to_owned),
            ipv6: None,
        };
        let mut told = status(&recorded, &outcome, clients.clone(), now());
        let conditions = std::mem::take(&mut told.conditions);
        let said: Vec<_> =
            conditions.iter().map(|c| format!("{} {} {}", c.type_, c.status, c.reason)).collect();
        assert_eq!(said, [expect, "Managed False TokenRefused"]);
        assert_eq!(Some(&told), recorded.status.as_ref());
        // What fails after that changes nothing of it, and acts on no other spec.
        let mut edited = recorded.clone();
        edited.metadata.generation = Some(2);
        edited.status = Some(TunnelStatus { conditions: conditions.clone(), ..told });
        let Outcome::Serving { address, closed, ipv6, .. } = outcome else { unreachable!() };
        let outcome = Outcome::Serving { obstacle: None, address, closed, ipv6 };
        let told = status(&edited, &outcome, clients, now());
        assert_eq!(told.observed_generation, Some(1));
        let still =
            told.conditions.iter().map(|c| format!("{} {} {}", c.type_, c.status, c.reason));
        assert_eq!(still.collect::<Vec<_>>(), said);
    }
}

/// Nothing of the second address changes what is said of the first.
#[test]
fn what_the_status_tells_of_ipv6() {
    let at = Ipv6::of("2a01:4f8::1".parse().ok());
    let closed = at.clone().tried(Some("refused".to_owned()));
    for (ipv6, clients, address, expect) in [
        (None, RUNS, None, &["Ready True Connected"][..]),
        (
            Some(at.clone()),
            RUNS,
            Some("2a01:4f8::1"),
            &["Ready True Connected", "IPv6 True Connected"],
        ),
        (
            Some(closed),
            RUNS,
            Some("2a01:4f8::1"),
            &["Ready True Connected", "IPv6 False Unreachable"],
        ),
        (Some(Ipv6::None), RUNS, None, &["Ready True Connected", "IPv6 False NoIPv6Address"]),
        (
            Some(at),
            None,
            Some("2a01:4f8::1"),
            &["Ready False ClientUnavailable", "IPv6 False ClientUnavailable"],
        ),
    ] {
        let active = Outcome::Active {
            host: host("7", State::Running, Some("1.2.3.4")),
            at: placement("fra1"),
            address: "1.2.3.4".to_owned(),
            closed: None,
            ipv6,
        };
        let mut before = tunnel(recorded("7", 9));
        let told = status(&before, &active, clients.clone(), now());
        let said = told.conditions.iter().map(|c| format!("{} {} {}", c.type_, c.status, c.reason));
        assert_eq!(said.collect::<Vec<_>>(), expect);
        assert_eq!(told.host_ipv6.as_deref(), address);
        // It goes with the host.
        before.status = Some(told);
        let gone = Outcome::Gone { reason: "HostLost", message: String::new() };
        assert_eq!(status(&before, &gone, clients, now()).host_ipv6, None);
    }
}

#[test]
fn what_the_status_tells_of_several_clients() {
    let clients = |available, connected| {
        let first = available > 0;
        Some(Clients { wanted: 2, available, first, connected, ..Clients::default() })
    };
    for (clients, expect) in [
        (clients(2, Some(Some(2))), "True Connected, True Complete 2 of 2 clients are connected"),
        (clients(2, Some(Some(1))), "True Connected, False Incomplete 1 of 2 clients is connected"),
        (clients(1, None), "True Connected, False Incomplete 1 of 2 clients is running"),
        (clients(2, None), "True Connected, True Complete 2 of 2 clients are running"),
        (
            clients(2, Some(None)),
            "True Connected, False Incomplete 2 of 2 clients are running; the host does not say how many are connected",
        ),
        (clients(0, None), "False ClientUnavailable, False Incomplete 0 of 2 clients are running"),
    ] {
        let active = Outcome::Active {
            host: host("7", State::Running, Some("1.2.3.4")),
            at: placement("fra1"),
            address: "1.2.3.4".to_owned(),
            closed: None,
            ipv6: None,
        };
        let told = status(&tunnel(recorded("7", 9)), &active, clients, now()).conditions;
        let [ready, all] = &told[..] else { panic!("{told:?}") };
        let said = format!(
            "{} {}, {} {} {}",
            ready.status, ready.reason, all.status, all.reason, all.message
        );
        assert_eq!((said.as_str(), all.type_.as_str()), (expect, "Clients"));
    }
    // Of a host that is gone nothing is said.
    let gone = Outcome::Gone { reason: "HostLost", message: String::new() };
    assert_eq!(
        status(&tunnel(marked(5)), &gone, clients(2, Some(Some(2))), now()).conditions.len(),
        1
    );
}

/// What was told is not told again: a status computed from the one on record is the same.
#[test]
fn a_status_is_stable() {
    let running = host("7", State::Running, Some("1.2.3.4"));
    let mut tunnel = tunnel(TunnelStatus::default());
    for outcome in [
        Outcome::Blocked { reason: "TokenMissing", message: "put it there".to_owned() },
        Outcome::Provisioning { host: host("7", State::Starting, None), at: placement("fra1") },
        Outcome::Active {
            host: running,
            at: placement("fra1"),
            address: "1.2.3.4".to_owned(),
            closed: None,
            ipv6: None,
        },
        Outcome::Serving {
            obstacle: Some(("TokenMissing", "put it there".to_owned())),
            address: "1.2.3.4".to_owned(),
            closed: None,
            ipv6: None,
        },
        Outcome::Deleting { message: "waiting".to_owned() },
    ] {
        tunnel.status = Some(status(&tunnel, &outcome, None, now()));
        let later = now() + jiff::SignedDuration::from_secs(600);
        assert_eq!(tunnel.status, Some(status(&tunnel, &outcome, None, later)), "{outcome:?}");
    }
}

#[test]
fn only_public_addresses_are_published() {
    for (address, public) in [
        ("10.0.0.2", false),
        ("172.16.3.4", false),
        ("192.168.1.1", false),
        ("100.64.0.1", false),
        ("169.254.169.254", false),
        ("127.0.0.1", false),
        ("0.0.0.0", false),
        ("224.0.0.1", false),
        ("255.255.255.255", false),
        ("fe80::1", false),
        ("metadata.internal", false),
        ("100.63.0.1", true),
        ("68.183.4.5", true),
    ] {
        assert_eq!(is_public(address), public, "{address}");
    }
}
