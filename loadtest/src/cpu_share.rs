//! A share of a processor for a process, by the kernel's cgroups of version 1 or 2.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where cgroups are.
const ROOT: &str = "/sys/fs/cgroup";
/// The time within which a share is counted, in microseconds. Short, so that a process at its limit pauses
/// for less than what is measured.
const PERIOD_US: u32 = 20_000;
/// The shortest quota that the kernel allows, in microseconds.
const MIN_QUOTA_US: u32 = 1_000;

/// The share of one process, until lifted or dropped.
pub struct CpuShare {
    folder: PathBuf,
    parent: PathBuf,
    pid: u32,
}

/// What is written to which file of a new group.
type Settings = Vec<(&'static str, String)>;

impl CpuShare {
    /// Gives a process at most this many cores.
    ///
    /// # Errors
    /// If there are no cgroups with a CPU controller, or they cannot be written, for which one must be root.
    pub fn give(pid: u32, cores: f64) -> Result<Self> {
        let (parent, settings) = found(Path::new(ROOT), cores, &|path| path.exists())
            .with_context(|| {
                format!("{ROOT} has no CPU controller, by which shares are limited")
            })?;
        if parent == Path::new(ROOT) {
            // Version 2 gives controllers only to groups whose parents ask for them.
            write(&parent.join("cgroup.subtree_control"), "+cpu")?;
        }
        let folder = parent.join(format!("loadtest-{pid}"));
        tried(fs::create_dir(&folder), &format!("create the cgroup {}", folder.display()))?;
        let share = Self { folder, parent, pid };
        for (file, value) in settings {
            write(&share.folder.join(file), &value)?;
        }
        write(&share.folder.join("cgroup.procs"), &pid.to_string())?;
        Ok(share)
    }

    /// Gives the process back all of the processor, and removes its group.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn lift(self) -> Result<()> {
        self.release()
    }

    /// Moves the process out of the group, if it is there: when it has ended, its number may be another's.
    fn release(&self) -> Result<()> {
        let (members, pid) = (self.folder.join("cgroup.procs"), self.pid.to_string());
        let members =
            fs::read_to_string(&members).with_context(|| format!("read {}", members.display()))?;
        match members.lines().any(|member| member == pid) {
            true => write(&self.parent.join("cgroup.procs"), &pid),
            false => Ok(()),
        }
    }
}

impl Drop for CpuShare {
    fn drop(&mut self) {
        // A group with a process in it cannot be removed.
        let _ = self.release();
        let _ = fs::remove_dir(&self.folder);
    }
}

fn write(file: &Path, value: &str) -> Result<()> {
    tried(fs::write(file, value), &format!("write {value} to {}", file.display()))
}

/// An error names what was tried and, if there is one, what helps.
fn tried(outcome: io::Result<()>, what: &str) -> Result<()> {
    let fix = match outcome.as_ref().err().map(io::Error::kind) {
        Some(ErrorKind::PermissionDenied) => "; run this as root",
        Some(ErrorKind::ReadOnlyFilesystem) => "; run this outside of the container",
        Some(ErrorKind::AlreadyExists) => "; a run that was killed left it: rmdir it",
        _ => "",
    };
    outcome.with_context(|| format!("{what}{fix}"))
}

/// The group to make the new one in, and its settings. A share of which the kernel allows no quota in [`PERIOD_US`] has
/// a longer period.
fn found(root: &Path, cores: f64, exists: &dyn Fn(&Path) -> bool) -> Option<(PathBuf, Settings)> {
    let period = f64::from(PERIOD_US).max(f64::from(MIN_QUOTA_US) / cores);
    let (quota, period) = ((cores * period).round() as u32, period.round() as u32);
    let (period, both) = (period.to_string(), format!("{quota} {period}"));
    let versions = [
        (
            root.join("cpu"),
            "cpu.cfs_quota_us",
            vec![("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", quota.to_string())],
        ),
        (root.to_owned(), "cgroup.controllers", vec![("cpu.max", both)]),
    ];
    let mut versions = versions.into_iter().filter(|(folder, sign, _)| exists(&folder.join(sign)));
    versions.next().map(|(folder, _, settings)| (folder, settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cores: f64, file: &str, expect: Option<(&str, &[(&str, &str)])>) {
        let exists = |path: &Path| path == Path::new("/c").join(file);
        let found = found(Path::new("/c"), cores, &exists);
        let found = found.as_ref().map(|(folder, settings)| {
            let settings: Vec<_> = settings.iter().map(|(f, v)| (*f, v.as_str())).collect();
            (folder.to_str().unwrap(), settings)
        });
        assert_eq!(found, expect.map(|(folder, settings)| (folder, settings.to_vec())));
    }

    #[test]
    fn both_versions_of_cgroups() {
        let first = [("cpu.cfs_period_us", "20000"), ("cpu.cfs_quota_us", "2000")];
        check(0.1, "cpu/cpu.cfs_quota_us", Some(("/c/cpu", &first)));
        check(1.5, "cgroup.controllers", Some(("/c", &[("cpu.max", "30000 20000")])));
        check(0.1, "memory", None);
    }

    #[test]
    fn a_share_is_what_was_asked_for_however_small() {
        for (cores, expect) in [(0.001, "1000 1000000"), (0.02, "1000 50000"), (0.05, "1000 20000")]
        {
            check(cores, "cgroup.controllers", Some(("/c", &[("cpu.max", expect)])));
        }
    }

    #[test]
    fn what_helps_depends_on_what_is_wrong() {
        for (kind, expect) in [
            (ErrorKind::PermissionDenied, "make it; run this as root"),
            (ErrorKind::ReadOnlyFilesystem, "make it; run this outside of the container"),
            (ErrorKind::AlreadyExists, "make it; a run that was killed left it: rmdir it"),
            (ErrorKind::ResourceBusy, "make it"),
        ] {
            assert_eq!(tried(Err(kind.into()), "make it").unwrap_err().to_string(), expect);
        }
        assert!(tried(Ok(()), "make it").is_ok());
    }

    #[test]
    fn a_share_leaves_no_group_and_moves_no_other_process() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().to_owned();
        for (members, moved) in [("7\n8\n", Some("8")), ("7\n", None)] {
            let folder = parent.join("loadtest-8");
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("cgroup.procs"), members).unwrap();
            let _ = fs::remove_file(parent.join("cgroup.procs"));
            let share = CpuShare { folder: folder.clone(), parent: parent.clone(), pid: 8 };
            share.release().unwrap();
            let found = fs::read_to_string(parent.join("cgroup.procs")).ok();
            assert_eq!(found.as_deref(), moved);
            fs::remove_file(folder.join("cgroup.procs")).unwrap();
            drop(share);
            assert!(!folder.exists());
        }
    }
}
