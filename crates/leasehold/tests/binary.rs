//! The binary as a person uses it: exit codes, and what it prints on which stream.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn leasehold(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .current_dir(dir)
        .args(args)
        .env_remove("KUBECONFIG")
        .output()
        .expect("the binary was built for this test")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const HOME: &str = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
contexts: [{name: home, context: {cluster: c}}]
current-context: home
";

#[test]
fn a_wrong_file_gives_every_problem_and_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("l.yaml"), "home: {inClustr: true}\nlease: {duration: 1s}\n")
        .unwrap();
    let output = leasehold(dir.path(), &["run", "--config", "l.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "leasehold: l.yaml has 4 problems:\n  \
         home: names no cluster; allowed: a kubeconfig, or inCluster: true\n  \
         home.inClustr: unknown key; did you mean inCluster? Known here: inCluster, kubeconfig, context, allow\n  \
         clusters: names no cluster; allowed: at least one of inCluster, kubeconfigs, directories, directory, secrets\n  \
         lease.duration: found \"1s\"; allowed: a duration from 3s to 10m, as in 500ms, 8s or 2m\n"
    );
    assert!(output.stdout.is_empty());
}

/// A failed backup is reported though nobody can read why on standard error.
#[test]
fn a_standard_error_that_takes_nothing_ends_no_command() {
    let dir = tempfile::tempdir().unwrap();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let args = ["backup", "list", "--folder", "absent", "--report", "report"];
    let code = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .current_dir(dir.path())
        .args(args)
        .stderr(full())
        .status()
        .unwrap()
        .code();
    let expect = leasehold(dir.path(), &args).status.code();
    assert!(code == expect && code != Some(0) && code != Some(101), "{code:?}");
    assert!(fs::read_to_string(dir.path().join("report")).unwrap().contains("Missing"));
}

#[test]
fn the_version_tells_programs_what_this_build_is() {
    let dir = tempfile::tempdir().unwrap();
    let output = leasehold(dir.path(), &["version", "-o", "json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let [oldest, newest] = [0, 1].map(|n| version["protocol"][n].as_u64().unwrap());
    assert!(1 <= oldest && oldest <= newest, "{version}");
    assert!(version["controllers"].as_array().unwrap().contains(&"tdset".into()), "{version}");
    let fields: Vec<&String> = version.as_object().unwrap().keys().collect();
    let all = ["controllers", "debug", "oldestKubernetes", "platform", "protocol", "version"];
    assert_eq!(fields, all);
    let text = leasehold(dir.path(), &["version"]).stdout;
    assert_eq!(text, format!("leasehold {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
}

#[test]
fn shells_complete_its_commands() {
    let dir = tempfile::tempdir().unwrap();
    for (shell, begins) in [
        ("bash", "_leasehold()"),
        ("zsh", "#compdef leasehold"),
        ("fish", "# Print an optspec"),
        ("powershell", "using namespace"),
        ("elvish", "use builtin;"),
    ] {
        let output = leasehold(dir.path(), &["completion", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.trim_start().starts_with(begins), "{script}");
        assert!(script.contains("support-bundle") && script.contains("kubeconfig"), "{shell}");
    }
    // A shell that is everywhere takes it, and completes.
    let script = leasehold(dir.path(), &["completion", "bash"]).stdout;
    fs::write(dir.path().join("completion"), script).unwrap();
    let ask = "source ./completion; COMP_WORDS=(leasehold supp); COMP_CWORD=1; \
               _leasehold leasehold supp leasehold; echo \"${COMPREPLY[@]}\"";
    let asked = Command::new("bash").current_dir(dir.path()).args(["-c", ask]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "support-bundle\n", "{}", stderr(&asked));
}

#[test]
fn as_a_plugin_of_kubectl_it_says_how_it_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-leasehold");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_leasehold"), &plugin).unwrap();
    let run = |args: &[&str]| Command::new(&plugin).args(args).output().unwrap();
    let help = String::from_utf8(run(&["status", "--help"]).stdout).unwrap();
    assert!(help.contains("Usage: kubectl leasehold status"), "{help}");
    let wrong = run(&["staus"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("Usage: kubectl leasehold"), "{}", stderr(&wrong));
    let version = run(&["version"]).stdout;
    assert_eq!(version, leasehold(dir.path(), &["version"]).stdout);
}

#[test]
fn check_says_yes_without_starting_anything() {
    let dir = tempfile::tempdir().unwrap();
    let file = "home: {kubeconfig: nowhere}\nidentity: r\nclusters: {directory: c}\n";
    fs::write(dir.path().join("l.yaml"), file).unwrap();
    let output = leasehold(dir.path(), &["run", "--check", "--config", "l.yaml"]);
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"l.yaml is right\n".to_vec()));
}

#[test]
fn a_port_in_use_and_a_missing_home_are_told_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let run = |admin: &str| {
        let file = format!(
            "home: {{kubeconfig: home}}\nidentity: r\nclusters: {{directory: .}}\nadmin: {{bind: '{admin}'}}\n"
        );
        fs::write(dir.path().join("l.yaml"), file).unwrap();
        let output = leasehold(dir.path(), &["run", "--config", "l.yaml"]);
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let missing = run("127.0.0.1:0");
    assert!(missing.contains("reach the home cluster"), "{missing}");
    assert!(missing.contains("create the file"), "{missing}");
    assert!(missing.contains("No such file or directory"), "{missing}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let in_use = run(&address);
    assert!(
        in_use.contains(&address) && in_use.contains("another process has this port"),
        "{in_use}"
    );
}

/// A replica whose home does not answer, once it has started, and what it has logged until then. A shell does `first`.
fn started_with(dir: &Path, first: Option<&str>) -> (String, Child) {
    fs::write(dir.join("home"), HOME).expect("it works here");
    fs::create_dir(dir.join("clusters")).expect("it works here");
    let file = "home: {kubeconfig: home, allow: [loopback]}\nidentity: r\nclusters: {directory: clusters}\n\
                admin: {bind: '127.0.0.1:0'}\n";
    fs::write(dir.join("l.yaml"), file).expect("it works here");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{}; exec \"$0\" \"$@\"", first.unwrap_or("true"))]);
    command.arg(env!("CARGO_BIN_EXE_leasehold")).args(["run", "--config"]).arg(dir.join("l.yaml"));
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it works here");
    let log = child.stderr.as_mut().expect("it works here");
    // The line that names the admin address is the last of the start.
    let mut text = String::new();
    while !text.contains("probes and metrics are served") {
        let mut bytes = [0; 1024];
        let read = log.read(&mut bytes).expect("it works here");
        assert!(read > 0, "it ended early: {text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    (text, child)
}

#[test]
fn sigterm_ends_a_replica_whose_home_does_not_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (mut text, mut child) = started_with(dir.path(), None);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().code().is_some(), "{text}");
    assert!(text.contains("told to stop"), "{text}");
}

/// The limit of a login or a container is often 1,024, and a thousand clusters need more.
#[test]
fn a_replica_raises_its_limit_of_open_files_as_far_as_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let (started, mut child) = started_with(dir.path(), Some("ulimit -Sn 64; ulimit -Hn 3000"));
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|field| files.split_whitespace().nth(field).unwrap());
    assert_eq!((soft, hard), ("3000", "3000"), "{started}");
}

#[test]
fn status_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let absent = leasehold(dir.path(), &["status", "--kubeconfig", "nowhere"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(stderr(&absent).starts_with("leasehold: cannot read nowhere"), "{}", stderr(&absent));
    fs::write(dir.path().join("home"), HOME).unwrap();
    let silent = leasehold(dir.path(), &["status", "--kubeconfig", "home"]);
    assert_eq!(silent.status.code(), Some(1));
    let silent = stderr(&silent);
    let begin =
        "leasehold: read the fleet from https://127.0.0.1:1 (context \"home\" of home): list ";
    assert!(silent.starts_with(begin), "{silent}");
    assert!(silent.contains(" of the home cluster: client error (Connect): "), "{silent}");
    let fix = "; fix: see whether the server runs and can be reached from here\n";
    assert!(silent.ends_with(fix), "{silent}");
}

/// As `head` does, which has seen enough: no answer at all is read.
#[test]
fn a_reader_that_goes_away_is_no_failure_and_a_full_disk_is_one_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let right = "home: {kubeconfig: nowhere}\nidentity: r\nclusters: {directory: c}\n";
    fs::write(dir.path().join("l.yaml"), right).unwrap();
    for args in [
        &["crds"][..],
        &["simulate", "--members", "3"],
        &["simulate", "--members", "3", "--output", "json"],
        &["run", "--check", "--config", "l.yaml"],
        &["version"],
    ] {
        let run = |stdout: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
            let command = command.current_dir(dir.path()).args(args).stdout(stdout);
            command.stderr(Stdio::piped()).output().expect("it works here")
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let gone = run(writer.into());
        assert_eq!((gone.status.code(), stderr(&gone).as_str()), (Some(0), ""), "{args:?}");
        let full = run(fs::File::options().write(true).open("/dev/full").unwrap().into());
        assert_eq!(full.status.code(), Some(1), "{args:?}: {}", stderr(&full));
        assert!(stderr(&full).contains("No space left on device"), "{}", stderr(&full));
    }
}

#[test]
fn a_wrong_file_is_told_in_the_same_way_to_whoever_only_looks_for_home() {
    let dir = tempfile::tempdir().unwrap();
    let problems: String = (0..14).map(|n| format!("unknown{n}: true\n")).collect();
    let right = "home: {kubeconfig: nowhere}\nidentity: r\nclusters: {directory: c}\n";
    fs::write(dir.path().join("l.yaml"), format!("{right}{problems}")).unwrap();
    let run = leasehold(dir.path(), &["run", "--check", "--config", "l.yaml"]);
    for args in [
        &["status", "--config", "l.yaml"][..],
        &["clusters", "list", "-c", "l.yaml"],
        &["simulate", "-c", "l.yaml", "--next"],
    ] {
        let found = leasehold(dir.path(), args);
        assert_eq!((found.status.code(), stderr(&found)), (Some(2), stderr(&run)), "{args:?}");
    }
    assert!(stderr(&run).contains("\n  unknown13: unknown key"), "{}", stderr(&run));
}

#[test]
fn crds_are_yaml_for_kubectl() {
    let output = leasehold(Path::new("."), &["crds", "--for", "home"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("kind: CustomResourceDefinition").count(), 3);
}
