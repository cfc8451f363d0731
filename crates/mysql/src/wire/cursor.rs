//! Reads the parts of a packet, and never further than it is long.

use super::{MAX_TEXT, WireError};

/// The first byte of an error.
pub(super) const ERROR: u8 = 0xff;
/// The first byte of a part that is NULL.
const NULL: u8 = 0xfb;

/// What is left of a packet.
pub(super) struct Cursor<'a> {
    left: &'a [u8],
    /// What the packet should be.
    what: &'static str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(packet: &'a [u8], what: &'static str) -> Self {
        Self { left: packet, what }
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let parts = self.left.split_at_checked(length);
        let (part, left) = parts.ok_or(WireError::Unreadable(self.what))?;
        self.left = left;
        Ok(part)
    }

    /// Everything that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    /// A number of so many bytes, the lowest first; at most eight.
    pub(super) fn number(&mut self, bytes: usize) -> Result<u64, WireError> {
        let part = self.take(bytes)?;
        Ok(part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A number that says itself how long it is; nothing for NULL.
    fn optional_number(&mut self) -> Result<Option<u64>, WireError> {
        Ok(Some(match self.number(1)? {
            short @ 0..=0xfa => short,
            0xfc => self.number(2)?,
            0xfd => self.number(3)?,
            0xfe => self.number(8)?,
            null if null == u64::from(NULL) => return Ok(None),
            _ => return Err(WireError::Unreadable(self.what)),
        }))
    }

    /// A number that says itself how long it is.
    pub(super) fn length(&mut self) -> Result<u64, WireError> {
        self.optional_number()?.ok_or(WireError::Unreadable(self.what))
    }

    /// Bytes that begin with their length; nothing for NULL.
    pub(super) fn bytes(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        let Some(length) = self.optional_number()? else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| WireError::Unreadable(self.what))?;
        self.take(length).map(Some)
    }

    /// Bytes that end with a zero, without it.
    pub(super) fn until_zero(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.left.iter().position(|byte| *byte == 0);
        let bytes = self.take(length.ok_or(WireError::Unreadable(self.what))?)?;
        self.take(1).map(|_| bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}

/// The error that a packet with one holds. Before the login it has no SQLSTATE.
pub(super) fn refusal(packet: &[u8]) -> WireError {
    let mut cursor = Cursor::new(packet, "an error");
    let code = cursor.take(1).and_then(|_| cursor.number(2));
    let Ok(code) = code else { return WireError::Unreadable("an error") };
    let words = cursor.rest();
    let (state, message) = match words.split_at_checked(6) {
        Some(([b'#', state @ ..], message)) => (state, message),
        _ => (&[][..], words),
    };
    let message = String::from_utf8_lossy(message);
    WireError::Refused {
        code: u16::try_from(code).unwrap_or_default(),
        state: String::from_utf8_lossy(state).into_owned(),
        message: message.chars().take(MAX_TEXT).collect(),
    }
}
