//! The certificate of the listener: read from files, and read again while it is served, or made here.

use std::io::Read;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use rcgen::{CertificateParams, CertifiedKey as Made, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use crate::settings::Tls;

/// How often the files are read. A rotated certificate is served after this time.
const POLL: Duration = Duration::from_secs(10);
/// The largest file.
const MAX_BYTES: u64 = 256 << 10;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("read {file}")]
    Read {
        /// The file.
        file: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A file holds no certificate or key.
    #[error("{file} holds no {expected} in PEM form")]
    Pem {
        /// The file.
        file: String,
        /// `certificate` or `private key`.
        expected: &'static str,
    },
    /// Certificate and key do not belong together, or are of an unknown kind.
    #[error("use the certificate and its key")]
    Unusable(#[from] rustls::Error),
    /// No certificate can be made.
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
}

/// The present certificate. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    source: Tls,
    present: Arc<Present>,
}

#[derive(Debug)]
struct Present(RwLock<Loaded>);

#[derive(Clone, Debug)]
struct Loaded {
    /// SHA-256 of what the files held.
    digest: [u8; 32],
    key: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads or makes it.
    pub(crate) fn load(source: &Tls) -> Result<Self, CertificateError> {
        let loaded = match source {
            Tls::SelfSigned => made()?,
            Tls::Files { certificate, key } => {
                let pem = [read(certificate)?, read(key)?];
                Loaded { key: parse(certificate, key, &pem)?, digest: digest(&pem) }
            }
        };
        Ok(Self { source: source.clone(), present: Arc::new(Present(RwLock::new(loaded))) })
    }

    /// Terminates TLS with the certificate that is present at each handshake.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, CertificateError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.present) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config).into())
    }

    /// Reads the files again and again, and serves what they hold. Never ends.
    pub(crate) async fn follow(self) {
        let Tls::Files { certificate, key } = self.source else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(POLL).await;
            let (present, certificate, key) =
                (Arc::clone(&self.present), certificate.clone(), key.clone());
            let turn = tokio::task::spawn_blocking(move || present.refresh(&certificate, &key));
            match turn.await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::info!("the admin server's certificate was read again"),
                Ok(Err(error)) => tracing::warn!(
                    "the admin server keeps its certificate: {}",
                    model::error::chain(&error)
                ),
                // The runtime ends.
                Err(_) => return std::future::pending().await,
            }
        }
    }
}

impl Present {
    /// Takes over what the files hold now. Whether it is something new.
    fn refresh(&self, certificate: &Path, key: &Path) -> Result<bool, CertificateError> {
        let pem = [read(certificate)?, read(key)?];
        if self.0.read().expect("no holder of this lock panics").digest == digest(&pem) {
            return Ok(false);
        }
        let loaded = Loaded { key: parse(certificate, key, &pem)?, digest: digest(&pem) };
        *self.0.write().expect("no holder of this lock panics") = loaded;
        Ok(true)
    }
}

impl ResolvesServerCert for Present {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().expect("no holder of this lock panics").key))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let fail = |source| CertificateError::Read { file: path.display().to_string(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(fail)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fail(std::io::Error::other(format!("it is larger than {MAX_BYTES} bytes"))));
    }
    Ok(bytes)
}

fn digest([chain, private]: &[Vec<u8>; 2]) -> [u8; 32] {
    let length = (chain.len() as u64).to_le_bytes();
    Sha256::new().chain_update(length).chain_update(chain).chain_update(private).finalize().into()
}

fn parse(
    certificate: &Path,
    key: &Path,
    [chain, private]: &[Vec<u8>; 2],
) -> Result<Arc<CertifiedKey>, CertificateError> {
    let without = |path: &Path, expected| CertificateError::Pem {
        file: path.display().to_string(),
        expected,
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|_| without(certificate, "certificate"))?;
    if chain.is_empty() {
        return Err(without(certificate, "certificate"));
    }
    let private =
        PrivateKeyDer::from_pem_slice(private).map_err(|_| without(key, "private key"))?;
    Ok(Arc::new(CertifiedKey::from_der(chain, private, &provider())?))
}

/// A certificate that nobody has signed but its own key, for `localhost`.
fn made() -> Result<Loaded, CertificateError> {
    let signing_key = KeyPair::generate()?;
    let params = CertificateParams::new(vec!["localhost".to_owned()])?;
    let made = Made { cert: params.self_signed(&signing_key)?, signing_key };
    let private = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let chain = vec![made.cert.der().clone()];
    let key = CertifiedKey::from_der(chain, private.into(), &provider())?;
    Ok(Loaded { digest: Default::default(), key: Arc::new(key) })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn write(folder: &Path, names: [&str; 2]) -> (PathBuf, PathBuf) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let paths = names.map(|name| folder.join(name));
        std::fs::write(&paths[0], made.cert.pem()).unwrap();
        std::fs::write(&paths[1], made.signing_key.serialize_pem()).unwrap();
        let [certificate, key] = paths;
        (certificate, key)
    }

    #[test]
    fn a_rotated_pair_is_taken_over_and_a_wrong_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = write(folder.path(), ["tls.crt", "tls.key"]);
        let source = Tls::Files { certificate: certificate.clone(), key: key.clone() };
        let served = Certificate::load(&source).unwrap().present;
        let present = || Arc::clone(&served.0.read().unwrap().key);
        let first = present();
        assert!(!served.refresh(&certificate, &key).unwrap());

        write(folder.path(), ["tls.crt", "another.key"]);
        let error = served.refresh(&certificate, &key).unwrap_err();
        assert!(matches!(error, CertificateError::Unusable(_)), "{error}");
        assert!(Arc::ptr_eq(&first, &present()));

        write(folder.path(), ["tls.crt", "tls.key"]);
        assert!(served.refresh(&certificate, &key).unwrap());
        assert_ne!(first.cert, present().cert);
    }

    #[test]
    fn files_that_hold_something_else_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = write(folder.path(), ["tls.crt", "tls.key"]);
        let load = |certificate: &Path, key: &Path| {
            let (certificate, key) = (certificate.to_owned(), key.to_owned());
            model::error::chain(&Certificate::load(&Tls::Files { certificate, key }).unwrap_err())
        };
        assert!(load(&key, &key).ends_with("tls.key holds no certificate in PEM form"));
        assert!(load(&certificate, &certificate).ends_with("holds no private key in PEM form"));
        let large = folder.path().join("large");
        std::fs::write(&large, vec![b'x'; MAX_BYTES as usize + 1]).unwrap();
        assert!(load(&large, &key).ends_with("it is larger than 262144 bytes"));
        assert!(load(&folder.path().join("absent"), &key).contains("absent"));
    }
}
