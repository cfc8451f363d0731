//! MySQL's client protocol over any stream, as far as a manager needs it: a login by
//! `caching_sha2_password`, and text queries. Nothing of it knows what is asked.
//!
//! A password goes only through TLS, so the exchange of RSA keys is left out; so are compression, prepared
//! statements and files of the client: a server that asks for one gets an error.
//!
//! Everything that a server sends is bounded: a packet by [`packet::MAX_PACKET`], an answer by `rows`.
//! Times are the caller's. A call that is dropped half-way leaves a connection that answers nothing more.

use std::io;

use jiff::Timestamp;
use operands::tls::{TlsClient, TlsError};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};

mod cursor;
mod login;
mod packet;
#[cfg(test)]
pub(crate) mod peer;
mod rows;
#[cfg(test)]
mod tests;

use packet::Packets;
pub(crate) use rows::{Answer, Row};

/// The longest text of a server that is kept, in characters.
pub(crate) const MAX_TEXT: usize = 300;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The stream broke.
    #[error("exchange packets")]
    Stream(#[from] io::Error),
    /// There is no TLS.
    #[error("secure the connection")]
    Tls(#[from] TlsError),
    /// The server refuses.
    #[error("mysqld answers {code} ({state}): {message}")]
    Refused {
        /// The number of its error.
        code: u16,
        /// SQLSTATE; empty before the login.
        state: String,
        /// Its words, shortened.
        message: String,
    },
    /// A packet has another form, or does not come here.
    #[error("the server sends something else than {0}")]
    Unreadable(&'static str),
    /// More than is read.
    #[error("the answer has more than {most} {what}")]
    TooMuch {
        /// How much is read.
        most: usize,
        /// Of what.
        what: &'static str,
    },
    /// An earlier call was not ended.
    #[error("the connection is of no use any more")]
    Spent,
}

/// A stream to a server.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Who logs in, and whom they trust.
pub(crate) struct Login<'a> {
    /// The server's name, which its certificate must have.
    pub(crate) host: &'a str,
    /// The certificate of the authority, as PEM.
    pub(crate) authority: &'a str,
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
}

/// A connection that is logged in.
pub(crate) struct Connection {
    packets: Packets<Box<dyn Stream>>,
    /// Whether an answer is still to be read.
    is_busy: bool,
}

impl Connection {
    /// Logs in over a stream. Certificates are judged at `now`.
    pub(crate) async fn open<S>(
        stream: S,
        login: &Login<'_>,
        now: Timestamp,
    ) -> Result<Self, WireError>
    where
        S: Stream + 'static,
    {
        let tls = TlsClient::new(login.authority, None, &[], now)?;
        let mut packets = Packets::new(stream);
        let greeting = login::greet(&mut packets).await?;
        let (stream, sequence) = packets.into_parts();
        let stream = tls.connect(login.host, stream).await?;
        let stream: Box<dyn Stream> = Box::new(BufReader::new(stream));
        let mut packets = Packets::at(stream, sequence);
        login::log_in(&mut packets, &greeting, login.user, login.password).await?;
        Ok(Self { packets, is_busy: false })
    }

    /// A connection without TLS, logged in.
    #[cfg(test)]
    pub(crate) fn plain(stream: impl Stream + 'static) -> Self {
        Self { packets: Packets::new(Box::new(stream)), is_busy: false }
    }

    /// The answers to statements, separated by semicolons: one for each. The first that fails ends them.
    pub(crate) async fn ask(&mut self, statements: &str) -> Result<Vec<Answer>, WireError> {
        if self.is_busy {
            return Err(WireError::Spent);
        }
        self.is_busy = true;
        let answers = rows::ask(&mut self.packets, statements).await;
        self.is_busy = !matches!(answers, Ok(_) | Err(WireError::Refused { .. }));
        answers
    }
}
