//! Where the server listens.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the server listens, and with which certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where metrics and debug views are served; probes too, if they have no address of their own.
    pub bind: SocketAddr,
    /// Where probes are served by themselves, over plain HTTP.
    pub probes: Option<SocketAddr>,
    /// The certificate for `bind`; without one, it serves plain HTTP.
    pub tls: Option<Tls>,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Made at the start. Its clients cannot tell it from another's.
    SelfSigned,
    /// Read from PEM files, and read again when they change.
    Files {
        /// The chain, with the server's own certificate first.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
}

impl From<SocketAddr> for Settings {
    /// Everything on this address, over plain HTTP.
    fn from(bind: SocketAddr) -> Self {
        Self { bind, probes: None, tls: None }
    }
}
