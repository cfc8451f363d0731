//! The demo as a newcomer starts it: the real binary, its output, and what it leaves behind.
#![cfg(all(target_os = "linux", feature = "embedded"))]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How often processes are looked for, and for how long at most.
const POLL: Duration = Duration::from_millis(50);
const POLLS: u32 = 600;

/// A demo that goes when its test fails; its replicas go with it.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        // It has usually ended by now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A small fleet on free ports, with its files in `dir`.
fn demo(dir: &Path, more: &[&str]) -> Demo {
    let child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["demo", "--port", "0", "--clusters", "2", "--replicas", "2", "--objects", "30"])
        .arg("--dir")
        .arg(dir)
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary of this package starts");
    Demo(child)
}

/// Lets a demo end by itself; what it said on both outputs.
fn ended(mut demo: Demo) -> (bool, String) {
    // Standard error is short: it fits the pipe while standard output is read.
    let mut told = String::new();
    let stdout = demo.0.stdout.as_mut().expect("standard output is a pipe");
    stdout.read_to_string(&mut told).expect("the output is text");
    let stderr = demo.0.stderr.as_mut().expect("standard error is a pipe");
    stderr.read_to_string(&mut told).expect("the output is text");
    (demo.0.wait().expect("it is our child").success(), told)
}

/// Processes that have `dir` in their arguments: the demo in it and its replicas.
fn ids(dir: &Path) -> Vec<i32> {
    let dir = dir.to_str().expect("a temporary path is text");
    let all = std::fs::read_dir("/proc").expect("Linux has /proc");
    let found = all.filter_map(|entry| {
        let entry = entry.ok()?;
        let arguments = std::fs::read(entry.path().join("cmdline")).ok()?;
        let id = entry.file_name().to_str()?.parse().ok()?;
        String::from_utf8_lossy(&arguments).contains(dir).then_some(id)
    });
    found.collect()
}

fn processes(dir: &Path) -> usize {
    ids(dir).len()
}

fn until_processes(dir: &Path, expect: impl Fn(usize) -> bool, what: &str) {
    let found = (0..POLLS).any(|_| {
        let found = expect(processes(dir));
        if !found {
            std::thread::sleep(POLL);
        }
        found
    });
    assert!(found, "{what}: {} processes", processes(dir));
}

fn signal(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).expect("process ids are small");
    kill_process(Pid::from_raw(id).expect("it is not 0"), signal).expect("the demo runs");
}

/// Reads the demo's output until a line contains `text`.
fn read_until(child: &mut Child, text: &str) -> BufReader<impl Read + use<>> {
    let mut lines = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
    let mut read = String::new();
    while !read.lines().any(|line| line.contains(text)) {
        let count = lines.read_line(&mut read).expect("the output is text");
        assert!(count > 0, "the demo ended without saying {text:?}:\n{read}");
    }
    lines
}

#[test]
fn it_ends_by_itself_when_everything_has_converged() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("demo");
    let (success, told) = ended(demo(&dir, &["--for", "10s"]));
    assert!(success, "{told}");
    for expect in [
        "  work        leasehold top --kubeconfig ",
        "converged        30 of 30 objects",
        "no key was dispatched by two members at once",
        "result           ok",
    ] {
        assert!(told.contains(expect), "{expect} in:\n{told}");
    }
    assert_eq!(processes(&dir), 0, "{told}");
}

#[test]
fn an_interrupt_leaves_no_process_and_its_directory_to_the_next() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("demo");
    let mut first = demo(&dir, &[]);
    let mut rest = read_until(&mut first.0, "objects has converged");

    let (success, told) = ended(demo(&dir, &[]));
    let expect = format!("another demo (process {}) is using", first.0.id());
    assert!(!success && told.contains(&expect), "{told}");

    signal(&first.0, Signal::INT);
    let mut summary = String::new();
    rest.read_to_string(&mut summary).unwrap();
    assert!(first.0.wait().unwrap().success(), "{summary}");
    assert!(summary.contains("Summary") && !summary.contains("was killed"), "{summary}");
    assert_eq!(processes(&dir), 0, "{summary}");
}

#[test]
fn replicas_do_not_outlive_a_demo_that_is_killed() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("demo");
    let mut demo = demo(&dir, &[]);
    let _rest = read_until(&mut demo.0, "converged 0/30");
    until_processes(&dir, |count| count == 3, "the demo and two replicas run");
    signal(&demo.0, Signal::KILL);
    demo.0.wait().unwrap();
    until_processes(&dir, |count| count == 0, "the replicas end with the demo");
}

/// What everybody tries who watches it.
#[test]
fn a_replica_that_its_spectator_kills_is_taken_over_and_started_again() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("demo");
    let mut demo = demo(&dir, &[]);
    let mut lines = read_until(&mut demo.0, "objects has converged");
    let replica = ids(&dir.join("replicas/replica-1"));
    let replica = Pid::from_raw(replica[0]).expect("it is not 0");
    kill_process(replica, Signal::KILL).expect("it runs");
    let mut told = String::new();
    while !told.contains("replica-1 was started again") {
        let count = lines.read_line(&mut told).expect("the output is text");
        assert!(count > 0, "the demo ended:\n{told}");
    }
    assert!(told.contains("replica-1"), "{told}");
    assert!(told.contains(" was killed (signal: 9 (SIGKILL)); it held "), "{told}");
    signal(&demo.0, Signal::INT);
    lines.read_to_string(&mut told).unwrap();
    assert!(demo.0.wait().unwrap().success(), "{told}");
    let expect = "killed           replica-1, signal: 9 (SIGKILL), and started again later";
    assert!(told.contains(expect) && told.contains("result           ok"), "{told}");
}
