//! What a run was made on: the machine, and the builds.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::process::Cpu;

/// The machine, and the builds that ran on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// What the manager says of its version.
    pub leasehold: String,
    /// `release` or `debug`: of the load test, which has the API servers.
    pub servers_built: String,
    /// The processor's name.
    pub cpu: String,
    /// Its cores.
    pub cores: usize,
    /// Those that the load test may use, with the servers that it runs, as the kernel lists them.
    pub loadtest_cores: String,
    /// Those of the managers, and the share of each.
    pub replicas_cores: String,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// The kernel and its version.
    pub kernel: String,
}

impl Machine {
    /// This machine, with what the manager says of its version, and what managers get of the processors.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn here(leasehold: String, of_replicas: Cpu) -> Result<Self> {
        let read = |file: &str| fs::read_to_string(file).with_context(|| format!("read {file}"));
        let cpuinfo = read("/proc/cpuinfo")?;
        let loadtest_cores = allowed(&read("/proc/self/status")?);
        let loadtest_cores = loadtest_cores.context("status has no Cpus_allowed_list")?;
        let system = rustix::system::uname();
        let kernel = [system.sysname(), system.release()].map(|part| part.to_string_lossy());
        let built = if cfg!(debug_assertions) { "debug" } else { "release" };
        Ok(Self {
            leasehold,
            servers_built: built.to_owned(),
            cpu: cpu(&cpuinfo),
            cores: cores(&cpuinfo),
            replicas_cores: of_replicas.words(&loadtest_cores),
            loadtest_cores,
            memory_mib: memory_mib(&read("/proc/meminfo")?).context("meminfo has no MemTotal")?,
            kernel: kernel.join(" "),
        })
    }

    /// All of it in a line.
    pub fn words(&self) -> String {
        let Self { leasehold, servers_built, cpu, cores, memory_mib, kernel, .. } = self;
        let Self { loadtest_cores, replicas_cores, .. } = self;
        let gib = *memory_mib as f64 / 1024.0;
        format!(
            "{leasehold}; API servers {servers_built}; {cores} cores {cpu}, {gib:.1} GiB, {kernel}; \
             load test on cores {loadtest_cores}, replicas on cores {replicas_cores}"
        )
    }
}

/// The first processor's name. Some architectures have none.
fn cpu(cpuinfo: &str) -> String {
    let names = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut names = names.filter(|(key, _)| key.trim() == "model name");
    names.next().map_or("unnamed processor", |(_, name)| name.trim()).to_owned()
}

/// All processors, not only those that this process may use.
fn cores(cpuinfo: &str) -> usize {
    let keys = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    keys.filter(|(key, _)| key.trim() == "processor").count()
}

/// The cores that a process with this status may use, such as `0-3,8`.
fn allowed(status: &str) -> Option<String> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

fn memory_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says() {
        let two = "processor\t: 0\nmodel name\t: Fast 9000\n\nprocessor\t: 1\nmodel name\t: Slow\n";
        assert_eq!((cpu(two).as_str(), cores(two)), ("Fast 9000", 2));
        assert_eq!(cpu("processor\t: 0\n"), "unnamed processor");
        assert_eq!(memory_mib("MemFree: 1 kB\nMemTotal:       24614000 kB\n"), Some(24_037));
        assert_eq!(memory_mib("MemFree: 1 kB\n"), None);
        let status = "Cpus_allowed:\t101\nCpus_allowed_list:\t0,8\n";
        assert_eq!((allowed(status).as_deref(), allowed("Name:\ta\n")), (Some("0,8"), None));
    }

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let cpu = Cpu { core: Some(1), share: None };
        let here = Machine::here("leasehold 1.2.3".to_owned(), cpu).unwrap();
        assert!(here.cores > 0 && here.memory_mib > 0 && here.kernel.starts_with("Linux "));
        let words = here.words();
        assert!(words.starts_with("leasehold 1.2.3; API servers "), "{words}");
        assert!(
            words.ends_with(", replicas on cores 1") && !here.loadtest_cores.is_empty(),
            "{words}"
        );
    }
}
