//! A store in a folder, such as that of a volume.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use futures::FutureExt;
use futures::future::BoxFuture;
use ring::rand::{SecureRandom, SystemRandom};

use super::digest::{CHUNK, Meter, blocking, publish};
use super::{Digest, Store, StoreError};

/// What the name of an unfinished file ends with.
const PARTIAL: &str = ".partial";
/// How deep a folder is read.
const MAX_DEPTH: usize = 8;
/// The most files that are listed.
const MAX_FILES: usize = 100_000;

/// A store in a folder. An object is written beside its place, synced and renamed.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The store in a folder that exists.
    ///
    /// # Errors
    /// If there is no such folder.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        if folder.is_dir() {
            return Ok(Self(folder.to_owned()));
        }
        Err(StoreError::Missing { object: format!("folder {}", folder.display()) })
    }

    /// The store in a folder below one that exists. It is created with its first object.
    ///
    /// # Errors
    /// If there is no such folder, or the one below would leave it.
    pub fn within(folder: &Path, below: &str) -> Result<Self, StoreError> {
        if below.split('/').any(|part| part.starts_with('.')) {
            return Err(StoreError::Invalid {
                what: format!("the folder {below:?}"),
                problem: "write parts between slashes, none of which begins with a dot",
            });
        }
        Self::open(folder).map(|found| Self(found.0.join(below)))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.join(key)
    }

    async fn save(&self, key: &str, source: Source) -> Result<Digest, StoreError> {
        let path = self.path(key);
        blocking(move || {
            let failed = StoreError::file("write", &path.display());
            let folder = path.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(folder).map_err(&failed)?;
            sweep(&path).map_err(&failed)?;
            let partial = folder.join(partial_name(&path)?);
            let written = write(&partial, source, &failed).and_then(|digest| {
                publish(&partial, &path).map_err(&failed)?;
                Ok(digest)
            });
            if written.is_err() {
                // What is left is swept by the next attempt.
                let _ = fs::remove_file(&partial);
            }
            written
        })
        .await
    }
}

enum Source {
    File(PathBuf),
    Bytes(Vec<u8>),
}

fn write(
    partial: &Path,
    source: Source,
    failed: &impl Fn(std::io::Error) -> StoreError,
) -> Result<Digest, StoreError> {
    let mut target = File::create_new(partial).map_err(failed)?;
    let mut meter = Meter::new();
    match source {
        Source::Bytes(bytes) => {
            meter.pass(&bytes);
            target.write_all(&bytes).map_err(failed)?;
        }
        Source::File(file) => {
            let unread = StoreError::file("read", &file.display());
            let mut file = File::open(&file).map_err(&unread)?;
            let mut chunk = vec![0; CHUNK];
            loop {
                let read = file.read(&mut chunk).map_err(&unread)?;
                if read == 0 {
                    break;
                }
                meter.pass(&chunk[..read]);
                target.write_all(&chunk[..read]).map_err(failed)?;
            }
        }
    }
    Ok(meter.finish())
}

/// The beginning of the names of a file's unfinished forms.
fn stem(path: &Path) -> String {
    format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy())
}

/// A name that no other writer uses.
fn partial_name(path: &Path) -> Result<String, StoreError> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| StoreError::Unanswered {
        operation: "write",
        object: path.display().to_string(),
        problem: "the machine gives no randomness".to_owned(),
    })?;
    Ok(format!("{}{}{PARTIAL}", stem(path), HEXLOWER.encode(&bytes)))
}

/// Removes unfinished forms of a file, which a crash left. A writer that lives loses its own: it cannot
/// rename it any more, and fails.
fn sweep(path: &Path) -> std::io::Result<()> {
    let stem = stem(path);
    for entry in fs::read_dir(path.parent().unwrap_or(Path::new("/")))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&stem) && name.ends_with(PARTIAL) {
            fs::remove_file(entry.path()).or_else(absent)?;
        }
    }
    Ok(())
}

/// What is not there need not be removed.
fn absent(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn copy(from: &Path, to: &Path, limit: u64) -> Result<Digest, StoreError> {
    let object = from.display().to_string();
    let failed = StoreError::file("read", &object);
    let mut source = File::open(from).map_err(|error| match error.kind() {
        ErrorKind::NotFound => StoreError::Missing { object: object.clone() },
        _ => failed(error),
    })?;
    let unwritten = StoreError::file("write", &to.display());
    let mut target = File::create(to).map_err(&unwritten)?;
    let (mut meter, mut chunk) = (Meter::new(), vec![0; CHUNK]);
    loop {
        let read = source.read(&mut chunk).map_err(&failed)?;
        if read == 0 {
            return Ok(meter.finish());
        }
        meter.pass(&chunk[..read]);
        if meter.size() > limit {
            let problem = format!("it has more than {limit} bytes");
            return Err(StoreError::Damaged { object, problem });
        }
        target.write_all(&chunk[..read]).map_err(&unwritten)?;
    }
}

fn walk(folder: &Path, key: &str, depth: usize, found: &mut Vec<String>) -> Result<(), StoreError> {
    let failed = StoreError::file("list", &folder.display());
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') {
            continue;
        }
        let key = if key.is_empty() { name } else { format!("{key}/{name}") };
        let kind = entry.file_type().map_err(&failed)?;
        if kind.is_dir() && depth < MAX_DEPTH {
            walk(&entry.path(), &key, depth + 1, found)?;
        } else if kind.is_file() {
            found.push(key);
        }
        if found.len() > MAX_FILES {
            return Err(StoreError::Invalid {
                what: folder.display().to_string(),
                problem: "it has more than 100,000 files: use a folder for backups alone",
            });
        }
    }
    Ok(())
}

impl Store for Folder {
    fn put<'a>(
        &'a self,
        key: &'a str,
        file: &'a Path,
        digest: &'a Digest,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let written = self.save(key, Source::File(file.to_owned())).await?;
            if written == *digest {
                return Ok(());
            }
            Err(StoreError::Unanswered {
                operation: "read",
                object: file.display().to_string(),
                problem: "it changed while it was stored".to_owned(),
            })
        }
        .boxed()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), StoreError>> {
        async move { self.save(key, Source::Bytes(bytes)).await.map(drop) }.boxed()
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        file: &'a Path,
        limit: u64,
    ) -> BoxFuture<'a, Result<Digest, StoreError>> {
        let (from, to) = (self.path(key), file.to_owned());
        blocking(move || copy(&from, &to, limit)).boxed()
    }

    fn read<'a>(
        &'a self,
        key: &'a str,
        limit: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>> {
        let path = self.path(key);
        blocking(move || {
            let failed = StoreError::file("read", &path.display());
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(failed(error)),
            };
            let mut bytes = Vec::new();
            file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
            if bytes.len() as u64 > limit {
                let problem = format!("it has more than {limit} bytes");
                return Err(StoreError::Damaged { object: path.display().to_string(), problem });
            }
            Ok(Some(bytes))
        })
        .boxed()
    }

    fn size<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, StoreError>> {
        let path = self.path(key);
        blocking(move || match fs::metadata(&path) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::file("read", &path.display())(error)),
        })
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        let (folder, prefix) = (self.0.clone(), prefix.to_owned());
        blocking(move || {
            let mut found = Vec::new();
            walk(&folder, "", 0, &mut found)?;
            found.retain(|key| key.starts_with(&prefix));
            found.sort();
            Ok(found)
        })
        .boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let path = self.path(key);
        blocking(move || {
            let failed = StoreError::file("delete", &path.display());
            if path.parent().is_some_and(Path::is_dir) {
                sweep(&path).map_err(&failed)?;
            }
            fs::remove_file(&path).or_else(absent).map_err(&failed)
        })
        .boxed()
    }

    fn named(&self, key: &str) -> String {
        self.path(key).display().to_string()
    }
}
