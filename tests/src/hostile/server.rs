//! A server in front of an embedded one that misbehaves as it is told. It speaks HTTP/1.1 by itself, so that it
//! can say what no library would; `http2` speaks the other protocol.

use std::future::ready;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apiserver::Server;
use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::answers::{self, Asked, Form, Reply};
use super::http2::Tls;
use super::mode::Mode;

/// The longest body of a request.
const MAX_BODY_BYTES: u64 = 1 << 20;

/// A cluster that misbehaves as it is told. Dropping it closes its connections.
#[derive(Debug)]
pub struct Hostile {
    /// What answers when it behaves.
    pub behind: Server,
    kubeconfig: String,
    mode: watch::Sender<Mode>,
    requests: Arc<AtomicU64>,
    _task: AbortOnDropHandle<()>,
}

impl Hostile {
    /// A cluster that will misbehave in this mode, which is its name, and behaves for now.
    ///
    /// # Errors
    /// If there is no free port, or no certificate can be made.
    pub async fn start(later: Mode) -> anyhow::Result<Self> {
        let behind = Server::builder().name(later.to_string()).bind("127.0.0.1:0").start().await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (tls, kubeconfig) = if later.is_http2() {
            let (tls, kubeconfig) = Tls::before(&behind, address)?;
            (Some(tls), kubeconfig)
        } else {
            (None, kubeconfig(behind.name(), address))
        };
        let (mode, requests) = (watch::Sender::new(Mode::Behaves), Arc::default());
        let front = Front {
            behind: behind.client(),
            tls,
            mode: mode.subscribe(),
            requests: Arc::clone(&requests),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(front.listen(listener)));
        Ok(Self { behind, kubeconfig, mode, requests, _task: task })
    }

    /// Does this from now on. Connections are closed, so that whatever was under way begins anew.
    pub fn turn(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// How many requests it has got; over HTTP/2, those while it misbehaved.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Its kubeconfig.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }
}

/// The kubeconfig of a cluster without TLS.
fn kubeconfig(name: &str, address: SocketAddr) -> String {
    format!(
        "clusters: [{{name: {name}, cluster: {{server: 'http://{address}'}}}}]\n\
         users: [{{name: {name}, user: {{}}}}]\n\
         contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n\
         current-context: {name}\n"
    )
}

#[derive(Clone)]
struct Front {
    behind: kube::Client,
    /// None where it speaks HTTP/1.1.
    tls: Option<Tls>,
    mode: watch::Receiver<Mode>,
    requests: Arc<AtomicU64>,
}

impl Front {
    async fn listen(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            connections.spawn(self.clone().until_it_turns(stream));
            while connections.try_join_next().is_some() {}
        }
    }

    async fn until_it_turns(self, stream: TcpStream) {
        let mut mode = self.mode.clone();
        let now = *mode.borrow_and_update();
        let served = async {
            match &self.tls {
                Some(tls) => tls.serve(stream, now, &self.requests).await,
                None => self.serve(stream, now).await,
            }
        };
        tokio::select! {
            // The client has gone, or asks what nobody understands.
            _ = served => {}
            _ = mode.changed() => {}
        }
    }

    async fn serve(&self, stream: TcpStream, mode: Mode) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        while let Some(asked) = read(&mut reader).await? {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let mut reply = match answers::of(mode, &asked) {
                Some(reply) => reply,
                None => self.forward(asked).await,
            };
            reply.headers.extend(answers::headers(mode));
            write(&mut writer, reply).await?;
        }
        Ok(())
    }

    /// The answer of the server behind.
    async fn forward(&self, asked: Asked) -> Reply {
        let uri = match asked.query.as_str() {
            "" => asked.path,
            query => format!("{}?{query}", asked.path),
        };
        let mut request = Request::builder().method(asked.method.as_str()).uri(uri);
        for (name, value) in &asked.headers {
            if matches!(name.as_str(), "accept" | "content-type" | "user-agent") {
                request = request.header(name, value);
            }
        }
        let request = request.body(Body::from(asked.body)).expect("what was parsed can be written");
        let Ok(answer) = self.behind.send(request).await else {
            return Reply {
                status: 502,
                headers: Vec::new(),
                body: futures::stream::empty().boxed(),
                form: Form::Chunks,
            };
        };
        let (head, body) = answer.into_parts();
        let content_type = head.headers.get("content-type").and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or("application/json").to_owned();
        let pieces = body.into_data_stream().take_while(|piece| ready(piece.is_ok()));
        let pieces = pieces.filter_map(|piece| ready(piece.ok())).boxed();
        let headers = vec![("content-type", content_type)];
        Reply { status: head.status.as_u16(), headers, body: pieces, form: Form::Chunks }
    }
}

/// The next request; none when the client has gone.
async fn read(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let value = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, v)| v);
    let length = value("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let takes_gzip = value("accept-encoding").is_some_and(|value| value.contains("gzip"));
    let mut body = Vec::new();
    reader.take(length.min(MAX_BODY_BYTES)).read_to_end(&mut body).await?;
    let (path, query) = (path.to_owned(), query.to_owned());
    Ok(Some(Asked { method, path, query, takes_gzip, headers, body }))
}

/// Writes an answer.
async fn write(writer: &mut OwnedWriteHalf, mut reply: Reply) -> io::Result<()> {
    if reply.form == Form::Raw {
        while let Some(piece) = reply.body.next().await {
            writer.write_all(&piece).await?;
        }
        // Its connection ends with it.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut head = format!("HTTP/1.1 {} X\r\ntransfer-encoding: chunked\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    writer.write_all(head.as_bytes()).await?;
    while let Some(piece) = reply.body.next().await {
        if reply.form == Form::Bytes {
            let chunks = piece.iter().flat_map(|byte| [b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
            writer.write_all(&chunks.collect::<Vec<_>>()).await?;
        } else if !piece.is_empty() {
            write_chunk(writer, &piece).await?;
        }
    }
    writer.write_all(b"0\r\n\r\n").await
}

async fn write_chunk(writer: &mut OwnedWriteHalf, piece: &Bytes) -> io::Result<()> {
    writer.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
    writer.write_all(piece).await?;
    writer.write_all(b"\r\n").await
}
