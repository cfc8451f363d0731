//! The size and the SHA-256 of a file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256};

use super::StoreError;

/// How much is read at once, in bytes.
pub(super) const CHUNK: usize = 256 << 10;

/// The size and the SHA-256 of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// How many bytes.
    pub size: u64,
    /// Their SHA-256, in lowercase hexadecimal.
    pub sha256: String,
}

/// Counts and digests bytes that pass.
pub(super) struct Meter {
    size: u64,
    context: Context,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { size: 0, context: Context::new(&SHA256) }
    }

    pub(super) fn pass(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.context.update(bytes);
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn finish(self) -> Digest {
        Digest { size: self.size, sha256: HEXLOWER.encode(self.context.finish().as_ref()) }
    }
}

/// The digest of a file.
pub(super) async fn of(file: &Path) -> Result<Digest, StoreError> {
    let file = file.to_owned();
    blocking(move || {
        let failed = StoreError::file("read", &file.display());
        let mut opened = File::open(&file).map_err(&failed)?;
        let (mut meter, mut chunk) = (Meter::new(), vec![0; CHUNK]);
        loop {
            match opened.read(&mut chunk).map_err(&failed)? {
                0 => return Ok(meter.finish()),
                read => meter.pass(&chunk[..read]),
            }
        }
    })
    .await
}

/// Runs what waits for a disk beside the runtime.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(StoreError::Unanswered {
            operation: "work on",
            object: "a file".to_owned(),
            problem: error.to_string(),
        }),
    }
}

/// Gives a finished file its name, so that it survives a crash of the machine.
pub(super) fn publish(partial: &Path, file: &Path) -> std::io::Result<()> {
    File::open(partial)?.sync_all()?;
    std::fs::rename(partial, file)?;
    let folder = file.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
    let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
    File::open(folder)?.sync_all()
}
