//! What the kernel tells of a process under `/proc`. Reading is apart from the text, which is parsed
//! by pure functions.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The state of a TCP connection that is established, in `/proc/PID/net/tcp`.
const ESTABLISHED: &str = "01";

/// CPU time of a process so far, in steps of the kernel's tick.
///
/// # Errors
/// If there is no such process.
pub fn cpu(pid: u32) -> Result<Duration> {
    let ticks = parse_ticks(&read(pid, "stat")?).context("/proc/PID/stat has too few fields")?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// Resident memory of a process, in bytes.
///
/// # Errors
/// If there is no such process.
pub fn resident(pid: u32) -> Result<u64> {
    parse_rss(&read(pid, "smaps_rollup")?).context("/proc/PID/smaps_rollup has no Rss")
}

/// How many TCP connections to `port` a process holds.
///
/// # Errors
/// If there is no such process.
pub fn connections(pid: u32, port: u16) -> Result<usize> {
    let mut own = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // One that is closed meanwhile is none.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        own.extend(inode.map(str::to_owned));
    }
    let all = ["net/tcp", "net/tcp6"].map(|file| read(pid, file).unwrap_or_default());
    Ok(all.iter().flat_map(|text| inodes(text, port)).filter(|inode| own.contains(*inode)).count())
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

/// `utime` and `stime`. The name in parentheses may hold anything, so fields count from its end.
fn parse_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

fn parse_rss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The inodes of established connections to `port`.
fn inodes(table: &str, port: u16) -> impl Iterator<Item = &str> {
    let remote = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(2)?.ends_with(&remote) && *fields.get(3)? == ESTABLISHED;
        fields.get(9).copied().filter(|_| is_ours)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_counted_from_the_end_of_the_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 900 0 1 0 250 30 0 0 20 0 5 0 77 1 2";
        assert_eq!(parse_ticks(stat), Some(280));
        assert_eq!(parse_ticks("42 (a) S 1"), None);
        assert_eq!(parse_ticks(""), None);
    }

    #[test]
    fn resident_memory_is_told_in_kib() {
        let rollup = "5500-7fff ---p 0 00:00 0  [rollup]\nRss:                2040 kB\nPss: 9 kB\n";
        assert_eq!(parse_rss(rollup), Some(2040 * 1024));
        assert_eq!(parse_rss("Pss: 9 kB\n"), None);
    }

    #[test]
    fn established_connections_to_the_port_are_found() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:A001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 111 1
   1: 0100007F:A002 0100007F:1F90 06 00000000:00000000 00:00000000 00000000     0        0 222 1
   2: 0100007F:1F90 0100007F:A001 01 00000000:00000000 00:00000000 00000000     0        0 333 1
   3: 0100007F:A003 0100007F:1F91 01 00000000:00000000 00:00000000 00000000     0        0 444 1
";
        assert_eq!(inodes(table, 8080).collect::<Vec<_>>(), ["111"]);
        assert_eq!(inodes(table, 8081).collect::<Vec<_>>(), ["444"]);
        assert_eq!(inodes("", 8080).count(), 0);
    }

    #[test]
    fn this_process_has_used_a_processor_and_memory() {
        let pid = std::process::id();
        assert!(cpu(pid).is_ok() && resident(pid).unwrap() > 0);
        assert_eq!(connections(pid, 1).unwrap(), 0);
    }
}
