//! What depends on what, as a user's build resolves it; and that packages are whole.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The packages that `leasehold` with these features compiles, tests and build scripts aside.
fn tree(arguments: &[&str]) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "leasehold", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(arguments)
        .current_dir(root)
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

/// A file that a package's sources include must go with the package.
#[test]
fn no_package_includes_a_file_outside_of_its_folder() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
    let mut found = 0;
    for package in std::fs::read_dir(crates).unwrap() {
        let package = package.unwrap().path();
        let mut folders: Vec<_> = package.is_dir().then(|| package.clone()).into_iter().collect();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    for part in text.split("include_str!(\"").skip(1) {
                        let named = part.split('"').next().unwrap();
                        let depth = folder.strip_prefix(&package).unwrap().components().count();
                        let up = named.split('/').take_while(|step| *step == "..").count();
                        assert!(up <= depth, "{} includes {named}", path.display());
                        assert!(folder.join(named).exists(), "{} includes {named}", path.display());
                        found += 1;
                    }
                }
            }
        }
    }
    assert!(found > 0);
}
