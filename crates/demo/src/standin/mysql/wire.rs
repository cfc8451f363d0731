//! The server's side of MySQL's protocol: packets, the greeting, the login, answers with rows.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::server::Refusal;
use super::sql::Table;

/// The longest packet that is read, in bytes.
const MAX_PACKET: usize = 1 << 20;
/// What it can do: everything since 5.7 but compression.
const ABLE: u32 = 0x01ff_ffdf;
/// What the client asks for by saying the password itself.
pub(super) const SAY_IT: [u8; 2] = [1, 4];
/// The flag that another answer follows.
const MORE: u8 = 8;

/// Packets over a stream.
pub(super) struct Packets<S> {
    stream: S,
    sequence: u8,
    /// What is not sent yet.
    waiting: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Packets<S> {
    /// With the number of the next packet.
    pub(super) fn at(stream: S, sequence: u8) -> Self {
        Self { stream, sequence, waiting: Vec::new() }
    }

    pub(super) fn into_parts(self) -> (S, u8) {
        (self.stream, self.sequence)
    }

    /// The next packet of the client.
    pub(super) async fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).await?;
        let [low, middle, high, sequence] = head;
        let length = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        if length > MAX_PACKET {
            return Err(io::Error::new(ErrorKind::InvalidData, "a packet is too long"));
        }
        self.sequence = sequence.wrapping_add(1);
        let mut packet = vec![0; length];
        self.stream.read_exact(&mut packet).await?;
        Ok(packet)
    }

    /// Adds a packet to those that are sent next.
    fn push(&mut self, packet: &[u8]) {
        let length = u32::try_from(packet.len()).unwrap_or(u32::MAX).to_le_bytes();
        self.waiting.extend_from_slice(&[length[0], length[1], length[2], self.sequence]);
        self.waiting.extend_from_slice(packet);
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Sends what was added.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.waiting);
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await
    }

    /// Sends a packet.
    pub(super) async fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        self.push(packet);
        self.flush().await
    }

    pub(super) fn push_done(&mut self, more: bool) {
        self.push(&[0, 0, 0, 2 | flag(more), 0, 0, 0]);
    }

    pub(super) fn push_error(&mut self, Refusal(code, text): &Refusal) {
        self.push(&[&[0xff], &code.to_le_bytes()[..], b"#HY000", text.as_bytes()].concat());
    }

    pub(super) fn push_rows(&mut self, table: &Table, more: bool) {
        self.push(&[u8::try_from(table.columns.len()).unwrap_or(u8::MAX)]);
        for column in &table.columns {
            let tail = [0, 12, 0xff, 0, 0, 1, 0, 0, 0xfd, 0, 0, 0x1f, 0, 0];
            self.push(&[&b"\x03def\0\0\0"[..], &text(column), &tail].concat());
        }
        for row in &table.rows {
            let values = row.iter().map(|value| value.as_deref().map_or(vec![0xfb], text));
            self.push(&values.collect::<Vec<_>>().concat());
        }
        self.push(&[0xfe, 0, 0, 2 | flag(more), 0, 0, 0]);
    }
}

fn flag(more: bool) -> u8 {
    if more { MORE } else { 0 }
}

/// A text after its length.
fn text(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
    let head = match text.len() {
        0..=250 => vec![length[0]],
        251..=0xffff => vec![0xfc, length[0], length[1]],
        _ => vec![0xfd, length[0], length[1], length[2]],
    };
    [&head, text.as_bytes()].concat()
}

/// What a server begins with. The password is asked for in TLS, so the nonce protects nothing.
pub(super) fn greeting(version: &str) -> Vec<u8> {
    let able = ABLE.to_le_bytes();
    [
        &[10],
        version.as_bytes(),
        &[0, 1, 0, 0, 0],
        b"leaseho\x01\0",
        &able[..2],
        &[255, 2, 0],
        &able[2..],
        &[21],
        &[0; 10],
        b"ldleasehold\x01\0",
        b"caching_sha2_password\0",
    ]
    .concat()
}

/// The name in a login: after flags, lengths and a filler.
pub(super) fn user(login: &[u8]) -> Option<String> {
    let name = login.get(32..)?.split(|byte| *byte == 0).next()?;
    String::from_utf8(name.to_vec()).ok()
}

/// A text that ends with a zero, as a password is said.
pub(super) fn said(packet: &[u8]) -> String {
    String::from_utf8_lossy(packet.strip_suffix(&[0]).unwrap_or(packet)).into_owned()
}
