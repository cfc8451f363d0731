//! Handshakes over a pipe, with a server that asks for a client's certificate.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::certificates::{Authority, Leaf, LeafSpec, Usage};

/// The time at which the server, which has no other clock than the machine's, takes certificates.
fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn leaf(authority: &Authority, dns: &str, usage: Usage) -> Leaf {
    let spec = LeafSpec {
        common_name: dns.to_owned(),
        dns: BTreeSet::from([dns.to_owned()]),
        ips: BTreeSet::from(["10.0.0.7".parse().unwrap()]),
        usage,
        valid: SignedDuration::from_hours(24 * 365 * 9),
    };
    authority.issue(&spec, now()).unwrap()
}

fn server(authority: &Authority, leaf: &Leaf) -> TlsAcceptor {
    let mut roots = RootCertStore::empty();
    roots.add(certificates("authority", authority.certificate()).unwrap().remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let mut config = ServerConfig::builder_with_details(
        provider,
        Arc::new(At(Duration::from_secs(u64::try_from(now().as_second()).unwrap()))),
    )
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_client_cert_verifier(verifier.build().unwrap())
    .with_single_cert(
        certificates("certificate", &leaf.certificate).unwrap(),
        PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap(),
    )
    .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config).into()
}

/// Says `ping` to the server, and hears `pong`.
async fn talk(client: &TlsClient, name: &str, server: TlsAcceptor) -> Result<(), TlsError> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let serve = async {
        let mut stream = server.accept(far).await?;
        let mut ping = [0; 4];
        stream.read_exact(&mut ping).await?;
        stream.write_all(b"pong").await?;
        stream.shutdown().await
    };
    let call = async {
        let mut stream = client.connect(name, near).await?;
        let fail = |source| TlsError::Handshake { name: name.to_owned(), source };
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        stream.write_all(b"ping").await.map_err(fail)?;
        let mut pong = [0; 4];
        stream.read_exact(&mut pong).await.map_err(fail)?;
        assert_eq!(&pong, b"pong");
        Ok(())
    };
    tokio::join!(serve, call).1
}

#[tokio::test]
async fn both_sides_prove_who_they_are() {
    let authority = Authority::create("carts", now()).unwrap();
    let serving = leaf(&authority, "carts-0.carts", Usage::Both);
    let calling = leaf(&authority, "leasehold", Usage::Client);
    let identity = Identity { certificate: &calling.certificate, key: &calling.key };
    let acceptor = server(&authority, &serving);
    let trusted = authority.certificate();

    let client = TlsClient::new(trusted, Some(identity), &["h2"], now()).unwrap();
    talk(&client, "carts-0.carts", acceptor.clone()).await.unwrap();
    talk(&client, "10.0.0.7", acceptor.clone()).await.unwrap();
    talk(&client, "carts-1.carts", acceptor.clone()).await.unwrap_err();

    let anonymous = TlsClient::new(trusted, None, &["h2"], now()).unwrap();
    talk(&anonymous, "carts-0.carts", acceptor.clone()).await.unwrap_err();
    let much_later = now() + SignedDuration::from_hours(24 * 365 * 10);
    let late = TlsClient::new(trusted, Some(identity), &["h2"], much_later).unwrap();
    talk(&late, "carts-0.carts", acceptor.clone()).await.unwrap_err();
    let stranger = Authority::create("carts", now()).unwrap();
    let other = TlsClient::new(stranger.certificate(), Some(identity), &["h2"], now()).unwrap();
    talk(&other, "carts-0.carts", acceptor.clone()).await.unwrap_err();

    let renewed = authority.renew(now()).unwrap();
    let client = TlsClient::new(renewed.certificate(), Some(identity), &["h2"], now()).unwrap();
    talk(&client, "carts-0.carts", acceptor).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up() {
    let authority = Authority::create("carts", now()).unwrap();
    let client = TlsClient::new(authority.certificate(), None, &[], now()).unwrap();
    let (near, _far) = tokio::io::duplex(1 << 16);
    let error = client.connect("carts", near).await.unwrap_err();
    assert!(matches!(error, TlsError::Slow { .. }), "{error}");
}

#[test]
fn what_is_not_pem_is_named() {
    let error = TlsClient::new("junk", None, &[], now()).unwrap_err();
    assert!(error.to_string().contains("authority"), "{error}");
}
