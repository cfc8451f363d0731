//! What counts as a connection that comes through, and when it is tried.

use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn a_connection_that_stays_open_or_says_something_comes_through() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        comes_through(address).await;
    }
}

async fn comes_through(address: &str) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tried, held) = tokio::join!(connect(address, Proof::Open), listener.accept());
    assert_eq!(tried, Ok(()));
    drop(held);
    let closing = async { drop(listener.accept().await.unwrap()) };
    let (tried, ()) = tokio::join!(connect(address, Proof::End), closing);
    assert!(tried.unwrap_err().contains("no backend"));
    drop(listener);
    assert!(connect(address, Proof::End).await.unwrap_err().contains("refused"));
}

/// What a backend does with a connection.
#[derive(Clone, Copy, Debug)]
enum Habit {
    /// It reads until the end, and ends the connection then.
    Ends,
    /// It answers what it reads, and ends nothing.
    Answers,
    /// It speaks first.
    Speaks,
    /// It does nothing, as one that hangs, or to which no packet comes.
    Hangs,
    /// It takes none.
    Refuses,
}

/// Takes one connection. Returns it if it is still open.
async fn take(listener: &TcpListener, habit: Habit) -> Option<TcpStream> {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut heard = [0; 64];
    match habit {
        Habit::Ends => {
            while stream.read(&mut heard).await.unwrap() > 0 {}
            return None;
        }
        Habit::Answers => {
            if stream.read(&mut heard).await.unwrap() > 0 {
                stream.write_all(b"HTTP/1.1 200 OK").await.unwrap();
            }
        }
        Habit::Speaks => stream.write_all(b"SSH-2.0").await.unwrap(),
        Habit::Refuses => return None,
        Habit::Hangs => {}
    }
    Some(stream)
}

#[tokio::test]
async fn what_comes_back_shows_a_backend() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let short = Duration::from_millis(50);
    for (proof, habit, expect) in [
        (Proof::Open, Habit::Ends, None),
        (Proof::Open, Habit::Hangs, None),
        (Proof::Open, Habit::Refuses, Some("the Service has no backend")),
        (Proof::End, Habit::Ends, None),
        (Proof::End, Habit::Speaks, None),
        (Proof::End, Habit::Answers, Some("after the probe ended its half")),
        (Proof::End, Habit::Hangs, Some("after the probe ended its half")),
        (Proof::End, Habit::Refuses, Some("the Service has no backend")),
        (Proof::Answer, Habit::Answers, None),
        (Proof::Answer, Habit::Speaks, None),
        (Proof::Answer, Habit::Hangs, Some("after a request")),
    ] {
        // What comes by itself is waited for, and so is what has to come.
        let comes = matches!(habit, Habit::Speaks | Habit::Refuses);
        let patience = if comes { OPENING } else { short };
        let limit = if expect.is_none() { OPENING } else { short };
        let stream = TcpStream::connect(address).await.unwrap();
        let tried = prove(stream, proof, patience, limit);
        let (tried, _open) = tokio::join!(tried, take(&listener, habit));
        match expect {
            Some(says) => assert!(tried.unwrap_err().contains(says), "{proof:?} {habit:?}"),
            None => assert_eq!(tried, Ok(()), "{proof:?} {habit:?}"),
        }
    }
}

#[tokio::test]
async fn a_host_says_how_many_clients_are_connected() {
    for (answer, expect) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n2", Some(2)),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n2", None),
        ("HTTP/1.1 200 OK\r\n\r\nmany", None),
        ("SSH-2.0", None),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let says = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 64];
            let read = stream.read(&mut request).await.unwrap();
            assert_eq!(&request[..read], REQUEST);
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let asked = ask(listener.local_addr().unwrap());
        assert_eq!(tokio::join!(asked, says).0, expect, "{answer}");
    }
}

/// A host that has no such port, and one that answers for its clients, are not held against them.
#[tokio::test]
async fn a_client_that_hangs_is_told_from_one_that_closes_what_comes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let short = Duration::from_millis(100);
    let (tried, held) = tokio::join!(check(address, short), listener.accept());
    assert!(tried.unwrap_err().contains("nothing comes back"));
    drop(held);
    let closing = async { drop(listener.accept().await.unwrap()) };
    let (tried, ()) = tokio::join!(check(address, OPENING), closing);
    assert_eq!(tried, Ok(()));
    let saying = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK").await.unwrap();
        stream
    };
    let (tried, _open) = tokio::join!(check(address, OPENING), saying);
    assert_eq!(tried, Ok(()));
    drop(listener);
    assert_eq!(check(address, OPENING).await, Ok(()));
}

#[test]
fn a_replica_without_ipv6_says_so() {
    let [v4, v6] = ["68.183.4.5:80", "[2a01:4f8::1]:80"].map(|to| to.parse().unwrap());
    for (errno, to, expect) in [
        (Errno::NETUNREACH, v6, true),
        (Errno::ADDRNOTAVAIL, v6, true),
        (Errno::AFNOSUPPORT, v6, true),
        (Errno::CONNREFUSED, v6, false),
        (Errno::NETUNREACH, v4, false),
    ] {
        let told = why(to, &io::Error::from(errno));
        assert_eq!(told.contains("replica has no IPv6 route"), expect, "{told}");
    }
}

#[test]
fn an_ipv6_address_is_looked_at_once_a_try_shows_something_else() {
    let ipv6 = |closed: Option<&str>| {
        let known = Ipv6::At { address: String::new(), closed: closed.map(str::to_owned) };
        let address = String::new();
        At {
            address,
            ipv6: Some(known),
            tries: 2,
            through: 2,
            clients: Some(Some(2)),
            proof: Proof::End,
        }
    };
    let (opens, fails) = (Ok(()), Err("refused".to_owned()));
    let is_still = |at: At, tried: &Result<(), String>| at.is_still(2, Some(tried), Some(Some(2)));
    assert!(is_still(ipv6(None), &opens) && !is_still(ipv6(None), &fails));
    assert!(is_still(ipv6(Some("")), &fails) && !is_still(ipv6(Some("")), &opens));
    assert!(At { ipv6: Some(Ipv6::None), ..ipv6(None) }.is_still(2, None, Some(Some(2))));
    // So it is once another number of clients is connected, or of connections comes through.
    assert!(!ipv6(None).is_still(2, Some(&opens), Some(Some(1))));
    assert!(!ipv6(None).is_still(1, Some(&opens), Some(Some(2))));
    // And once the host does not say it, or says it again.
    let silent = At { clients: Some(None), ..ipv6(None) };
    assert!(!ipv6(None).is_still(2, Some(&opens), Some(None)));
    assert!(!silent.is_still(2, Some(&opens), Some(Some(2))));
}

/// A backend is missed by all of a host's clients alike, and a client that hangs is named.
#[tokio::test]
async fn each_connection_has_to_show_what_is_asked_for() {
    let ports = [TunnelPort { port: 80, protocol: Protocol::Tcp }];
    let at = |tries, proof| At {
        address: "127.0.0.1".to_owned(),
        ipv6: None,
        tries,
        through: 0,
        clients: None,
        proof,
    };
    let probe = Probe::proving(|_, proof| {
        let shown = if proof == Proof::Open { Ok(()) } else { Err("silence".to_owned()) };
        future::ready(shown).boxed()
    });
    let silent = Err("127.0.0.1:80: silence".to_owned());
    for (tries, proof, expect) in [
        (1, Proof::Open, Ok(1)),
        (2, Proof::Open, Ok(2)),
        (1, Proof::End, silent.clone()),
        (2, Proof::Answer, silent),
    ] {
        assert_eq!(probe.both(&at(tries, proof), &ports).await.0, Some(expect), "{proof:?}");
    }
    let hangs = probe.checking(|_| future::ready(Err("nothing".to_owned())).boxed());
    let told = hangs.both(&at(1, Proof::End), &ports).await.0.unwrap().unwrap_err();
    assert!(told.contains("the client hangs"), "{told}");
}

/// What becomes of a datagram only its receiver knows, and whether both ends of the tunnel live anybody sees.
#[tokio::test]
async fn udp_alone_comes_through_while_both_ends_live() {
    let ports = [TunnelPort { port: 53, protocol: Protocol::Udp }];
    let at = |tries| At {
        address: "127.0.0.1".to_owned(),
        ipv6: None,
        tries,
        through: 0,
        clients: None,
        proof: Proof::End,
    };
    let lives = Probe::proving(|to, proof| {
        let is_host = to.port() == 2333 && proof == Proof::Open;
        future::ready(if is_host { Ok(()) } else { Err("another port".to_owned()) }).boxed()
    });
    assert_eq!(lives.both(&at(1), &ports).await, (Some(Ok(1)), None));
    assert_eq!(lives.both(&at(2), &ports).await, (Some(Ok(2)), None));
    let hangs = lives.checking(|_| future::ready(Err("nothing".to_owned())).boxed());
    let told = hangs.both(&at(1), &ports).await.0.unwrap().unwrap_err();
    assert!(told.contains("the client hangs"), "{told}");
    let dead = Probe::through(|_| future::ready(Err("refused".to_owned())).boxed());
    let told = Err("127.0.0.1:2333: refused".to_owned());
    assert_eq!(dead.both(&at(1), &ports).await, (Some(told), None));
}

#[test]
fn of_several_connections_one_is_enough() {
    let (opens, fails) = (|| Some(Ok(())), || Some(Err("refused".to_owned())));
    assert_eq!(through(vec![opens(), fails()]), Some(Ok(1)));
    assert_eq!(through(vec![fails(), fails()]), Some(Err("refused".to_owned())));
    assert_eq!(through(vec![opens()]), Some(Ok(1)));
    assert_eq!(through(vec![None, None]), None);
}

#[test]
fn a_tunnel_is_looked_at_as_a_whole_before_it_is_due_and_after_its_time() {
    let at = |s: i64| Timestamp::from_second(s).unwrap();
    let schedule = Schedule::default();
    let is_due = |tunnel, second| schedule.due(tunnel, at(second)).is_some();
    let found = |tunnel: &str, second, check| {
        let address = "203.0.113.7".to_owned();
        let proof = Proof::End;
        let there = At { address, ipv6: None, tries: 1, through: 1, clients: None, proof };
        schedule.found(tunnel, there, at(second), at(check));
    };
    assert!(!is_due("a", 0));
    found("a", 0, 600);
    assert!(!is_due("a", 29));
    assert_eq!(schedule.due("a", at(30)).unwrap().address, "203.0.113.7");
    schedule.passed("a", at(30));
    assert!(!is_due("a", 59));
    assert!(is_due("a", 599));
    assert!(!is_due("a", 600));
    // A connection that was lost is told once.
    schedule.doubt("a");
    assert!(!is_due("a", 599));
    assert_eq!([(); 2].map(|()| schedule.take_doubt("a")), [true, false]);
    found("a", 0, 600);
    assert!(is_due("a", 599) && !schedule.take_doubt("a"));
    schedule.forget("a");
    assert!(!is_due("a", 599));
    // What is over goes with the next.
    found("b", 0, 10);
    found("c", 20, 30);
    assert_eq!(schedule.tunnels.lock().unwrap().len(), 1);
}
