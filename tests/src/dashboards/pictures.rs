//! Pictures of the dashboards: a real Grafana shows them, in a real browser, with what a real Prometheus has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::browser::{self, LOOK, browse, picture};
use crate::harness::process::{ChildProcess, free_port};
use crate::harness::wait;

/// What the provisioning files name, for which there are other places here.
const DATA_SOURCE: &str = "http://prometheus:9090";
const FOLDER: &str = "/var/lib/grafana/dashboards/leasehold";
const PROVISIONED: [&str; 2] = ["dashboards/leasehold.yaml", "datasources/prometheus.yaml"];

/// A new Grafana makes its database first.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// In pixels: a row of Grafana's grid with the gap below it, and what a page shows beside the grid.
const GRID_ROW: u64 = 38;
const MARGIN: u64 = 60;
const WIDTH: u64 = 1600;
/// In Grafana's pages, before the title of each panel, and instead of its data.
const PANEL: &str = "Panel header ";
const NO_DATA: &str = ">No data<";

/// A Grafana with the project's provisioning files, until dropped.
pub struct Grafana {
    url: String,
    dir: PathBuf,
    _process: ChildProcess,
}

impl Grafana {
    /// Starts the one at `home` over this Prometheus and the files in `dashboards`. What it writes is below `dir`.
    pub async fn start(
        home: &Path,
        prometheus: &str,
        dashboards: &Path,
        dir: &Path,
    ) -> Result<Self> {
        browser::install()?;
        let home = fs::canonicalize(home).context("find Grafana")?;
        let provisioning = dir.join("provisioning");
        for file in PROVISIONED {
            let text = fs::read_to_string(dashboards.join("provisioning").join(file))?;
            let text = text.replace(DATA_SOURCE, prometheus);
            let to = provisioning.join(file);
            fs::create_dir_all(to.parent().context("a folder")?)?;
            fs::write(to, text.replace(FOLDER, &dashboards.display().to_string()))?;
        }
        let port = free_port()?;
        let mut command = Command::new(home.join("bin/grafana"));
        command.args(["server", "--homepath"]).arg(&home);
        command.env("GF_PATHS_PROVISIONING", &provisioning);
        command.env("GF_PATHS_DATA", dir.join("grafana"));
        command.env("GF_SERVER_HTTP_ADDR", "127.0.0.1");
        command.env("GF_SERVER_HTTP_PORT", port.to_string());
        command.env("GF_AUTH_ANONYMOUS_ENABLED", "true");
        command.env("GF_ANALYTICS_REPORTING_ENABLED", "false");
        command.env("GF_ANALYTICS_CHECK_FOR_UPDATES", "false");
        let mut process = ChildProcess::spawn("grafana", &command, dir)?;
        let url = format!("http://127.0.0.1:{port}");
        let client = kube::Client::try_from(kube::Config::new(url.parse()?))?;
        wait::until(START_DEADLINE, "Grafana to start", async || {
            process.check_alive()?;
            let health = http::Request::get("/api/health").body(Vec::new())?;
            Ok(client.request_text(health).await.ok())
        })
        .await?;
        Ok(Self { url, dir: dir.to_owned(), _process: process })
    }

    /// Puts pictures of these dashboards, of the last `seconds`, into a folder, and names the panels that show no data.
    pub async fn pictures(&self, dashboards: &[String], seconds: u64, into: &Path) -> Result<()> {
        fs::create_dir_all(into)?;
        for text in dashboards {
            let dashboard: Value = serde_json::from_str(text)?;
            let uid = dashboard["uid"].as_str().context("a dashboard has no uid")?;
            let bottom = |panel: &Value| {
                let place = |name: &str| panel["gridPos"][name].as_u64().unwrap_or_default();
                place("y") + place("h")
            };
            let panels = dashboard["panels"].as_array().into_iter().flatten();
            let rows = panels.map(bottom).max().unwrap_or_default();
            let (width, height) = (WIDTH, MARGIN + GRID_ROW * rows);
            let url = |theme: &str| {
                let shown = format!("kiosk&theme={theme}&from=now-{seconds}s&to=now&refresh=1d");
                format!("{}/d/{uid}?{shown}", self.url)
            };
            for theme in ["light", "dark"] {
                let file = into.join(format!("{uid}-{theme}.png"));
                picture(&self.dir, &url(theme), (width, height), &file, &[]).await?;
                println!("{}", file.display());
            }
            let size = format!("--window-size={width},{height}");
            let url = url("light");
            let arguments = ["--dump-dom", size.as_str(), LOOK, url.as_str()];
            let (page, log) = browse(&self.dir, &arguments).await?;
            ensure!(page.contains(PANEL), "Grafana shows no panel of {uid}:\n{log}");
            for title in without_data(&page) {
                println!("dashboard {uid}: panel {title:?} shows no data");
            }
        }
        Ok(())
    }
}

/// The titles of the panels of a page that show no data.
fn without_data(page: &str) -> impl Iterator<Item = &str> {
    let panels = page.split(PANEL).skip(1).filter_map(|panel| panel.split_once('"'));
    panels.filter(|(_, shown)| shown.contains(NO_DATA)).map(|(title, _)| title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_without_data_are_named() {
        let panel = |title: &str, shown: &str| {
            format!("<section data-testid=\"Panel header {title}\"><p>{shown}</p></section>")
        };
        let page = ["<nav>No data</nav>".to_owned(), panel("Owners", "replica-0")]
            .into_iter()
            .chain([panel("Errors", "No data"), panel("Workers", "8"), panel("Adds", "No data")])
            .collect::<String>();
        assert_eq!(without_data(&page).collect::<Vec<_>>(), ["Errors", "Adds"]);
        assert_eq!(without_data("<p>No data</p>").count(), 0);
    }
}
