//! What depends on what, as a user's build resolves it.

use std::collections::BTreeSet;
use std::fs;
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

/// The commands of a page, each in one line.
fn commands(page: &str) -> Vec<String> {
    let text = page.replace("\\\n", " ");
    let lines = text.lines().map(|line| line.trim().trim_start_matches("$ ").to_owned());
    lines.filter(|line| line.starts_with("helm ") || line.starts_with("kubectl ")).collect()
}

/// Whoever copies the commands of a page from top to bottom gets what they say.
#[test]
fn commands_of_pages_name_the_namespace_and_make_what_they_use() {
    let mut seen = 0;
    for path in ["README.md", "deploy/charts/leasehold/README.md"] {
        let page = fs::read_to_string(xtask::root().join(path)).unwrap();
        let mut made = BTreeSet::new();
        for command in commands(&page) {
            let words: Vec<&str> = command.split_whitespace().collect();
            let is_of_a_release = matches!(words[..], ["helm", "install" | "upgrade" | "test", ..]);
            let is_named = words.iter().any(|word| ["--namespace", "-n"].contains(word));
            assert!(is_named || !is_of_a_release, "{path}: no namespace: {command}");
            if let Some(at) = words.iter().position(|word| *word == "serviceaccount") {
                made.extend(words.get(at + 1).map(|name| (*name).to_owned()));
            }
            seen += 1;
        }
        for line in page.lines().filter(|line| line.contains("kubectl create token ")) {
            let name = line.split("kubectl create token ").nth(1).unwrap();
            let name = name.split_whitespace().next().unwrap();
            assert!(made.contains(name), "{path}: nobody made {name}: {line}");
        }
    }
    assert!(seen > 20, "{seen}");
}

/// `leasehold rbac` gives rights to people; those of controllers come from `clusters add` and the chart.
#[test]
fn the_changelog_sends_nobody_to_rbac_for_the_rights_of_a_controller() {
    let text = fs::read_to_string(xtask::root().join("CHANGELOG.md")).unwrap();
    for entry in text.split("\n- ").filter(|entry| entry.contains("apply `leasehold rbac`")) {
        assert!(
            ["Viewers", "Operators", "People"].iter().any(|who| entry.contains(who)),
            "{entry}"
        );
    }
}

/// The chart's ClusterRole for those who look into replicas gives what `leasehold doctor` and `support-bundle` ask for.
#[test]
fn whoever_may_look_into_replicas_may_read_all_that_commands_ask_for() {
    let read = |path: &str| fs::read_to_string(xtask::root().join(path)).unwrap();
    let template = read("deploy/charts/leasehold/templates/admin-rbac.yaml");
    let role = template.split("%s-debug-reader").nth(1).unwrap();
    let rule = role.lines().find_map(|line| line.strip_prefix("- nonResourceURLs: ")).unwrap();
    let urls: Vec<String> = serde_saphyr::from_str(rule).unwrap();
    let may_read = |path: &str| {
        urls.iter().any(|url| match url.strip_suffix('*') {
            Some(begin) => path.starts_with(begin),
            None => path == url,
        })
    };
    for file in ["crates/leasehold/src/cli/doctor.rs", "crates/ops/src/bundle.rs"] {
        let text = read(file);
        let words = text
            .split('"')
            .filter(|word| word.starts_with('/') && !word.contains(' ') && word.len() > 1);
        // Every user may read whether a replica is ready.
        let paths: Vec<_> = words.filter(|path| !path.starts_with("/readyz")).collect();
        assert!(paths.contains(&"/metrics") && paths.len() >= 4, "{file}: {paths:?}");
        for path in paths {
            assert!(may_read(path), "{file} asks for {path}, and the role has {urls:?}");
        }
    }
}

/// Whoever reads a page that has commands of the program learns how to get it.
#[test]
fn pages_with_commands_of_the_program_say_how_it_is_built() {
    for path in ["README.md", "deploy/charts/leasehold/README.md"] {
        let page = fs::read_to_string(xtask::root().join(path)).unwrap();
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("cargo install --locked --path crates/leasehold"), "{path}");
    }
}
