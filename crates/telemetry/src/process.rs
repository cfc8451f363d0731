//! What Linux says of this process, under the names that Prometheus' own clients use, and the limit of its
//! memory. Shell: reads `/proc` and `/sys/fs/cgroup` at each scrape.

use std::fs;
use std::path::Path;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, IntGauge};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Where control groups are.
const CGROUPS: &str = "/sys/fs/cgroup";
/// As many files as a process wants to have open: a few connections to each of 10,000 clusters. Not all that the
/// kernel would give, because credential plugins inherit it, and some programs close every number up to the limit
/// when they start.
const WANTED_FILES: u64 = 1 << 17;
/// From here on, the number that the first version of control groups has in place of a limit.
const NO_LIMIT: u64 = 1 << 60;

/// The series of one process.
#[derive(Debug)]
pub(crate) struct Process {
    cpu_seconds: Counter,
    open_fds: IntGauge,
    max_fds: IntGauge,
    virtual_memory: IntGauge,
    resident_memory: IntGauge,
    start_time: IntGauge,
    threads: IntGauge,
    memory_limit: IntGauge,
}

/// Fields of `/proc/self/stat`, by their numbers in proc_pid_stat(5).
struct Stat(Vec<u64>);

/// Raises the number of files that this process may have open, as far as it may do so itself. The limit that a login
/// or a container begins with is often 1,024, which is less than a thousand clusters need; the one that it may be
/// raised to is far higher.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(WANTED_FILES, |most| most.min(WANTED_FILES));
    if limit.current.is_some_and(|current| current < most) {
        // Where that is refused, the metric `process_max_fds` tells, and the alert on it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
    }
}

impl Process {
    /// The process that asks.
    pub(crate) fn of_self() -> prometheus::Result<Self> {
        let process = Self {
            cpu_seconds: Counter::new(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            )?,
            open_fds: IntGauge::new("process_open_fds", "Number of open file descriptors.")?,
            max_fds: IntGauge::new("process_max_fds", "Maximum number of open file descriptors.")?,
            virtual_memory: IntGauge::new(
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes.",
            )?,
            resident_memory: IntGauge::new(
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
            )?,
            start_time: IntGauge::new(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
            )?,
            threads: IntGauge::new("process_threads", "Number of OS threads in the process.")?,
            memory_limit: IntGauge::new(
                "leasehold_memory_limit_bytes",
                "The memory at which the kernel ends this process; absent without a limit.",
            )?,
        };
        if let (Some(stat), Some(booted)) = (Stat::read(), booted()) {
            process.start_time.set(whole(booted + stat.field(22) / clock_ticks_per_second()));
        }
        Ok(process)
    }

    fn read(&self) {
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them is the directory that is being read.
            self.open_fds.set(whole((open.count() as u64).saturating_sub(1)));
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            self.max_fds.set(whole(most));
        }
        let Some(stat) = Stat::read() else { return };
        let ticks = stat.field(14) + stat.field(15);
        #[expect(clippy::cast_precision_loss, reason = "a float holds centuries of ticks exactly")]
        let cpu = ticks as f64 / clock_ticks_per_second() as f64;
        // Two scrapes at once may have read in one order and count in the other.
        self.cpu_seconds.inc_by((cpu - self.cpu_seconds.get()).max(0.0));
        self.threads.set(whole(stat.field(20)));
        self.virtual_memory.set(whole(stat.field(23)));
        self.resident_memory.set(whole(stat.field(24) * page_size() as u64));
    }

    /// Those that every process has.
    fn series(&self) -> [&dyn Collector; 7] {
        let Self { cpu_seconds, open_fds, max_fds, virtual_memory, resident_memory, .. } = self;
        let Self { start_time, threads, .. } = self;
        [cpu_seconds, open_fds, max_fds, virtual_memory, resident_memory, start_time, threads]
    }

    /// The series of a limit of memory.
    fn limited(&self, limit: Option<u64>) -> Vec<MetricFamily> {
        let Some(limit) = limit else { return Vec::new() };
        self.memory_limit.set(whole(limit));
        self.memory_limit.collect()
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        let limit: &dyn Collector = &self.memory_limit;
        self.series().into_iter().chain([limit]).flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        let limit = memory_limit();
        let series = self.series().into_iter().flat_map(Collector::collect);
        series.chain(self.limited(limit)).collect()
    }
}

impl Stat {
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        // The second field is the program's name in brackets, which may hold blanks and brackets.
        let (_, rest) = text.rsplit_once(')')?;
        // The third is a letter, and some are negative: none of these is asked for.
        Some(Self(rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect()))
    }

    fn field(&self, number: usize) -> u64 {
        self.0.get(number - 3).copied().unwrap_or(0)
    }
}

/// The memory at which the kernel ends this process, in bytes; none without a limit.
pub fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit(&groups, |file| fs::read_to_string(file).ok())
}

/// The lowest limit of memory among the control groups of a process and those around them. `groups` is its
/// `/proc/self/cgroup`: a line `ID:CONTROLLERS:PATH` for each, without controllers in the second version.
fn limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (folder, file) = match controllers {
            "" => (CGROUPS.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (format!("{CGROUPS}/memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        Some((Path::new(&folder).join(path.trim_start_matches('/')), folder, file))
    });
    let limits = groups.filter_map(|(group, folder, file)| {
        let around = group.ancestors().take_while(|at| at.starts_with(&folder));
        // Where there is none, it says `max` instead of a number.
        let limits = around.filter_map(|at| read(&at.join(file))?.trim().parse().ok());
        limits.filter(|limit| *limit < NO_LIMIT).min()
    });
    limits.min()
}

/// When the machine was booted, in seconds since 1970.
fn booted() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Tests that take and free much memory, and see how much the process has, do so one at a time.
#[cfg(test)]
pub(crate) static MEMORY: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_around_the_process_counts() {
        let check = |groups: &str, files: &[(&str, &str)], expect: Option<u64>| {
            let read = |path: &Path| {
                let mut found = files.iter().filter(|(name, _)| Path::new(name) == path);
                found.next().map(|(_, text)| format!("{text}\n"))
            };
            assert_eq!(limit(groups, read), expect, "{groups} {files:?}");
        };
        let max = "/sys/fs/cgroup/memory.max";
        check("", &[], None);
        check("0::/\n", &[], None);
        check("0::/\n", &[(max, "max")], None);
        check("0::/\n", &[(max, "536870912")], Some(536_870_912));
        let inner = "/sys/fs/cgroup/pods/a/memory.max";
        let outer = "/sys/fs/cgroup/pods/memory.max";
        check("0::/pods/a", &[(inner, "max"), (outer, "7")], Some(7));
        check("0::/pods/a", &[(inner, "5"), (outer, "7"), (max, "max")], Some(5));
        // The first version. A container may not see the path on its host, but the root of its own.
        let first = "3:cpu,cpuacct:/x\n2:memory:/kubepods/x\n1:name=systemd:/x\n";
        let own = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        check(first, &[(own, "1073741824"), (max, "5")], Some(1 << 30));
        check(first, &[(own, "9223372036854771712")], None);
    }

    #[test]
    fn a_process_without_a_limit_has_no_series_of_it() {
        let process = Process::of_self().unwrap();
        assert!(process.limited(None).is_empty());
        let shown = process.limited(Some(512));
        assert_eq!(shown[0].name(), "leasehold_memory_limit_bytes");
        assert!((shown[0].get_metric()[0].get_gauge().get_value() - 512.0).abs() < 1e-9);
    }

    #[test]
    fn the_figures_are_of_this_process() {
        let _alone = MEMORY.lock();
        let process = Process::of_self().unwrap();
        process.read();
        let before = process.cpu_seconds.get();
        // More than another test has given back to the allocator, which may be used again.
        let held = vec![1_u8; 512 << 20];
        let files: Vec<_> = (0..10).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        let (memory, open) = (process.resident_memory.get(), process.open_fds.get());
        process.read();
        assert!(process.resident_memory.get() >= memory + (128 << 20), "{} bytes", held.len());
        assert!(process.open_fds.get() >= open + 5, "{} files", files.len());
        assert!(process.cpu_seconds.get() >= before);
        assert!(process.virtual_memory.get() > process.resident_memory.get());
        assert!(process.max_fds.get() > process.open_fds.get());
        assert!(process.threads.get() >= 1);
        // In this century, and before now: the clock of the file system tells.
        let file = std::env::temp_dir().join(format!("leasehold-process-{}", std::process::id()));
        let now = fs::File::create_new(&file).unwrap().metadata().unwrap().modified().unwrap();
        fs::remove_file(&file).unwrap();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let started = u64::try_from(process.start_time.get()).unwrap();
        assert!(started <= now + 1 && started + 3_600 > now, "{started} {now}");
    }
}
