//! Whether a file is what a database's tool writes when it succeeds.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use super::StoreError;
use super::digest::{CHUNK, blocking};

/// etcd's database has a size that is a multiple of this; its snapshot has a digest after it.
const SECTOR: u64 = 512;
/// How much of the end of a dump is searched for its last line, in bytes.
const TAIL: usize = 4 << 10;
/// The last line of a dump by mysqldump.
const COMPLETION: &[u8] = b"-- Dump completed";

/// A check of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// A snapshot by `etcdctl snapshot save`: the database, then the SHA-256 of it.
    EtcdSnapshot,
    /// A dump by `mysqldump`, compressed with gzip or not: its last line says that it is complete.
    MysqlDump,
}

impl Check {
    /// Checks a file.
    ///
    /// # Errors
    /// If the file is not whole, or cannot be read.
    pub async fn run(self, file: &Path) -> Result<(), StoreError> {
        let file = file.to_owned();
        blocking(move || {
            let failed = StoreError::file("read", &file.display());
            let opened = File::open(&file).map_err(&failed)?;
            let verdict = match self {
                Self::EtcdSnapshot => etcd_snapshot(opened).map_err(&failed)?,
                Self::MysqlDump => mysql_dump(opened).map_err(&failed)?,
            };
            verdict.map_err(|problem| StoreError::Damaged {
                object: file.display().to_string(),
                problem: problem.to_owned(),
            })
        })
        .await
    }
}

type Judged = std::io::Result<Result<(), &'static str>>;

fn etcd_snapshot(mut file: File) -> Judged {
    let size = file.metadata()?.len();
    let digest = SHA256_OUTPUT_LEN as u64;
    if size % SECTOR != digest || size <= digest {
        return Ok(Err("it does not end with a SHA-256, as a snapshot of etcd does"));
    }
    let mut context = Context::new(&SHA256);
    let (mut left, mut chunk) = (size - digest, vec![0; CHUNK]);
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        file.read_exact(&mut chunk[..want])?;
        context.update(&chunk[..want]);
        left -= want as u64;
    }
    let mut expected = [0; SHA256_OUTPUT_LEN];
    file.read_exact(&mut expected)?;
    if context.finish().as_ref() == expected {
        return Ok(Ok(()));
    }
    Ok(Err("its content is not that of the SHA-256 at its end"))
}

fn mysql_dump(mut file: File) -> Judged {
    let mut magic = [0; 2];
    let is_zipped = file.read(&mut magic)? == 2 && magic == [0x1f, 0x8b];
    let tail = if is_zipped {
        file.seek(SeekFrom::Start(0))?;
        match unzipped_tail(file) {
            Ok(tail) => tail,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Ok(Err("its compressed form ends early"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                return Ok(Err("its compressed form is not that of gzip"));
            }
            Err(error) => return Err(error),
        }
    } else {
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(TAIL as u64)))?;
        let mut tail = Vec::new();
        file.take(TAIL as u64).read_to_end(&mut tail)?;
        tail
    };
    let last = tail.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    if last.starts_with(COMPLETION) {
        return Ok(Ok(()));
    }
    Ok(Err("its last line does not say that the dump is complete"))
}

fn unzipped_tail(file: File) -> std::io::Result<Vec<u8>> {
    let mut reader = MultiGzDecoder::new(file);
    let (mut tail, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    loop {
        let read = reader.read(&mut chunk)?;
        if read == 0 {
            return Ok(tail);
        }
        tail.extend_from_slice(&chunk[..read]);
        tail.drain(..tail.len().saturating_sub(TAIL));
    }
}
