//! Finds out which container this process is in, and leaves its token where the kubelet will find it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tracing::{debug, warn};

use crate::api::MemberContainer;
use crate::container::{self, FIRST_PROCESS, HOSTS, TERMINATION_LOG};

/// How many bytes of mounts are read.
const MAX_MOUNTS_BYTES: u64 = 1 << 20;
const MOUNTS: &str = "/proc/self/mountinfo";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The container whose first process this is, if that is certain. Then the process's death can be proved
/// ([`crate::death`]). `seed` must differ between processes.
///
/// Writes to the file for the message of the container's termination, and takes a lock that lasts until the
/// process ends. So it works once in a process: ask for it at the start.
pub fn own_container(seed: u64) -> Option<MemberContainer> {
    if std::process::id() != FIRST_PROCESS {
        return None;
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    let token = format!("{:032x}", rng.u128(..));
    let (mounts, boot_id) = (read(MOUNTS)?, read(BOOT_ID)?);
    let mut found = container::of(&mounts, &boot_id, &token)?;
    if container::shares_hosts(&mounts, &found.pod_uid) {
        found.lock_id = lock(Path::new(HOSTS));
    }
    if let Err(error) = leave(Path::new(TERMINATION_LOG), &token) {
        warn!(
            "{TERMINATION_LOG}: {error}; the end of this process will be noticed by silence only"
        );
        return None;
    }
    debug!(pod = found.pod_uid, container = found.name, "this process names its container");
    Some(found)
}

fn read(path: &str) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    let read = file.take(MAX_MOUNTS_BYTES).read_to_string(&mut text).ok()?;
    // A part of it would not show which mount hides which.
    (0..MAX_MOUNTS_BYTES).contains(&(read as u64)).then_some(text)
}

/// Locks the file until this process ends. Returns its device and number; `None` if another process has it.
fn lock(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    file.try_lock().ok()?;
    let metadata = file.metadata().ok()?;
    // Nobody closes it: the kernel does when the process ends.
    std::mem::forget(file);
    Some(format!("{}:{}", metadata.dev(), metadata.ino()))
}

/// Writes the token into a file that is there and empty.
fn leave(path: &Path, token: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.len() > 0 {
        return Err(std::io::Error::other("another process of this container has written to it"));
    }
    file.write_all(container::message(token).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("leasehold-{name}-{}", std::process::id()));
        File::create(&path).unwrap();
        path
    }

    #[test]
    fn a_token_goes_into_an_empty_file_only() {
        let path = file("token");
        leave(&path, "a1").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), container::message("a1"));
        assert!(leave(&path, "b2").is_err(), "another process was there before");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), container::message("a1"));
        std::fs::remove_file(&path).unwrap();
        assert!(leave(&path, "a1").is_err(), "the kubelet makes the file");
    }

    #[test]
    fn a_lock_is_taken_once() {
        let path = file("lock");
        let first = lock(&path).unwrap();
        assert!(first.contains(':'));
        assert_eq!(lock(&path), None);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_process_that_is_not_the_first_of_its_container_names_none() {
        assert_eq!(own_container(1), None);
    }
}
