//! What depends on what, as a user's build resolves it.

use std::collections::BTreeSet;
use std::process::Command;

/// The packages that `leasehold` with these features compiles, tests and build scripts aside.
fn tree(arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "leasehold", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(arguments)
        .current_dir(xtask::root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

fn has(tree: &BTreeSet<String>, prefix: &str) -> bool {
    tree.iter().any(|package| package.starts_with(prefix))
}

#[test]
fn the_manager_alone_brings_no_controllers_no_server_and_no_cloud() {
    let tree = tree(&["--no-default-features"]);
    assert!(tree.contains("leasehold-engine") && tree.contains("leasehold-sharding"));
    for absent in [
        "aws-",
        "opentelemetry",
        "clap",
        "leasehold-apiserver",
        "leasehold-controllers",
        "leasehold-demo",
    ] {
        assert!(!has(&tree, absent), "{absent}: {tree:?}");
    }
}

#[test]
fn the_default_brings_no_cloud() {
    let tree = tree(&[]);
    assert!(tree.contains("leasehold-tunnel") && !has(&tree, "aws-"), "{tree:?}");
}

#[test]
fn each_controller_is_a_feature_that_brings_what_it_needs_and_nothing_of_others() {
    for name in controllers::all() {
        let tree = tree(&["--no-default-features", "--features", name]);
        assert!(tree.contains("leasehold-controllers"), "{name}");
        assert_eq!(has(&tree, "aws-"), name == "sqs", "{name}");
        assert_eq!(tree.contains("leasehold-tunnel"), name == "tunnel", "{name}");
        assert!(!has(&tree, "leasehold-apiserver") && !has(&tree, "leasehold-demo"), "{name}");
    }
}

/// A chart that is installed without values runs nothing, and gives nobody rights.
#[test]
fn no_controller_of_the_chart_is_on_by_default() {
    let values = std::fs::read_to_string(xtask::root().join("deploy/charts/leasehold/values.yaml"));
    let values: serde_json::Value = serde_saphyr::from_str(&values.unwrap()).unwrap();
    let controllers = values["controllers"].as_object().unwrap();
    assert_eq!(controllers.len(), controllers::all().count());
    for (name, settings) in controllers {
        assert_eq!(settings["enabled"], false, "{name}");
        let secrets = &settings["watchSecrets"];
        assert!(secrets.is_null() || secrets == false, "{name}");
    }
}
