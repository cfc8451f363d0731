//! What can be wrong with certificates.

/// What can be wrong with certificates.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// A Secret lacks a key.
    #[error("Secret {secret} has no key {key}: {fix}")]
    Missing {
        /// The Secret: `namespace/name`.
        secret: String,
        /// What it lacks.
        key: &'static str,
        /// What to do.
        fix: &'static str,
    },
    /// What a Secret holds cannot be read.
    #[error("key {key} of Secret {secret} cannot be read, {problem}: {fix}")]
    Unreadable {
        /// The Secret: `namespace/name`.
        secret: String,
        /// The key in it.
        key: &'static str,
        /// What is wrong.
        problem: &'static str,
        /// What to do.
        fix: &'static str,
    },
    /// Certificate and private key are not of one pair.
    #[error("keys tls.crt and tls.key of Secret {secret} do not belong together: {fix}")]
    Mismatch {
        /// The Secret: `namespace/name`.
        secret: String,
        /// What to do.
        fix: &'static str,
    },
    /// The certificate may not issue others.
    #[error(
        "the certificate in key tls.crt of Secret {secret} is not of an authority: store one with \
         CA:TRUE, or delete the Secret if nothing uses it, and a new authority is created"
    )]
    NoAuthority {
        /// The Secret: `namespace/name`.
        secret: String,
    },
    /// The authority has expired.
    #[error(
        "the authority in Secret {secret} expired at {at}: nobody trusts what it issued; delete the Secret \
         and those of its certificates, and all are created anew"
    )]
    Expired {
        /// The Secret: `namespace/name`.
        secret: String,
        /// When.
        at: jiff::Timestamp,
    },
    /// The authority's Secret is gone, and certificates that it issued are in use.
    #[error(
        "Secret {secret} with the authority is gone, and Secret {leaf} has a certificate of it: restore \
         {secret} from a backup, or delete {leaf} and the other certificates too, and all are created anew"
    )]
    Lost {
        /// The authority's Secret: `namespace/name`.
        secret: String,
        /// A Secret with a certificate of it.
        leaf: String,
    },
    /// Somebody else made the authority, and only they can renew it.
    #[error(
        "authority {name:?} was not made here and is due for renewal: renew its certificate with the same \
         name and the same key, and store it in its Secret"
    )]
    Foreign {
        /// Its common name.
        name: String,
    },
    /// A name cannot be in a certificate.
    #[error("{name:?} cannot be in a certificate: use ASCII letters, digits, dots and hyphens")]
    Name {
        /// The name.
        name: String,
    },
    /// A certificate or its key cannot be made.
    #[error("make a certificate for {name}")]
    Make {
        /// Its common name.
        name: String,
        /// Why not.
        #[source]
        source: rcgen::Error,
    },
    /// The time is outside of what a certificate can hold.
    #[error("make a certificate for {name}: its validity ends outside of the calendar")]
    Validity {
        /// Its common name.
        name: String,
    },
}
