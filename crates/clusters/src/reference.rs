//! The files that a kubeconfig refers to: they are read here, at most once for each look at the kubeconfig, and
//! what they hold takes the place of their names. So a client is made from what was looked at, and nobody
//! else opens a file that a kubeconfig names. A `tokenFile` is none of them: it is read again every minute.
//!
//! Files whose attributes stay as they are are read a few times more, because they may change within a tick of their
//! clock, and then seldom ([`Looks`]): to read a thousand files twice a second would delay what else runs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, Cluster, Kubeconfig};

use crate::provider::Fingerprint;

/// The largest kubeconfig, and the largest file that a kubeconfig may refer to.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 20;
/// In how many looks a file is read after its attributes have changed.
const LOOKS_AFTER_CHANGE: u32 = 4;
/// Later, one of so many looks reads it: some file systems do not say when a file has changed.
pub(crate) const READ_EVERY: u32 = 20;

const AUTHORITY: &str = "certificate-authority";
const CERTIFICATE: &str = "client-certificate";
const KEY: &str = "client-key";
/// A field of the `auth-provider` section.
pub(crate) const IDP_AUTHORITY: &str = "idp-certificate-authority";
pub(crate) const IDP_AUTHORITY_DATA: &str = "idp-certificate-authority-data";

/// A file that a kubeconfig names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The field that names it.
    pub(crate) field: &'static str,
    /// Its absolute path.
    pub(crate) file: PathBuf,
}

/// What the system says about a file before anybody reads it: which one it is, its length, and when it changed last.
pub(crate) type Attributes = ([u64; 3], [i64; 2]);

/// The attributes of some files at the last look, and how many looks in a row found the same.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    last: Vec<Attributes>,
    same: u32,
}

impl Looks {
    /// Whether files with these attributes are read at this look. Without those of one, it may be missing.
    pub(crate) fn is_due(&mut self, now: Option<Vec<Attributes>>) -> bool {
        let is_same = now.as_ref().is_some_and(|now| *now == self.last);
        self.same = if is_same { self.same.wrapping_add(1) } else { 0 };
        self.last = now.unwrap_or_default();
        self.same < LOOKS_AFTER_CHANGE || self.same.is_multiple_of(READ_EVERY)
    }
}

/// Those of the file at a path, or at the end of the links there; none if there is no file.
pub(crate) fn attributes(path: &Path) -> Option<Attributes> {
    let found = fs::metadata(path).ok()?;
    Some(([found.dev(), found.ino(), found.len()], [found.ctime(), found.ctime_nsec()]))
}

/// The files that a reduced kubeconfig refers to. Embedded data takes precedence over a file, as in
/// client-go.
pub(crate) fn of(reduced: &Kubeconfig) -> Vec<Reference> {
    let mut found = Vec::new();
    let mut add = |field, file: Option<&String>, embedded: bool| {
        if let (Some(file), false) = (file, embedded) {
            found.push(Reference { field, file: file.into() });
        }
    };
    if let Some(cluster) = clusters(reduced).next() {
        let embedded = cluster.certificate_authority_data.is_some();
        add(AUTHORITY, cluster.certificate_authority.as_ref(), embedded);
    }
    if let Some(user) = users(reduced).next() {
        let embedded = user.client_certificate_data.is_some();
        add(CERTIFICATE, user.client_certificate.as_ref(), embedded);
        add(KEY, user.client_key.as_ref(), user.client_key_data.is_some());
        if let Some(provider) = &user.auth_provider {
            let embedded = provider.config.contains_key(IDP_AUTHORITY_DATA);
            add(IDP_AUTHORITY, provider.config.get(IDP_AUTHORITY), embedded);
        }
    }
    found
}

/// The bytes that a file's content takes in a kubeconfig: it is in base64 there.
pub(crate) fn embedded_bytes(content: &[u8]) -> usize {
    content.len().div_ceil(3) * 4
}

/// Puts what a file holds into the kubeconfig.
pub(crate) fn embed(reduced: &mut Kubeconfig, field: &str, content: &[u8]) {
    let data = STANDARD.encode(content);
    if let Some(cluster) = reduced.clusters.iter_mut().find_map(|named| named.cluster.as_mut())
        && field == AUTHORITY
    {
        cluster.certificate_authority = None;
        cluster.certificate_authority_data = Some(data);
        return;
    }
    let user = reduced.auth_infos.iter_mut().find_map(|named| named.auth_info.as_mut());
    let Some(user) = user else { return };
    match field {
        CERTIFICATE => {
            user.client_certificate = None;
            user.client_certificate_data = Some(data);
        }
        KEY => {
            user.client_key = None;
            user.client_key_data = Some(data.into());
        }
        _ => {
            if let Some(provider) = &mut user.auth_provider {
                provider.config.remove(IDP_AUTHORITY);
                provider.config.insert(IDP_AUTHORITY_DATA.to_owned(), data);
            }
        }
    }
}

/// What the files of one kubeconfig hold: each is read once for a look, however many contexts name it.
#[derive(Debug, Default)]
pub(crate) struct Files(HashMap<PathBuf, (Fingerprint, Vec<u8>)>);

impl Files {
    /// A file's content and its hash.
    pub(crate) fn read(
        &mut self,
        file: &Path,
        within: Option<&Path>,
    ) -> io::Result<&(Fingerprint, Vec<u8>)> {
        if !self.0.contains_key(file) {
            let bytes = read(file, within)?;
            self.0.insert(file.to_owned(), (Fingerprint::of([bytes.as_slice()]), bytes));
        }
        Ok(&self.0[file])
    }
}

/// The content of a file, if it lies in the folder of `kubeconfig` once links are followed, where that is
/// given.
pub(crate) fn read(file: &Path, within: Option<&Path>) -> io::Result<Vec<u8>> {
    let Some(kubeconfig) = within else { return read_bounded(file) };
    let folder = kubeconfig.parent().unwrap_or(Path::new(".")).canonicalize()?;
    let (opened, path) = open(file)?;
    if !path.starts_with(&folder) {
        let (path, folder) = (path.display(), folder.display());
        let outside = format!("it leads to {path}, which is outside of {folder}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, outside));
    }
    bounded(opened)
}

/// An open file, and where it lies. Of what is open, the system says where that is: whoever may write in the
/// folder could exchange a file and a link between a look at the path and the opening.
#[cfg(target_os = "linux")]
fn open(file: &Path) -> io::Result<(File, PathBuf)> {
    use std::os::fd::AsRawFd;

    let opened = opened(file)?;
    let path = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))?;
    Ok((opened, path))
}

/// The same where the system does not say that: the path is looked at before.
#[cfg(not(target_os = "linux"))]
fn open(file: &Path) -> io::Result<(File, PathBuf)> {
    let path = file.canonicalize()?;
    Ok((opened(&path)?, path))
}

/// Opens a file without waiting for anybody, as a FIFO would.
fn opened(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).custom_flags(nonblocking).open(path)
}

/// The file's bytes, if they are no more than [`MAX_FILE_BYTES`].
pub(crate) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    bounded(opened(path)?)
}

fn bounded(file: File) -> io::Result<Vec<u8>> {
    // A device might never end.
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(bytes)
}

fn clusters(reduced: &Kubeconfig) -> impl Iterator<Item = &Cluster> {
    reduced.clusters.iter().filter_map(|named| named.cluster.as_ref())
}

fn users(reduced: &Kubeconfig) -> impl Iterator<Item = &AuthInfo> {
    reduced.auth_infos.iter().filter_map(|named| named.auth_info.as_ref())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_file_that_is_exchanged_for_a_link_shows_nothing_from_outside() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, secret) = (dir.path().join("folder"), dir.path().join("secret"));
        fs::create_dir(&folder).unwrap();
        fs::write(&secret, "outside").unwrap();
        fs::write(folder.join("file"), "inside").unwrap();
        symlink(&secret, folder.join("link")).unwrap();
        let (at, kubeconfig) = (folder.join("file"), folder.join("config"));
        assert_eq!(read(&at, Some(&kubeconfig)).unwrap(), b"inside");
        let error = read(&folder.join("link"), Some(&kubeconfig)).unwrap_err();
        assert!(error.to_string().contains("which is outside of"), "{error}");

        let (done, link) = (AtomicBool::new(false), folder.join("link"));
        let (mut inside, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                while !done.load(Ordering::Relaxed) {
                    rustix::fs::renameat_with(rustix::fs::CWD, &at, rustix::fs::CWD, &link, flags)
                        .unwrap();
                }
            });
            for _ in 0..20_000 {
                match read(&at, Some(&kubeconfig)) {
                    Ok(content) => {
                        assert_eq!(content, b"inside");
                        inside += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(inside > 0 && refused > 0, "{inside} and {refused}");
    }
}
