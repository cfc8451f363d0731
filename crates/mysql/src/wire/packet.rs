//! Packets: a length of three bytes, a number that rises within an exchange, and that many bytes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Stream, WireError};

/// The longest packet that is read or written, in bytes.
pub(super) const MAX_PACKET: usize = 1 << 20;

/// A stream of packets.
pub(super) struct Packets<S> {
    stream: S,
    /// The number of the next packet.
    sequence: u8,
}

impl<S: Stream> Packets<S> {
    pub(super) fn new(stream: S) -> Self {
        Self::at(stream, 0)
    }

    /// In the midst of an exchange.
    pub(super) fn at(stream: S, sequence: u8) -> Self {
        Self { stream, sequence }
    }

    pub(super) fn into_parts(self) -> (S, u8) {
        (self.stream, self.sequence)
    }

    /// Begins an exchange.
    pub(super) fn restart(&mut self) {
        self.sequence = 0;
    }

    /// The next packet.
    pub(super) async fn read(&mut self) -> Result<Vec<u8>, WireError> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).await?;
        let [low, middle, high, sequence] = head;
        let length = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        if length > MAX_PACKET {
            return Err(WireError::TooMuch { most: MAX_PACKET, what: "bytes in a packet" });
        }
        if sequence != self.sequence {
            return Err(WireError::Unreadable("the next packet"));
        }
        self.sequence = sequence.wrapping_add(1);
        let mut packet = vec![0; length];
        self.stream.read_exact(&mut packet).await?;
        Ok(packet)
    }

    /// Writes a packet.
    pub(super) async fn write(&mut self, packet: &[u8]) -> Result<(), WireError> {
        let length = u32::try_from(packet.len()).ok().filter(|_| packet.len() <= MAX_PACKET);
        let Some(length) = length else {
            return Err(WireError::TooMuch { most: MAX_PACKET, what: "bytes in a packet" });
        };
        let [low, middle, high, _] = length.to_le_bytes();
        let mut bytes = vec![low, middle, high, self.sequence];
        self.sequence = self.sequence.wrapping_add(1);
        bytes.extend_from_slice(packet);
        self.stream.write_all(&bytes).await?;
        Ok(self.stream.flush().await?)
    }
}
