//! A real Prometheus that scrapes a few targets each second and keeps exemplars.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::packages::{self, Package};
use super::process::{ChildProcess, free_port, run};

/// The package has promtool too.
const PACKAGES: &[Package] = &[("prometheus", "/usr/bin/prometheus")];

const SCRAPE_INTERVAL: &str = "1s";

/// The process, until dropped.
#[derive(Debug)]
pub struct Prometheus {
    url: String,
    process: ChildProcess,
}

/// Installs Prometheus and promtool if they are missing.
pub fn install() -> Result<()> {
    packages::install("a real Prometheus", PACKAGES)
}

impl Prometheus {
    /// Starts one that scrapes `/metrics` of these addresses and evaluates these rules.
    pub fn start(dir: &Path, targets: &[String], rules: &[PathBuf]) -> Result<Self> {
        let config = json!({
            "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL},
            "rule_files": rules,
            "scrape_configs": [{"job_name": "leasehold", "static_configs": [{"targets": targets}]}],
        });
        let file = dir.join("prometheus.yaml");
        fs::write(&file, serde_saphyr::to_string(&config)?)?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new("prometheus");
        command
            .arg("--enable-feature=exemplar-storage")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"));
        let process = ChildProcess::spawn("prometheus", &command, dir)?;
        Ok(Self { url: format!("http://{address}"), process })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    /// What it said.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.check_alive()
    }

    /// Its JSON answer to a query at this moment. It refuses connections until it has started.
    pub fn ask(&self, expr: &str) -> Result<String> {
        promtool(&["query", "--format", "json", "instant", &self.url, expr])
    }

    /// The trace ids of the exemplars of a series.
    pub async fn traces(&self, series: &str) -> Result<Vec<String>> {
        let path = format!("/api/v1/query_exemplars?query={series}&start=0&end=4102444800");
        let client = kube::Client::try_from(kube::Config::new(self.url.parse()?))?;
        let answer = client.request_text(http::Request::get(path).body(Vec::new())?).await?;
        let answer: Value = serde_json::from_str(&answer).context("Prometheus answers no JSON")?;
        ensure!(answer["status"] == "success", "Prometheus answers {answer}");
        let all = answer["data"].as_array().into_iter().flatten();
        let all = all.flat_map(|series| series["exemplars"].as_array().into_iter().flatten());
        Ok(all.filter_map(|one| one["labels"]["trace_id"].as_str().map(str::to_owned)).collect())
    }
}

/// Runs promtool, and gives what it prints.
///
/// # Errors
/// If it fails; the error quotes what it said.
pub fn promtool(arguments: &[&str]) -> Result<String> {
    run(Command::new("promtool").args(arguments))
}
