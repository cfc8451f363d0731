//! Sets of values together: each file of `ci/` alone and with each other one. What they render to must
//! fit the schemas of a real API server, and what they do not render to, the chart must refuse itself.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use tokio::process::Command;

use super::{check_config, file_name, schemas};
use crate::harness::Scene;
use crate::harness::helm::{Helm, template};
use crate::harness::kubectl::Kubectl;

/// How many helms run at once.
const AT_ONCE: usize = 4;

/// Renders `files` and pairs of them, and gives all that comes out to kubeconform.
pub async fn check(scene: &Scene, helm: &Helm, kubectl: &Kubectl, files: &[String]) -> Result<()> {
    let (rendered_dir, schema_dir) = (scene.dir().join("rendered"), scene.dir().join("schemas"));
    fs::create_dir(&rendered_dir)?;
    let sets = sets(files);
    let mut outcomes = stream::iter(&sets)
        .map(async |set| anyhow::Ok((set, render(helm, set).await?)))
        .buffer_unordered(AT_ONCE);
    let (mut rendered, mut refused) = (0, 0);
    while let Some((set, manifests)) = outcomes.try_next().await? {
        let Some(manifests) = manifests else {
            refused += 1;
            continue;
        };
        let names: Vec<_> =
            set.iter().map(|path| file_name(path).trim_end_matches(".yaml")).collect();
        let name = names.join("+");
        check_config(scene, &manifests).with_context(|| name.clone())?;
        fs::write(rendered_dir.join(format!("{name}.yaml")), manifests)?;
        rendered += 1;
    }
    println!("{rendered} sets of values rendered, {refused} pairs refused by the chart");

    fs::create_dir(&schema_dir)?;
    let swagger: Value =
        serde_json::from_str(&kubectl.run(&["get", "--raw", "/openapi/v2"]).await?)?;
    let custom: Value =
        serde_json::from_str(&kubectl.run(&["get", "crd", "--output", "json"]).await?)?;
    for (name, schema) in schemas::files(&swagger, &custom) {
        fs::write(schema_dir.join(name), schema.to_string())?;
    }
    let summary = kubeconform(&scene.tools().kubeconform(), &schema_dir, &rendered_dir).await?;
    let all = summary.contains(&format!(" in {rendered} files")) && summary.ends_with("Skipped: 0");
    ensure!(all, "kubeconform left something out: {summary}");
    println!("kubeconform: {summary}");
    Ok(())
}

/// Each file alone, and each pair.
fn sets(files: &[String]) -> Vec<Vec<&str>> {
    let mut sets = Vec::new();
    for (index, first) in files.iter().enumerate() {
        sets.push(vec![first.as_str()]);
        sets.extend(files[index + 1..].iter().map(|second| vec![first.as_str(), second.as_str()]));
    }
    sets
}

/// What a set of values renders to; `None` if it is a pair that the chart refuses.
async fn render(helm: &Helm, set: &[&str]) -> Result<Option<String>> {
    let values: Vec<&str> = set.iter().flat_map(|path| ["--values", path]).collect();
    match helm.run(&template(&values)).await {
        Ok(manifests) => Ok(Some(manifests)),
        Err(error) if set.len() > 1 && is_refusal(&error.to_string()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether helm failed because of `fail`, `required` or the schema of the values, and not because of a
/// template that could not be evaluated.
fn is_refusal(said: &str) -> bool {
    ["execution error at (", "values don't meet the specifications of the schema"]
        .iter()
        .any(|start| said.contains(&format!(": Error: {start}")))
}

/// Holds every file of `manifests` to `schemas` and gives its summary.
async fn kubeconform(program: &Path, schemas: &Path, manifests: &Path) -> Result<String> {
    let location = schemas.join(schemas::LOCATION);
    let output = Command::new(program)
        .args(["-strict", "-summary", "-schema-location"])
        .args([location.as_path(), manifests])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("cannot start kubeconform")?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("kubeconform: {said}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_comes_alone_and_once_with_each_other() {
        let files = ["a", "b", "c"].map(str::to_owned);
        let together = sets(&files).iter().map(|set| set.join("+")).collect::<Vec<_>>();
        assert_eq!(together, ["a", "a+b", "a+c", "b", "b+c", "c"]);
    }

    #[test]
    fn a_crash_of_a_template_is_no_refusal() {
        for (said, expected) in [
            ("Error: execution error at (leasehold/templates/a.yaml:1:2): a.b: must be c", true),
            ("Error: values don't meet the specifications of the schema(s) in ...", true),
            (
                "Error: template: leasehold/templates/a.yaml:1:2: executing \"a\" at <.b.c>: nil pointer evaluating b",
                false,
            ),
            ("Error: YAML parse error on leasehold/templates/a.yaml: error converting YAML", false),
        ] {
            assert_eq!(is_refusal(&format!("helm template leasehold: {said}")), expected, "{said}");
        }
    }
}
