//! `kind/run.sh` over stand-ins for kind, docker, kubectl and helm.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A `kind` whose clusters are files. One with a number takes a second to be there, and the first of them is refused
/// where the file `refuse` says so. Where there is a file `again`, whoever deletes a cluster is ended once more; where
/// there is `stuck`, none is deleted, and where there is `down`, none are listed.
const KIND: &str = r#"#!/usr/bin/env bash
cd "$CLUSTERS"
case "$1 $2" in
  "create cluster")
    echo "creating $4"
    case $4 in
      *-home) ;;
      *-1) [ ! -e ../refuse ] || { echo "no room" >&2 && exit 1; } ;;&
      *) sleep 1 ;;
    esac
    touch "$4" ;;
  "delete cluster")
    [ ! -e ../stuck ] || exit 1
    rm -f "$4"
    [ ! -e ../again ] || kill -s TERM $PPID ;;
  "get clusters") [ ! -e ../down ] && ls ;;
esac
"#;

/// A `loadtest` that runs for a minute. Where it is told to end before, it leaves a file `told`.
const LOADTEST: &str = r#"#!/bin/sh
trap 'kill $!; : >"$CLUSTERS/../told"; exit' TERM
sleep 60 &
echo attached
wait
"#;

/// The script over these stand-ins.
fn script(dir: &Path) -> Command {
    let (bin, clusters) = (dir.join("bin"), dir.join("clusters"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&clusters).unwrap();
    for (tool, text) in [
        ("kind", KIND),
        ("docker", "#!/bin/sh\n"),
        ("kubectl", "#!/bin/sh\n"),
        ("helm", "#!/bin/sh\nenv | grep ^HELM_\necho KUBECONFIG=$KUBECONFIG\n"),
    ] {
        fs::write(bin.join(tool), text).unwrap();
        fs::set_permissions(bin.join(tool), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    // Whoever runs the tests in the background ignores SIGINT, and a shell that inherits that cannot heed it.
    let mut script = Command::new("env");
    script
        .args(["--default-signal=INT,PIPE", "kind/run.sh"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .envs([("PATH", path.as_str()), ("LOADTEST", "true")])
        .env("CLUSTERS", &clusters);
    script
}

/// Ends a process by this signal.
fn end(process: &Child, signal: &str) {
    Command::new("kill").args(["-s", signal, &process.id().to_string()]).status().unwrap();
}

/// Runs the script over two clusters, and ends it by this signal when it creates the last. Returns whether it
/// succeeded, and the clusters that are left.
fn run(dir: &Path, signal: Option<&str>) -> (bool, usize) {
    let mut script = script(dir).args(["2", "100"]).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(script.stdout.take().unwrap());
    for line in said.lines().map(Result::unwrap) {
        let is_last = line.starts_with("creating") && line.ends_with("-2");
        if let Some(signal) = signal.filter(|_| is_last) {
            end(&script, signal);
        }
    }
    let succeeded = script.wait().unwrap().success();
    (succeeded, fs::read_dir(dir.join("clusters")).unwrap().count())
}

#[test]
fn no_cluster_is_left_however_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), None), (true, 0));
    assert_eq!(run(dir.path(), Some("TERM")), (false, 0));
    assert_eq!(run(dir.path(), Some("INT")), (false, 0));
    // While it deletes them.
    fs::write(dir.path().join("again"), "").unwrap();
    assert_eq!(run(dir.path(), None), (true, 0));
    assert_eq!(run(dir.path(), Some("INT")), (false, 0));
    fs::write(dir.path().join("refuse"), "").unwrap();
    assert_eq!(run(dir.path(), None), (false, 0));
}

/// As with `run.sh 2>&1 | tee log` and Ctrl-C, which ends `tee` too.
#[test]
fn no_cluster_is_left_where_nobody_reads_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let (said, speech) = std::io::pipe().unwrap();
    let mut script = script(dir.path());
    script.args(["2", "100"]).stdout(speech.try_clone().unwrap()).stderr(speech);
    let mut running = script.spawn().unwrap();
    // It holds the ends that the script has.
    drop(script);
    let mut lines = BufReader::new(said).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("creating") && line.ends_with("-2")));
    drop(lines);
    end(&running, "INT");
    assert!(!running.wait().unwrap().success());
    assert_eq!(fs::read_dir(dir.path().join("clusters")).unwrap().count(), 0);
}

#[test]
fn the_load_test_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let loadtest = dir.path().join("loadtest");
    fs::write(&loadtest, LOADTEST).unwrap();
    fs::set_permissions(&loadtest, fs::Permissions::from_mode(0o755)).unwrap();
    let mut script = script(dir.path());
    script.args(["2", "100"]).env("LOADTEST", &loadtest).stdout(Stdio::piped());
    let mut running = script.spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "attached"));
    end(&running, "TERM");
    assert!(!running.wait().unwrap().success());
    assert!(dir.path().join("told").exists());
}

#[test]
fn a_chart_that_does_not_install_is_looked_at_before_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut script = script(dir.path());
    let bin = dir.path().join("bin");
    fs::write(bin.join("helm"), "#!/bin/sh\nexit 1\n").unwrap();
    // Home does not answer.
    let kubectl = "#!/bin/sh\necho kubectl \"$@\"\ncase $* in *events) exit 1 ;; esac\n";
    fs::write(bin.join("kubectl"), kubectl).unwrap();
    let output = script.args(["2", "100"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.trim_end().ends_with(" get pods,events"), "{said}");
}

#[test]
fn what_fails_is_named_with_its_cause() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["refuse", "stuck"] {
        fs::write(dir.path().join(file), "").unwrap();
    }
    let output = script(dir.path()).args(["2", "100"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("-1: no room\n"), "{said}");
    for left in fs::read_dir(dir.path().join("clusters")).unwrap() {
        let name = left.unwrap().file_name().into_string().unwrap();
        assert!(said.contains(&format!("is left: kind delete cluster --name {name}\n")), "{said}");
    }
}

/// Whatever points elsewhere: a kubeconfig, or what helm heeds before one.
#[test]
fn no_other_cluster_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("mine");
    fs::write(&mine, "mine").unwrap();
    let mut script = script(dir.path());
    script.env("KUBECONFIG", &mine).env("HELM_KUBEAPISERVER", "https://mine");
    let output = script.args(["2", "100"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("KUBECONFIG=/"), "{said}");
    assert!(!said.contains("mine"), "{said}");
    assert_eq!(fs::read_to_string(mine).unwrap(), "mine");
}

#[test]
fn paths_may_have_spaces_and_shells_a_cdpath() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a b");
    fs::create_dir(&folder).unwrap();
    let loadtest = folder.join("load test");
    fs::write(&loadtest, "#!/bin/sh\n[ -f \"$2\" ] && echo \"$1 with a scenario\"\n").unwrap();
    fs::set_permissions(&loadtest, fs::Permissions::from_mode(0o755)).unwrap();
    let mut script = script(&folder);
    // What `cd` finds there it prints.
    script.env("CDPATH", env!("CARGO_MANIFEST_DIR"));
    script.env("LOADTEST", &loadtest).env("TMPDIR", &folder);
    let output = script.args(["2", "100"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("attach with"), "{said}{complaint}");
    // Programs, clusters, and the load test.
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "it left files");
}

#[test]
fn nothing_is_made_where_clusters_cannot_be_listed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("down"), "").unwrap();
    let output = script(dir.path()).args(["2", "100"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("does docker run?"), "{said}");
    assert!(output.stdout.is_empty(), "it makes clusters");
}

#[test]
fn wrong_numbers_are_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let table: [(&[&str], &str); 6] = [
        (&["2", "100", "9"], "found 3 arguments"),
        (&["0", "100"], "0 is not a number from 1 to 999999"),
        (&["2", "many"], "many is not a number from 1 to 999999"),
        (&["2", "99999999999999999999"], "is not a number from 1 to 999999"),
        (
            &["2", "80"],
            "found 80, allowed 81 to 200000: 40 TDSets of each cluster stay as they are",
        ),
        (&["2", "200001"], "allowed 81 to 200000: 40 TDSets of each cluster stay as they are"),
    ];
    for (numbers, expect) in table {
        let output = script(dir.path()).args(numbers).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.trim_end().ends_with(expect), "{said}");
        assert!(output.stdout.is_empty(), "it makes clusters");
    }
}
