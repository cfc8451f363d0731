//! Generates the chart's CRDs and the rights of each controller from Rust types, and the dashboards from tables
//! of panels; copies the rules into the chart, and the pages of the runbook as one; and makes the table of its values.
//!
//! `files` only reads; [`drift`] compares it with the tree; [`run`] writes. A file of an earlier run
//! that is no longer generated is drift too. Files written by hand may be in the same folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use crate::{dashboards, values};

/// The folders of the chart whose CRDs its templates install: those of the home cluster, one file for each
/// plural, and those of the controllers, one for each controller and plural.
const HOME_CRDS: &str = "deploy/charts/leasehold/files/crds/home";
const CONTROLLER_CRDS: &str = "deploy/charts/leasehold/files/crds/controllers";
/// The folder of the chart that its RBAC template reads: one file per controller, and one for each setting that
/// needs more rights.
const RBAC: &str = "deploy/charts/leasehold/files/rbac";
/// The folders of the dashboards: Helm can read them only inside of the chart.
const DASHBOARDS: [&str; 2] = ["dashboards", "deploy/charts/leasehold/files/grafana"];
/// The rules, of which the same holds: the copy and the original.
const RULES: [&str; 2] =
    ["deploy/charts/leasehold/files/prometheus/leasehold.yaml", "dashboards/rules/leasehold.yaml"];
/// The runbook: all of it in the chart, and the folder of its pages, of which the first is no alert's.
const RUNBOOK: &str = "deploy/charts/leasehold/RUNBOOK.md";
const RUNBOOK_PAGES: &str = "dashboards/runbooks";
const FIRST_PAGE: &str = "README.md";
/// The chart's page, with a table of its values between two marks.
const PAGE: &str = "deploy/charts/leasehold/README.md";
const VALUES: &str = "deploy/charts/leasehold/values.yaml";
const MARKS: [&str; 2] = ["<!-- values -->\n\n", "\n<!-- /values -->"];
const HEADER: &str = "# Made by `cargo xtask codegen` from the Rust types: change those instead.\n";

/// Writes what is made from code and tables: the chart's CRDs, rights and table of values, dashboards, and the
/// runbook's pages.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {
    /// Write nothing; fail if anything would change.
    #[arg(long)]
    check: bool,
}

/// How a file in the tree differs from what is generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drift {
    /// It is absent.
    Missing(PathBuf),
    /// It has another content.
    Changed(PathBuf),
    /// It was generated once and no longer is.
    Leftover(PathBuf),
}

/// Writes or checks the files of the workspace.
///
/// # Errors
/// If a file cannot be read or written; with `--check`, if a file would change.
pub fn run(args: &Args) -> Result<()> {
    let root = crate::root();
    let drift = drift(&root)?;
    if args.check {
        if drift.is_empty() {
            return Ok(());
        }
        bail!("generated files are stale, run `cargo xtask codegen`: {drift:?}");
    }
    let files = files(&root)?;
    for change in drift {
        match change {
            Drift::Missing(path) | Drift::Changed(path) => {
                let target = root.join(&path);
                fs::create_dir_all(target.parent().expect("generated files lie in folders"))?;
                fs::write(&target, &files[&path])
                    .with_context(|| format!("write {}", path.display()))?;
                println!("wrote {}", path.display());
            }
            Drift::Leftover(path) => {
                fs::remove_file(root.join(&path))
                    .with_context(|| format!("remove {}", path.display()))?;
                println!("removed {}", path.display());
            }
        }
    }
    Ok(())
}

/// How the tree under `root` differs from what is generated.
///
/// # Errors
/// If a folder or file that exists cannot be read.
pub fn drift(root: &Path) -> Result<Vec<Drift>> {
    let files = files(root)?;
    let mut drift = Vec::new();
    for (path, content) in &files {
        match fs::read_to_string(root.join(path)) {
            Ok(found) if found == *content => {}
            Ok(_) => drift.push(Drift::Changed(path.clone())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                drift.push(Drift::Missing(path.clone()));
            }
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        }
    }
    for folder in [HOME_CRDS, CONTROLLER_CRDS, RBAC] {
        let Ok(entries) = fs::read_dir(root.join(folder)) else { continue };
        for entry in entries {
            let path = Path::new(folder).join(entry?.file_name());
            let ours = || fs::read_to_string(root.join(&path)).is_ok_and(|c| c.starts_with(HEADER));
            if !files.contains_key(&path) && ours() {
                drift.push(Drift::Leftover(path));
            }
        }
    }
    Ok(drift)
}

/// Every generated file: its path below the root, and its content.
///
/// # Errors
/// If an original cannot be read, or an object cannot be written as YAML that reads back as the same
/// object.
fn files(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    for crd in leasehold::crds::home_crds() {
        let name = format!("{}.yaml", crd.spec.names.plural);
        files.insert(Path::new(HOME_CRDS).join(name), yaml(&crd)?);
    }
    files.insert(Path::new(RBAC).join("home.yaml"), yaml(&leasehold::crds::home_rights())?);
    for builtin in leasehold::controllers::BUILTINS {
        let name = format!("{}.yaml", builtin.name);
        files.insert(Path::new(RBAC).join(&name), yaml(&(builtin.rbac)())?);
        for (setting, rules) in builtin.more_rbac {
            let name = format!("{}.{setting}.yaml", builtin.name);
            files.insert(Path::new(RBAC).join(name), yaml(&rules())?);
        }
        for crd in builtin.crds {
            let crd = crd();
            let name = format!("{}.{}.yaml", builtin.name, crd.spec.names.plural);
            files.insert(Path::new(CONTROLLER_CRDS).join(name), yaml(&crd)?);
        }
    }
    let read =
        |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"));
    let rules = read(RULES[1])?;
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let pages: Vec<String> = alerts.map(|alert| format!("{alert}.md")).collect();
    let mut runbook = String::new();
    for page in [FIRST_PAGE].into_iter().chain(pages.iter().map(String::as_str)) {
        let text = read(&format!("{RUNBOOK_PAGES}/{page}"))?;
        runbook.push_str(if page == FIRST_PAGE { "" } else { "\n#" });
        runbook.push_str(&text.replace("../../deploy/charts/leasehold/", ""));
    }
    for page in &pages {
        let alert = page.trim_end_matches(".md").to_lowercase();
        runbook = runbook.replace(&format!("]({page})"), &format!("](#{alert})"));
    }
    files.insert(RUNBOOK.into(), runbook);
    files.insert(RULES[0].into(), rules);
    for (name, text) in dashboards::files() {
        for folder in DASHBOARDS {
            files.insert(Path::new(folder).join(&name), text.clone());
        }
    }
    let table = values::table(&read(VALUES)?)?;
    files.insert(PAGE.into(), with_table(&read(PAGE)?, &table)?);
    Ok(files)
}

/// `page`, with `table` between its marks.
fn with_table(page: &str, table: &str) -> Result<String> {
    let [begin, end] = MARKS;
    let parts = page.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some(format!("{before}{begin}{table}{end}{after}"))
    });
    parts.with_context(|| format!("{PAGE} has no {} and {}", begin.trim(), end.trim()))
}

fn yaml<T: Serialize>(value: &T) -> Result<String> {
    let value = serde_json::to_value(value)?;
    let text = serde_saphyr::to_string(&value)?;
    let back: Value = serde_saphyr::from_str(&text)?;
    if back != value {
        bail!("YAML does not read back as it was written:\n{text}");
    }
    Ok(format!("{HEADER}{}\n", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_names_what_is_missing_changed_and_left_over() {
        let root = tempfile::tempdir().unwrap();
        let pages = fs::read_dir(crate::root().join(RUNBOOK_PAGES)).unwrap();
        let pages: Vec<_> =
            pages.map(|page| Path::new(RUNBOOK_PAGES).join(page.unwrap().file_name())).collect();
        let originals = [RULES[1], VALUES, PAGE].map(PathBuf::from);
        for original in originals.into_iter().chain(pages) {
            let copy = root.path().join(&original);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(crate::root().join(original), copy).unwrap();
        }
        let files = files(root.path()).unwrap();
        for (path, content) in &files {
            fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
            fs::write(root.path().join(path), content).unwrap();
        }
        assert_eq!(drift(root.path()).unwrap(), []);

        let mut paths = files.keys().filter(|path| path.starts_with(CONTROLLER_CRDS)).cloned();
        let (missing, changed) = (paths.next().unwrap(), paths.next().unwrap());
        let leftover = Path::new(RBAC).join("gone.yaml");
        fs::remove_file(root.path().join(&missing)).unwrap();
        fs::write(root.path().join(&changed), "edited").unwrap();
        fs::write(root.path().join(&leftover), format!("{HEADER}old")).unwrap();
        fs::write(root.path().join(RBAC).join("other.yaml"), "written by hand").unwrap();
        assert_eq!(
            drift(root.path()).unwrap(),
            [Drift::Missing(missing), Drift::Changed(changed), Drift::Leftover(leftover)]
        );
    }

    /// What a real API server refuses in a structural schema.
    #[test]
    fn every_schema_is_structural() {
        for crd in leasehold::crds() {
            let name = crd.metadata.name.clone().expect("a CRD has a name");
            for version in &crd.spec.versions {
                let schema = version.schema.as_ref().unwrap();
                let schema = serde_json::to_value(&schema.open_api_v3_schema).unwrap();
                structural(&schema, &name);
            }
        }
    }

    /// Only a status subresource separates what users write from what controllers report.
    #[test]
    fn every_status_is_a_subresource() {
        for crd in leasehold::controllers::crds() {
            for version in &crd.spec.versions {
                let subresources = version.subresources.as_ref().unwrap();
                assert!(subresources.status.is_some(), "{}", crd.spec.names.kind);
            }
        }
    }

    fn structural(schema: &Value, path: &str) {
        let schema = schema.as_object().unwrap_or_else(|| panic!("{path} is not an object"));
        let banned = "$ref definitions $defs const patternProperties dependencies id \
                      additionalItems deprecated examples readOnly writeOnly";
        for banned in banned.split(' ') {
            assert!(!schema.contains_key(banned), "{path}: {banned}");
        }
        let typed = schema.get("type").is_some_and(Value::is_string)
            || schema.contains_key("x-kubernetes-int-or-string")
            || schema.contains_key("x-kubernetes-preserve-unknown-fields");
        assert!(typed, "{path} has no type");
        if let Some(format) = schema.get("format").and_then(Value::as_str) {
            let known =
                ["int32", "int64", "float", "double", "byte", "date", "date-time", "duration"];
            assert!(known.contains(&format), "{path}: a server warns of format {format:?}");
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            assert!(!values.contains(&Value::Null), "{path}: null in an enum");
        }
        for (name, property) in
            schema.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            structural(property, &format!("{path}.{name}"));
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get(inner).filter(|inner| inner.is_object()) {
                structural(inner, &format!("{path}[]"));
            }
        }
        let both = schema.contains_key("properties") && schema.contains_key("additionalProperties");
        assert!(!both, "{path}: properties and additionalProperties exclude each other");
    }
}
