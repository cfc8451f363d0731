//! What a kubeconfig can do that is refused unless its source may.

use std::fmt;
use std::str::FromStr;

/// Something in a kubeconfig that is refused unless the configuration allows it for its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Risk {
    /// `as`, `as-uid`, `as-groups`, `as-user-extra`: requests are made as somebody else.
    Impersonation,
    /// A server over `http`: everybody on the path reads the credentials and changes the answers.
    PlainHttp,
    /// `insecure-skip-tls-verify`: as with `http`, for everybody who can answer for the server.
    InsecureTls,
    /// A server on this host: what listens there often asks for no credentials, because it trusts whoever
    /// reaches it.
    Loopback,
    /// A server at a link-local address, or at one where clouds serve the credentials of their machines,
    /// such as 169.254.169.254.
    LinkLocal,
}

impl Risk {
    /// Every one.
    pub const ALL: [Self; 5] =
        [Self::Impersonation, Self::PlainHttp, Self::InsecureTls, Self::Loopback, Self::LinkLocal];

    /// Its word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Impersonation => "impersonation",
            Self::PlainHttp => "plainHttp",
            Self::InsecureTls => "insecureTls",
            Self::Loopback => "loopback",
            Self::LinkLocal => "linkLocal",
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Risk {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|risk| risk.as_str() == text).ok_or(())
    }
}
