//! Moves bytes between the channels of a websocket and what listens in a Pod.
//!
//! Channel 2i carries the data of port i both ways, channel 2i+1 its errors. The first message of
//! each is the port, two bytes, little endian. There is no message for the end of a port: when all
//! have ended, the websocket is closed.
//!
//! # Invariants
//! 1. A message has at most [`MAX_MESSAGE`] bytes, and at most [`QUEUE`] messages of [`CHUNK`] bytes
//!    wait for the client; a program that does not read stops what comes from the client.
//! 2. When the client goes away, so does every connection.

use futures::stream::SplitStream;
use futures::{SinkExt, StreamExt};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Bytes, Message};

/// Bytes of the largest message that is read from a client.
pub(super) const MAX_MESSAGE: usize = 1 << 20;
/// Bytes of the largest message that is sent.
const CHUNK: usize = 32 << 10;
/// How many messages wait for the client.
const QUEUE: usize = 8;

/// A port, and the connection to what listens there.
pub(super) struct Door {
    pub(super) port: u16,
    pub(super) stream: Option<DuplexStream>,
}

/// Why a tunnel broke.
#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelError {
    /// The connection did not switch protocols.
    #[error("switch to a websocket")]
    Upgrade(#[from] hyper::Error),
    /// The websocket failed.
    #[error("forward over the websocket")]
    Socket(#[from] tungstenite::Error),
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Serves the ports of the Pod with this uid until all have ended or the client goes away.
pub(super) async fn serve(
    upgrade: OnUpgrade,
    uid: &str,
    doors: Vec<Door>,
) -> Result<(), TunnelError> {
    let stream = TokioIo::new(upgrade.await?);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut outgoing, incoming) = socket.split();
    let (sender, mut messages) = mpsc::channel(QUEUE);
    let mut writers = Vec::new();
    let mut ports = Vec::new();
    for (number, door) in (0u8..).zip(doors) {
        let (data, error) = (number * 2, number * 2 + 1);
        let name = door.port.to_le_bytes();
        outgoing.send(message(data, &name)).await?;
        outgoing.send(message(error, &name)).await?;
        match door.stream {
            None => outgoing.send(message(error, refusal(uid, door.port).as_bytes())).await?,
            Some(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                writers.push((data, Some(writer)));
                ports.push(pump(data, reader, sender.clone()));
            }
        }
    }
    drop(sender);
    let all_ports = async {
        futures::future::join_all(ports).await;
    };
    let answers = async {
        while let Some(message) = messages.recv().await {
            outgoing.send(message).await?;
        }
        let normal = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        outgoing.send(Message::Close(Some(normal))).await
    };
    tokio::select! {
        read = read(incoming, writers) => read?,
        ((), sent) = async { tokio::join!(all_ports, answers) } => sent?,
    }
    Ok(())
}

/// What a program says, as messages of its channel.
async fn pump(channel: u8, mut reader: ReadHalf<DuplexStream>, messages: mpsc::Sender<Message>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
        if messages.send(message(channel, &buffer[..read])).await.is_err() {
            return;
        }
    }
}

/// Brings what the client says to the programs, until the client ends the websocket.
async fn read(
    mut incoming: SplitStream<Socket>,
    mut writers: Vec<(u8, Option<WriteHalf<DuplexStream>>)>,
) -> Result<(), tungstenite::Error> {
    while let Some(message) = incoming.next().await {
        let data = match message? {
            Message::Binary(data) => data,
            Message::Close(_) => return Ok(()),
            _ => continue,
        };
        let Some((channel, data)) = data.split_first() else { continue };
        // Like a real server, ignore what comes for a channel that takes nothing.
        let Some((_, writer)) = writers.iter_mut().find(|(number, _)| number == channel) else {
            continue;
        };
        if let Some(open) = writer
            && open.write_all(data).await.is_err()
        {
            *writer = None;
        }
    }
    Ok(())
}

fn message(channel: u8, data: &[u8]) -> Message {
    let mut message = Vec::with_capacity(data.len() + 1);
    message.push(channel);
    message.extend_from_slice(data);
    Message::Binary(Bytes::from(message))
}

/// What a kubelet says with containerd when nothing listens: the latter knows the Pod by the id of
/// its sandbox, for which its uid has to do here.
fn refusal(uid: &str, port: u16) -> String {
    let sandbox = uid.replace('-', "");
    let refused = |address: &str| format!("dial {address}:{port}: connect: connection refused");
    let (v4, v6) = (refused("tcp4 127.0.0.1"), refused("tcp6 [::1]"));
    format!(
        "error forwarding port {port} to pod {sandbox}, uid : failed to execute portforward in \
         network namespace \"/var/run/netns/cni-{uid}\": failed to connect to localhost:{port} \
         inside namespace \"{sandbox}\", IPv4: {v4} IPv6 {v6} "
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_words_of_a_kubelet_with_containerd() {
        assert_eq!(
            refusal("a-b", 80),
            "error forwarding port 80 to pod ab, uid : failed to execute portforward in network \
             namespace \"/var/run/netns/cni-a-b\": failed to connect to localhost:80 inside \
             namespace \"ab\", IPv4: dial tcp4 127.0.0.1:80: connect: connection refused \
             IPv6 dial tcp6 [::1]:80: connect: connection refused "
        );
    }
}
