//! What MySQL 9.7.4 sent, and what it must not send.

use data_encoding::HEXLOWER;
use tokio::io::DuplexStream;
use tokio::join;

use super::login::{greet, log_in};
use super::packet::{MAX_PACKET, Packets};
use super::peer::{Peer, Reply, pair};
use super::*;

/// Its greeting.
const GREETING: &str = "0a392e372e342d32000f00000049097d1b254f0f2a00ffffff0200ffdf15000000000000000000\
    007c235b1957111b4e47391e1b0063616368696e675f736861325f70617373776f726400";
/// What proves `secret1` with that greeting's nonce, computed by another program.
const PROOF: &str = "c6496159ff092dcdbd48d486a9bbd55234ebc72f95f56ddc77caba8dd01dd44d";
const OK: &str = "00000002000000";

fn bytes(hex: &str) -> Vec<u8> {
    HEXLOWER.decode(hex.as_bytes()).unwrap()
}

/// Logs in with `secret1` at a server that answers so, and returns what the client sent after its login.
async fn answered(answers: &[&[u8]]) -> (Result<(), WireError>, Vec<Vec<u8>>) {
    let (client, mut peer) = pair();
    let server = async {
        peer.write(&bytes(GREETING)).await;
        let request = peer.read().await.unwrap();
        let login = peer.read().await.unwrap();
        assert!(login.starts_with(&request), "the request for TLS is the head of the login");
        assert_eq!((request.len(), u32::from_le_bytes([0, request[1], 0, 0]) >> 11 & 1), (32, 1));
        let proof = [&b"leasehold\0\x20"[..], &bytes(PROOF), b"caching_sha2_password\0"].concat();
        assert_eq!(&login[32..], proof);
        let mut sent = Vec::new();
        for answer in answers {
            peer.write(answer).await;
            if matches!(answer, [1, 4] | [0xfe, ..]) {
                sent.extend(peer.read().await);
            }
        }
        drop(peer);
        sent
    };
    let login = async {
        let mut packets = Packets::new(client);
        let greeting = greet(&mut packets).await?;
        log_in(&mut packets, &greeting, "leasehold", "secret1").await
    };
    join!(login, server)
}

#[tokio::test]
async fn a_known_password_is_proved_and_an_unknown_one_said() {
    let ok = bytes(OK);
    let (done, sent) = answered(&[&[1, 3], &ok]).await;
    done.unwrap();
    assert!(sent.is_empty());
    let (done, sent) = answered(&[&[1, 4], &ok]).await;
    done.unwrap();
    assert_eq!(sent, [b"secret1\0"]);
}

#[tokio::test]
async fn another_nonce_is_answered_and_another_way_to_log_in_is_not() {
    let ok = bytes(OK);
    let nonce = &bytes(GREETING)[13..21];
    let rest = &bytes(GREETING)[40..52];
    let switch = [&b"\xfecaching_sha2_password\0"[..], nonce, rest, b"\0"].concat();
    let (done, sent) = answered(&[&switch, &[1, 3], &ok]).await;
    done.unwrap();
    assert_eq!(sent, [bytes(PROOF)]);
    let (done, sent) = answered(&[b"\xfemysql_clear_password\0"]).await;
    assert!(matches!(done, Err(WireError::Unreadable(_))) && sent.is_empty(), "{done:?}");
}

#[tokio::test]
async fn a_refusal_has_its_code_state_and_words() {
    let denied = b"\xff\x15\x04#28000Access denied for user 'leasehold'@'127.0.0.1'";
    let (done, _) = answered(&[denied]).await;
    let says = "mysqld answers 1045 (28000): Access denied for user 'leasehold'@'127.0.0.1'";
    assert_eq!(done.unwrap_err().to_string(), says);
    let long = [&b"\xff\x15\x04#28000"[..], &[b'x'; 5_000]].concat();
    let (done, _) = answered(&[&long]).await;
    assert!(done.unwrap_err().to_string().len() < 400);
}

#[tokio::test]
async fn whoever_cannot_do_tls_gets_no_answer() {
    let mut without = bytes(GREETING);
    // The flags have their low half after the version, the number, and the nonce's beginning.
    without[23] &= !8;
    let full = b"\xff\x10\x04Too many connections".to_vec();
    for (greeting, says) in [
        (without, "the server sends something else than a greeting with TLS"),
        (full, "mysqld answers 1040 (): Too many connections"),
        (b"\x09old\0".to_vec(), "something else than a greeting of MySQL"),
        (bytes(GREETING)[..40].to_vec(), "something else than a greeting of MySQL"),
        (Vec::new(), "something else than a greeting of MySQL"),
    ] {
        let (client, mut peer) = pair();
        peer.write(&greeting).await;
        let mut packets = Packets::new(client);
        let error = greet(&mut packets).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        drop(packets);
        assert_eq!(peer.read().await, None);
    }
}

/// Asks a server that sends these packets.
async fn asked(packets: &[Vec<u8>]) -> (Result<Vec<Answer>, WireError>, Connection, Peer) {
    let (client, mut peer): (DuplexStream, Peer) = pair();
    let mut connection = Connection::plain(client);
    let server = async {
        assert_eq!(peer.read().await.unwrap(), b"\x03SELECT 1");
        for packet in packets {
            peer.write(packet).await;
        }
    };
    let (answer, ()) = join!(connection.ask("SELECT 1"), server);
    (answer, connection, peer)
}

fn hex(packets: &[&str]) -> Vec<Vec<u8>> {
    packets.iter().map(|packet| bytes(packet)).collect()
}

#[tokio::test]
async fn rows_of_two_statements_are_read() {
    // GET_LOCK and what goes with it, then a statement without a result.
    let (answers, mut connection, mut peer) = asked(&hex(&[
        "03",
        "0364656600000003676f74000c3f0001000000088000000000",
        "0364656600000006686f6c646572000c3f001500000008a000000000",
        "0364656600000007636c6f6e696e67000c3f001500000008a000000000",
        "0131023135fb",
        "fe00000a000000",
        OK,
    ]))
    .await;
    let answers = answers.unwrap();
    let row = &answers[0][0];
    assert_eq!((row.get("got"), row.get("holder")), (Some("1"), Some("15")));
    assert_eq!((row.get("cloning"), row.get("other")), (None, None));
    assert_eq!((answers.len(), answers[1].len()), (2, 0));
    // It goes on.
    let server = async {
        peer.read().await.unwrap();
        peer.write(&bytes(OK)).await;
    };
    let (answers, ()) = join!(connection.ask("DO 1"), server);
    assert_eq!(answers.unwrap(), [Answer::new()]);
}

#[tokio::test]
async fn an_error_ends_statements_and_not_the_connection() {
    let (client, peer) = pair();
    let mut connection = Connection::plain(client);
    let server = peer.serve(|statement| match statement {
        "bad" => Reply::Error(1205, "Lock wait timeout exceeded"),
        _ => Reply::Done,
    });
    let client = async move {
        let refused = connection.ask("one; bad; never").await;
        assert!(matches!(refused, Err(WireError::Refused { code: 1205, .. })), "{refused:?}");
        assert_eq!(connection.ask("two").await.unwrap().len(), 1);
    };
    let ((), log) = join!(client, server);
    assert_eq!(log, ["one", "bad", "two"]);
}

#[tokio::test]
async fn whatever_is_too_long_or_has_another_form_ends_the_connection() {
    let column = bytes("0364656600000003676f74000c3f0001000000088000000000");
    let end = bytes("fe000002000000");
    let rows = |row: Vec<u8>, count: usize| {
        let mut packets = vec![vec![1], column.clone()];
        packets.extend(vec![row; count]);
        packets.push(end.clone());
        packets
    };
    let wide = [&[0xfc, 0xff, 0xff][..], &[b'x'; 0xffff]].concat();
    for (packets, says) in [
        (vec![b"\xfb/etc/passwd".to_vec()], "a file of the client"),
        (vec![vec![0xfc, 0xff, 0xff]], "more than 200 columns"),
        (rows(vec![1, b'x'], 1_001), "more than 1000 rows"),
        (rows(wide, 40), "more than 2097152 bytes"),
        (vec![bytes("0000000a000000"); 17], "more than 16 parts"),
        (rows(vec![1, b'x', b'y'], 1), "than a row"),
        (rows(vec![9, b'x'], 1), "than a row"),
        (vec![Vec::new()], "than a packet of an answer"),
        (vec![vec![0, 0]], "than the end of an answer"),
        (vec![vec![1], vec![200]], "than a column"),
        (vec![vec![0xfe, 0xff]], "than a number of columns"),
    ] {
        let (answer, mut connection, _peer) = asked(&packets).await;
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(matches!(connection.ask("DO 1").await, Err(WireError::Spent)), "{says}");
    }
}

#[tokio::test]
async fn packets_are_bounded_and_counted() {
    for (head, says) in [
        ([0, 0, 0x11, 1], "bytes in a packet"),
        ([1, 0, 0, 7], "than the next packet"),
        ([9, 0, 0, 1], "exchange packets"),
    ] {
        let (client, mut peer) = pair();
        let mut connection = Connection::plain(client);
        let server = async {
            peer.read().await.unwrap();
            peer.write_raw(&head).await;
            drop(peer);
        };
        let (answer, ()) = join!(connection.ask("DO 1"), server);
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let mut connection = Connection::plain(pair().0);
    let long = connection.ask(&"x".repeat(MAX_PACKET)).await.unwrap_err();
    assert!(matches!(long, WireError::TooMuch { most: MAX_PACKET, .. }), "{long}");
}

#[tokio::test]
async fn a_call_that_was_dropped_leaves_no_answer_to_the_next() {
    let (client, mut peer) = pair();
    let mut connection = Connection::plain(client);
    tokio::select! {
        biased;
        answer = connection.ask("SELECT 'first'") => panic!("{answer:?}"),
        asked = peer.read() => assert!(asked.is_some()),
    }
    peer.write(&bytes(OK)).await;
    assert!(matches!(connection.ask("SELECT 'second'").await, Err(WireError::Spent)));
}
