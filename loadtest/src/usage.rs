//! The CPU time and memory of a process, read from `/proc`.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// CPU time and memory of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time since its start, in steps of the kernel's tick.
    pub cpu: Duration,
    /// Resident memory now, in bytes.
    pub resident_bytes: u64,
    /// The part of it that no file backs, in bytes. The rest is the program's file, which the kernel can drop and read
    /// again. Not known of a Pod.
    pub anonymous_bytes: Option<u64>,
    /// The most resident memory it ever had, in bytes.
    pub peak_resident_bytes: u64,
}

/// The CPU time and memory of a process.
///
/// # Errors
/// If there is no such process.
pub fn of(pid: u32) -> Result<Usage> {
    // Unlike `VmRSS` in `status`, this sum is exact.
    let rollup = read(pid, "smaps_rollup")?;
    Ok(Usage {
        cpu: cpu(pid)?,
        resident_bytes: bytes(&rollup, "Rss:").context("smaps_rollup has no Rss")?,
        anonymous_bytes: bytes(&rollup, "Anonymous:"),
        peak_resident_bytes: bytes(&read(pid, "status")?, "VmHWM:")
            .context("status has no VmHWM")?,
    })
}

/// The CPU time of a process.
///
/// # Errors
/// If there is no such process.
pub fn cpu(pid: u32) -> Result<Duration> {
    Ok(from_ticks(ticks(&read(pid, "stat")?).context("stat has too few fields")?))
}

/// The CPU time that everything on the machine used since its start.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn machine() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    Ok(from_ticks(busy(&stat).context("/proc/stat has too few fields")?))
}

fn from_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The ticks of the line `cpu` but for those in which nothing ran: the fourth and fifth.
fn busy(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let is_idle = |n: &usize| [3, 4].contains(n);
    // Beyond the eighth are guests, which the first two contain.
    let busy = ticks.iter().take(8).enumerate().filter(|(n, _)| !is_idle(n));
    (ticks.len() >= 5).then(|| busy.map(|(_, ticks)| ticks).sum())
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("read {path}"))
}

/// `utime` and `stime` in `/proc/PID/stat`. The name in parentheses may contain anything, so fields
/// are counted from its end.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// The value of a line such as `Rss:  2040 kB`.
fn bytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_counted_from_the_end_of_the_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 900 0 1 0 250 30 0 0 20 0 5 0 77 1 2";
        assert_eq!(ticks(stat), Some(280));
        assert_eq!(ticks("42 (a) S 1"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn a_machine_is_busy_while_something_runs() {
        let stat = "cpu  10 20 30 4000 5000 1 2 3 99 99\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy(stat), Some(66));
        assert_eq!(busy("cpu  1 2 3\n"), None);
        assert_eq!(busy("cpu0 1 2 3 4 5\n"), None);
    }

    #[test]
    fn memory_is_in_kib() {
        let rollup = "5500-7fff ---p 0 00:00 0  [rollup]\nRss:                2040 kB\nPss: 9 kB\n";
        assert_eq!(bytes(rollup, "Rss:"), Some(2040 * 1024));
        assert_eq!(bytes("Name:\tx\nVmHWM:\t    2048 kB\n", "VmHWM:"), Some(2 << 20));
        assert_eq!(bytes("Pss: 9 kB\n", "Rss:"), None);
    }

    #[test]
    fn this_process_uses_a_processor_and_memory() {
        let usage = of(std::process::id()).unwrap();
        assert!(usage.resident_bytes > 0 && usage.peak_resident_bytes >= usage.resident_bytes);
        assert!((1..usage.resident_bytes).contains(&usage.anonymous_bytes.unwrap()));
    }
}
