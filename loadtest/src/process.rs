//! What a manager process costs: CPU seconds and memory, read from `/proc`.

use std::path::Path;

/// CPU and memory of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time since its start, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory now, in bytes.
    pub resident_bytes: u64,
    /// The most resident memory it ever had, in bytes.
    pub peak_resident_bytes: u64,
}

/// Reads the usage of a live process, `None` once it is gone.
pub fn usage(pid: u32) -> Option<Usage> {
    let proc = Path::new("/proc").join(pid.to_string());
    let stat = std::fs::read_to_string(proc.join("stat")).ok()?;
    let status = std::fs::read_to_string(proc.join("status")).ok()?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    parse(&stat, &status, ticks_per_second)
}

/// Parses `/proc/PID/stat` and `/proc/PID/status`; the fields are those of proc(5).
fn parse(stat: &str, status: &str, ticks_per_second: u64) -> Option<Usage> {
    // The command in parentheses may hold spaces; fields are counted after it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let kib = |key: &str| -> Option<u64> {
        let line = status.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Some(Usage {
        cpu_seconds: ticks as f64 / ticks_per_second as f64,
        resident_bytes: kib("VmRSS:")? * 1024,
        peak_resident_bytes: kib("VmHWM:")? * 1024,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fields_behind_a_command_with_spaces() {
        let stat = "7 (a) b c) S 1 7 7 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 5 0 0";
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(
            parse(stat, status, 100),
            Some(Usage { cpu_seconds: 3.0, resident_bytes: 1 << 20, peak_resident_bytes: 2 << 20 })
        );
    }

    #[test]
    fn this_very_process_uses_memory() {
        assert!(usage(std::process::id()).unwrap().resident_bytes > 0);
    }
}
