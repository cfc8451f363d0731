//! The rules the tree keeps: who imports whom, how long things are, what is public, what names and
//! texts say, what is generated, what documents point at.
//!
//! - `api`, `facts`: the public API, held to what the last release promised
//! - `circles`: files that import each other
//! - `publics`: public items that nobody uses, types of one name
//! - `sizes`: crates that are long
//! - `words`: retired names, riddles, the glossary
//! - `source`, `reader`: what the sources say, read with `syn`

mod api;
mod circles;
mod facts;
mod publics;
mod reader;
mod sizes;
mod source;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

use source::{Sources, Top};

/// The longest source file, in lines.
const MAX_LINES: usize = 600;
/// The longest crate, in lines, tests aside.
const MAX_CRATE_LINES: usize = 8_000;
/// May be longer: a whole API server, the checks of everything, sharding until its planner, which needs
/// only `model`, is a crate of its own, mysql until its protocol (`wire`), which needs nothing else of
/// it, is one, and leasehold until its commands about clusters are among those of `ops`.
const LONG_CRATES: &[&str] = &["apiserver", "xtask", "sharding", "mysql", "leasehold"];
/// What authors of controllers see. Their code is elsewhere, so nobody here need use all of it.
const FACES: &[&str] = &["sdk", "leasehold", "apiserver"];

/// Who may import whom among our crates; the same table is in `crates/README.md`.
const IMPORTS: &[(&str, &[&str])] = &[
    ("fuzz", &[]),
    ("model", &["fuzz"]),
    ("telemetry", &[]),
    ("apiserver", &[]),
    ("clock", &["model"]),
    ("sharding", &["model"]),
    ("marks", &["model"]),
    ("clusters", &["fuzz", "marks", "model"]),
    ("listwatch", &["fuzz", "model"]),
    ("cache", &["fuzz", "model"]),
    ("queue", &["model"]),
    ("upstream", &["model"]),
    ("portforward", &["model"]),
    ("extent", &["cache", "listwatch", "model"]),
    ("metrics", &["model", "queue"]),
    ("explain", &["model", "queue"]),
    ("doctor", &["model"]),
    ("writes", &["cache", "listwatch", "model"]),
    ("informer", &["cache", "extent", "listwatch", "metrics", "model", "queue"]),
    (
        "engine",
        &[
            "cache",
            "explain",
            "extent",
            "informer",
            "listwatch",
            "metrics",
            "model",
            "portforward",
            "queue",
            "upstream",
            "writes",
        ],
    ),
    ("install", &[]),
    ("journal", &["engine", "model"]),
    ("sdk", &["cache", "engine", "explain", "model", "upstream"]),
    ("admin", &["model", "telemetry"]),
    ("sqs", &["fuzz", "sdk"]),
    ("tunnel", &["fuzz", "sdk"]),
    ("operands", &["fuzz", "sdk"]),
    ("etcd", &["fuzz", "operands", "sdk"]),
    ("mysql", &["fuzz", "operands", "sdk"]),
    ("controllers", &["etcd", "fuzz", "mysql", "sdk", "sqs", "tunnel"]),
    ("fleet", &["model", "portforward", "queue", "sharding"]),
    ("console", &["explain", "fleet", "model", "queue", "sharding"]),
    (
        "ops",
        &[
            "clock",
            "console",
            "explain",
            "fleet",
            "fuzz",
            "model",
            "portforward",
            "queue",
            "sdk",
            "sharding",
        ],
    ),
    ("demo", &["apiserver", "clusters", "controllers", "fleet", "install", "model", "sharding"]),
    (
        "leasehold",
        &[
            "admin",
            "apiserver",
            "clock",
            "clusters",
            "console",
            "controllers",
            "demo",
            "doctor",
            "engine",
            "explain",
            "fleet",
            "install",
            "journal",
            "marks",
            "model",
            "operands",
            "ops",
            "queue",
            "sdk",
            "sharding",
            "telemetry",
            "upstream",
        ],
    ),
    ("xtask", &["leasehold"]),
    ("loadtest", &["apiserver", "fleet", "portforward"]),
    ("peer", &[]),
    ("peer-kube-rs", &["peer"]),
    (
        "peer-leasehold",
        &[
            "clusters",
            "engine",
            "leasehold",
            "model",
            "peer",
            "queue",
            "sdk",
            "telemetry",
            "upstream",
        ],
    ),
];
/// May import any of ours.
const UNBOUND: &str = "tests";

fn root() -> PathBuf {
    xtask::root()
}

/// Files below the root with one of these extensions, as paths relative to it.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if path.is_dir() {
                // Build output, caches and the like; `.ci` and `.cargo` hold none of these files.
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no {extensions:?} below {}", root().display());
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
});

fn packages() -> &'static [Value] {
    METADATA["packages"].as_array().unwrap()
}

/// The folder of a package: its name without what all names on a registry begin with.
fn room(package: &Value) -> &str {
    let name = package.as_str().unwrap();
    name.strip_prefix("leasehold-").unwrap_or(name)
}

/// Every target of every package, read once.
static SOURCES: LazyLock<Sources> = LazyLock::new(|| {
    let below = |path: &Value| {
        let path = Path::new(path.as_str().unwrap());
        path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
    };
    let mut tops = Vec::new();
    for package in packages() {
        for target in package["targets"].as_array().unwrap() {
            let is_library = target["kind"][0] == "lib";
            let names = [room(&package["name"]), target["name"].as_str().unwrap()];
            tops.push(Top {
                package: room(&package["name"]).to_owned(),
                library: names.iter().filter(|_| is_library).map(|n| n.replace('-', "_")).collect(),
                file: below(&target["src_path"]),
            });
        }
    }
    Sources::read(&tops, &|file| fs::read_to_string(root().join(file)).ok())
});

/// Libraries and programs of the product: where each begins, and its package.
fn products() -> impl Iterator<Item = (usize, &'static str)> {
    let tops = SOURCES.modules.iter().enumerate().filter(|(_, module)| module.parent.is_none());
    tops.filter(|(_, module)| module.file.starts_with("crates/") && module.file.contains("/src/"))
        .map(|(at, module)| (at, module.package.as_str()))
}

/// Fails with a list of what breaks the rule.
fn none(rule: &str, wrong: impl IntoIterator<Item = String>) {
    let wrong: BTreeSet<String> = wrong.into_iter().collect();
    let list: Vec<_> = wrong.iter().map(String::as_str).collect();
    assert!(list.is_empty(), "{rule}; {} do not:\n{}", list.len(), list.join("\n"));
}

#[test]
fn crates_import_what_the_table_allows() {
    let ours: BTreeSet<_> = packages().iter().map(|p| room(&p["name"])).collect();
    let table: BTreeMap<_, _> = IMPORTS.iter().copied().collect();
    for package in packages() {
        let name = room(&package["name"]);
        if name == UNBOUND {
            continue;
        }
        let allowed = table.get(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let import = room(&dependency["name"]);
            let is_ours = ours.contains(import) && dependency["path"].is_string();
            assert!(!is_ours || allowed.contains(&import), "{name} must not import {import}");
            let optional = dependency["optional"].as_bool().unwrap();
            let is_feature = ["apiserver", "controllers", "demo"].contains(&import);
            assert!(
                name != "leasehold" || !is_feature || optional,
                "{import} is a feature of leasehold"
            );
        }
    }
    for (name, _) in IMPORTS {
        assert!(ours.contains(name), "{name} is in the table and not in the workspace");
    }
}

#[test]
fn one_version_of_the_kubernetes_types() {
    let lock = read(Path::new("Cargo.lock"));
    for name in ["k8s-openapi", "kube", "kube-client", "kube-core"] {
        let line = format!("name = \"{name}\"");
        assert_eq!(lock.lines().filter(|found| *found == line).count(), 1, "{name}");
    }
}

#[test]
fn every_crate_has_the_workspace_lints() {
    for package in packages() {
        let manifest = fs::read_to_string(package["manifest_path"].as_str().unwrap()).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true\n"), "{}", package["name"]);
    }
    let root = read(Path::new("Cargo.toml"));
    assert!(root.contains("unsafe_code = \"forbid\"") && root.contains("missing_docs = \"deny\""));
}

/// Bugs on purpose stay out of the product: only a command or a test can ask for them, and a release
/// build that does fails.
#[test]
fn nothing_asks_for_planted_bugs() {
    const FEATURE: &str = "planted";
    for package in packages() {
        let dependencies = package["dependencies"].as_array().unwrap();
        for dependency in dependencies.iter().filter(|dependency| dependency["kind"] != "dev") {
            let features = dependency["features"].as_array().unwrap();
            assert!(!features.iter().any(|f| f == FEATURE), "{} asks for it", package["name"]);
        }
        let features = package["features"].as_object().unwrap();
        for (name, enables) in features.iter().filter(|(name, _)| *name != FEATURE) {
            let enables = enables.to_string();
            assert!(!enables.contains(FEATURE), "{}: {name} enables it", package["name"]);
        }
        if features.contains_key(FEATURE) {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            let bugs = fs::read_to_string(manifest.with_file_name("src/planted.rs")).unwrap();
            assert!(bugs.contains("#[cfg(not(debug_assertions))]\ncompile_error!("));
        }
    }
}

/// A seed cannot replay a `select!` that takes its arms in any order.
#[test]
fn what_the_world_simulates_selects_in_order() {
    const SIMULATED: [&str; 8] =
        ["engine", "extent", "informer", "listwatch", "queue", "sharding", "upstream", "writes"];
    let is_simulated = |path: &PathBuf| {
        let source = SIMULATED.iter().any(|name| path.starts_with(format!("crates/{name}/src")));
        source && !path.to_string_lossy().contains("tests")
    };
    let found = files(&["rs"]).into_iter().filter(is_simulated).flat_map(|path| {
        let text = read(&path);
        let product = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        let selects = product.split("select! {").skip(1).map(str::trim_start);
        let wrong = selects.filter(|rest| !rest.starts_with("biased;")).count();
        (0..wrong).map(move |_| path.display().to_string()).collect::<Vec<_>>()
    });
    none("`select!` begins with `biased;` where the world of tests/src/world runs it", found);
}

#[test]
fn no_source_file_is_long() {
    let lines = |path: &PathBuf| read(path).lines().count();
    let long: Vec<_> = files(&["rs", "go"])
        .into_iter()
        .map(|path| (lines(&path), path))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines: {long:#?}");
}

#[test]
fn no_crate_is_long() {
    let bound = products().filter(|(_, package)| !LONG_CRATES.contains(package));
    let found = sizes::long(&SOURCES, bound.map(|(top, _)| top), MAX_CRATE_LINES);
    none(&format!("a crate has at most {MAX_CRATE_LINES} lines, tests aside"), found);
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let found = products().flat_map(|(top, _)| circles::circles(&SOURCES, top));
    none("files import in one direction, a module and its own parts aside", found);
}

#[test]
fn what_is_public_is_used_by_others() {
    let ours = SOURCES.libraries.keys().filter(|name| !FACES.contains(&name.as_str()));
    let rooms = ours.filter(|name| root().join("crates").join(name).is_dir());
    let found = rooms.flat_map(|name| publics::unused(&SOURCES, name, FACES));
    none("another crate names every public item, or one whose signature has it", found);
}

/// A file that a package's sources include must go with the package.
#[test]
fn no_package_includes_a_file_outside_of_its_folder() {
    let mut included = 0;
    let sources = files(&["rs"]).into_iter().filter(|file| file.starts_with("crates"));
    let outside = sources.flat_map(|file| {
        let folder = file.parent().unwrap().to_owned();
        // Below `crates/<package>`.
        let depth = folder.components().count() - 2;
        let text = read(&file);
        let named =
            text.split("include_str!(\"").skip(1).map(|part| part.split('"').next().unwrap());
        included += named.clone().count();
        let is_outside = |named: &&str| {
            let up = named.split('/').take_while(|step| *step == "..").count();
            up > depth || !root().join(&folder).join(named).exists()
        };
        let outside = named.filter(is_outside);
        outside.map(|named| format!("{}: {named}", file.display())).collect::<Vec<_>>()
    });
    none("packages include only files of their own", outside.collect::<Vec<_>>());
    assert!(included > 0, "no file is included");
}

/// The public API of the last release: `# VERSION`, then a line for each fact.
const RELEASED: &str = "crates/leasehold/api.txt";

/// What a release promised holds until the next breaking version. With `UPDATE_API=1` the list is
/// written anew, as each release should do.
#[test]
fn the_public_api_keeps_what_the_last_release_promised() {
    let is_ours = |package: &&Value| package["name"] == "leasehold";
    let version = packages().iter().find(is_ours).unwrap()["version"].as_str().unwrap();
    let mut now = api::listing(&SOURCES, "leasehold");
    now.retain(|line| !line.starts_with("leasehold::controllers::"));
    let file = root().join(RELEASED);
    if std::env::var_os("UPDATE_API").is_some() {
        let lines: String = now.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&file, format!("# {version}\n{lines}")).unwrap();
    }
    let broken = api::broken(&read(&file), version, &now);
    none(
        "a version keeps what it promised, or Cargo.toml has the next breaking version, and \
         CHANGELOG.md the reason",
        broken,
    );
}

#[test]
fn a_type_has_its_name_to_itself() {
    let found = products().flat_map(|(top, _)| publics::namesakes(&SOURCES, top));
    none("types that a whole crate sees have different names", found);
}

#[test]
fn no_name_is_a_retired_word() {
    let found = products().flat_map(|(top, _)| words::retired(&SOURCES, top));
    none("names use the words of the glossary", found);
}

#[test]
fn no_text_is_a_riddle() {
    let ours = |path: &PathBuf| !path.starts_with("tests/it/tidy");
    let found = files(&["rs", "md", "go", "yaml", "tpl", "txt", "toml"]).into_iter().filter(ours);
    none(
        "texts are plain English",
        found.flat_map(|path| {
            let riddles = words::riddles(&read(&path)).into_iter();
            riddles.map(move |riddle| format!("{}:{riddle}", path.display()))
        }),
    );
}

#[test]
fn the_glossary_is_whole_and_true() {
    let document = read(Path::new("crates/README.md"));
    none("the glossary of crates/README.md", words::glossary(&document, &SOURCES));
}

#[test]
fn nothing_is_unsafe() {
    let forms = ["{", "fn", "impl", "extern", "trait"].map(|form| format!("{} {form}", "unsafe"));
    for path in files(&["rs"]) {
        for form in &forms {
            assert!(!read(&path).contains(form.as_str()), "{}: {form}", path.display());
        }
    }
}

/// A file that reads clocks or draws randomness says so to the compiler and to the reader.
#[test]
fn shells_are_listed() {
    let document = read(Path::new("crates/README.md"));
    let (_, list) = document.split_once("\n## Shells\n").unwrap();
    let marker = format!("expect({}", "clippy::disallowed_methods");
    for path in files(&["rs"]).iter().filter(|path| read(path).contains(&marker)) {
        let name = path.strip_prefix("crates").unwrap_or(path).display().to_string();
        assert!(list.contains(&format!("`{name}`")), "crates/README.md does not list `{name}`");
    }
}

#[test]
fn documents_point_at_files_that_exist() {
    let mut broken = Vec::new();
    for path in files(&["md"]) {
        let text = read(&path);
        let folder = path.parent().unwrap();
        for target in links(&text) {
            if !root().join(folder).join(&target).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
        for target in paths_in_code(&text) {
            let Some(first) = target.split('/').next() else { continue };
            // A path is one if its first folder is: of the root, or of the document's own folder.
            let base = [root(), root().join(folder)].into_iter().find(|b| b.join(first).is_dir());
            if base.is_some_and(|base| !base.join(&target).exists()) {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The targets of links, without anchors and without those to the web.
fn links(text: &str) -> Vec<String> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with(['#', '<']))
        .filter_map(|target| target.split('#').next().map(str::to_owned))
        .collect()
}

/// Words in backticks that look like paths of files or folders. A name in capitals stands for any.
fn paths_in_code(text: &str) -> Vec<String> {
    let stands_for_any = |part: &str| {
        let stem = part.split('.').next().unwrap_or_default();
        let capitals = !stem.is_empty() && stem.chars().all(|c| c.is_ascii_uppercase());
        capitals && !["README", "LICENSE", "NOTES"].contains(&stem)
    };
    let is_path = |word: &str| {
        word.contains('/')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
            && !word.split('/').any(stands_for_any)
            && (word.ends_with('/') || Path::new(word).extension().is_some())
    };
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|word| is_path(word))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_built_in_controller_has_its_page() {
    let folder = Path::new("crates/controllers");
    let list = read(&folder.join("README.md"));
    for builtin in controllers::BUILTINS {
        // Beside the others, or in its own crate.
        let places = [builtin.name.to_owned(), format!("../{}", builtin.name)];
        let place = places.into_iter().find(|place| root().join(folder).join(place).is_dir());
        let place = place.unwrap_or_else(|| panic!("{} has no folder", builtin.name));
        let page = read(&folder.join(&place).join("README.md"));
        let example = format!("```yaml\n{}\n```", builtin.example.trim_end());
        assert!(page.contains(&example), "the page of {} shows its example", builtin.name);
        let row = format!("| [`{}`]({place}/README.md) |", builtin.name);
        assert!(list.contains(&row), "crates/controllers/README.md lists {}", builtin.name);
    }
}

#[test]
fn generated_files_are_fresh() {
    let drift = xtask::codegen::drift(&root()).unwrap();
    assert!(drift.is_empty(), "run `cargo xtask codegen`: {drift:#?}");
}
