//! A server in front of an embedded one that speaks HTTP/2 over TLS. While it behaves, it passes on what both say;
//! else it sends frames by itself, which no library would send.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use apiserver::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::mode::Mode;

/// How TLS names the protocol.
const PROTOCOL: &[u8] = b"h2";
/// What a client says before its first frame: that it speaks HTTP/2.
const PREFACE_BYTES: usize = 24;
/// How often a small frame is repeated in what is sent at once.
const REPEATED: usize = 2048;
/// What a client says that waits for an answer. More gets none.
const WAITING: usize = 16;

// Types of frames, as in RFC 9113, and one that it does not have.
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const PRIORITY: u8 = 0x2;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;
const UNKNOWN: u8 = 0xfa;

// Flags of frames.
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// TLS with clients, and with the server behind.
#[derive(Clone)]
pub(super) struct Tls {
    accepts: TlsAcceptor,
    connects: TlsConnector,
    behind: SocketAddr,
}

/// What a client says.
enum Heard {
    /// A request on this stream.
    Request(u32),
    /// A PING with this payload.
    Ping(Vec<u8>),
}

impl Tls {
    /// In front of that server, at this address. Returns the kubeconfig for it too.
    pub(super) fn before(behind: &Server, address: SocketAddr) -> Result<(Self, String)> {
        let own = rcgen::generate_simple_self_signed(vec![address.ip().to_string()])?;
        let mut kubeconfig: Value = serde_saphyr::from_str(&behind.kubeconfig())?;
        let cluster = &mut kubeconfig["clusters"][0]["cluster"];
        let authority = cluster["certificate-authority-data"].as_str().unwrap_or_default();
        let authority = STANDARD.decode(authority)?;
        cluster["certificate-authority-data"] = STANDARD.encode(own.cert.pem()).into();
        cluster["server"] = format!("https://{address}").into();

        let provider = Arc::new(crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&authority)?)?;
        let mut connects = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        connects.alpn_protocols = vec![PROTOCOL.to_vec()];
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let mut accepts = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        accepts.alpn_protocols = vec![PROTOCOL.to_vec()];
        let tls = Self {
            accepts: TlsAcceptor::from(Arc::new(accepts)),
            connects: TlsConnector::from(Arc::new(connects)),
            behind: behind.address(),
        };
        Ok((tls, kubeconfig.to_string()))
    }

    /// Serves a connection until it ends. Counts the requests while it misbehaves.
    pub(super) async fn serve(
        &self,
        stream: TcpStream,
        mode: Mode,
        requests: &AtomicU64,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        if mode == Mode::SlowHandshake {
            requests.fetch_add(1, Ordering::Relaxed);
            return begin(stream).await;
        }
        let mut near = self.accepts.accept(stream).await?;
        if mode == Mode::Behaves {
            let far = TcpStream::connect(self.behind).await?;
            far.set_nodelay(true)?;
            let mut far = self.connects.connect(ServerName::from(self.behind.ip()), far).await?;
            return tokio::io::copy_bidirectional(&mut near, &mut far).await.map(drop);
        }
        let (reader, writer) = tokio::io::split(near);
        let (tell, told) = mpsc::channel(WAITING);
        tokio::select! {
            ended = hear(reader, requests, tell) => ended,
            ended = say(writer, mode, told) => ended,
        }
    }
}

/// Begins to answer a client that begins TLS: the head of a record, and a byte of it a second.
async fn begin(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(&[22, 3, 3, 0x40, 0]).await?;
    loop {
        stream.write_all(&[2]).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Reads what a client says, whether it is answered or not: else neither could write any more.
async fn hear(
    mut reader: impl AsyncRead + Unpin,
    requests: &AtomicU64,
    tell: mpsc::Sender<Heard>,
) -> io::Result<()> {
    reader.read_exact(&mut [0; PREFACE_BYTES]).await?;
    loop {
        let mut head = [0; 9];
        reader.read_exact(&mut head).await?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = vec![0; length as usize];
        reader.read_exact(&mut payload).await?;
        let heard = match kind {
            HEADERS => {
                requests.fetch_add(1, Ordering::Relaxed);
                Heard::Request(u32::from_be_bytes(stream))
            }
            PING if flags & ACK == 0 => Heard::Ping(payload),
            _ => continue,
        };
        // The client goes on asking while there is no room for it.
        let _ = tell.try_send(heard);
    }
}

/// Says nothing until it is asked, and then floods the connection. It answers PINGs, so that it is not taken for dead.
async fn say(
    mut writer: impl AsyncWrite + Unpin,
    mode: Mode,
    mut told: mpsc::Receiver<Heard>,
) -> io::Result<()> {
    writer.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    writer.flush().await?;
    if mode == Mode::Http2Resets {
        return reset(writer, told).await;
    }
    let stream = loop {
        match told.recv().await {
            Some(Heard::Request(stream)) => break stream,
            Some(Heard::Ping(_)) => {}
            None => return Ok(()),
        }
    };
    let (begins, goes_on) = flood(mode, stream);
    writer.write_all(&begins).await?;
    loop {
        while let Ok(heard) = told.try_recv() {
            if let Heard::Ping(payload) = heard {
                writer.write_all(&frame(PING, ACK, 0, &payload)).await?;
            }
        }
        writer.write_all(&goes_on).await?;
        writer.flush().await?;
    }
}

/// Resets the stream of each request.
async fn reset(
    mut writer: impl AsyncWrite + Unpin,
    mut told: mpsc::Receiver<Heard>,
) -> io::Result<()> {
    while let Some(heard) = told.recv().await {
        let answer = match heard {
            // With the code of an error of the server.
            Heard::Request(stream) => frame(RST_STREAM, 0, stream, &[0, 0, 0, 2]),
            Heard::Ping(payload) => frame(PING, ACK, 0, &payload),
        };
        writer.write_all(&answer).await?;
        writer.flush().await?;
    }
    Ok(())
}

/// What comes in place of an answer on this stream, and what follows again and again.
fn flood(mode: Mode, stream: u32) -> (Vec<u8>, Vec<u8>) {
    match mode {
        Mode::Http2InterimAnswers => (
            // `:status: 103`, which has the number 62 from then on.
            frame(HEADERS, END_HEADERS, stream, b"\x48\x03103"),
            frame(HEADERS, END_HEADERS, stream, b"\xbe").repeat(REPEATED),
        ),
        Mode::Http2EndlessHead => (
            // `:status: 200`, and `x: y` without an end.
            frame(HEADERS, 0, stream, b"\x88"),
            frame(CONTINUATION, 0, stream, b"\0\x01x\x01y").repeat(REPEATED),
        ),
        Mode::Http2SmallFrames => (
            // `:status: 200`.
            frame(HEADERS, END_HEADERS, stream, b"\x88"),
            frame(DATA, 0, stream, b" ").repeat(REPEATED),
        ),
        _ => {
            let small = [
                frame(SETTINGS, 0, 0, &[]),
                frame(PING, 0, 0, &[0; 8]),
                frame(PING, ACK, 0, &[0; 8]),
                frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
                frame(PRIORITY, 0, stream, &[0; 5]),
                frame(UNKNOWN, 0, stream, &[]),
            ];
            // As many settings as a frame may have, which nobody knows, and a frame of a type that nobody knows.
            let large = [frame(SETTINGS, 0, 0, &[0; 16_380]), frame(UNKNOWN, 0, 0, &[0; 16_384])];
            (Vec::new(), [small.concat().repeat(REPEATED), large.concat()].concat())
        }
    }
}

/// A frame: its length, type, flags and stream, and its payload.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
