//! The real kubectl, and a plain client for looking at what it did.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// One context of a kubeconfig, as kubectl uses it.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    context: String,
}

impl Kubectl {
    /// The kubectl inside `program` (which holds every component), for `context` of `kubeconfig`.
    pub fn new(program: &Path, kubeconfig: &Path, context: &str) -> Self {
        Self {
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            cache: kubeconfig.with_extension("cache"),
            context: context.to_owned(),
        }
    }

    /// A command line ready for more arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("kubectl").arg("--kubeconfig").arg(&self.kubeconfig);
        command.arg("--cache-dir").arg(&self.cache).args(["--context", &self.context]);
        command.kill_on_drop(true);
        command
    }

    /// Runs kubectl and returns what it printed.
    ///
    /// # Errors
    /// If it fails; the error carries the arguments and what it said.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        self.run_with_input(args, "").await
    }

    /// Runs kubectl with `input` on its standard input.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        let output = self.output(args, input).await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("kubectl {} on {}: {}", args.join(" "), self.context, said.trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs kubectl where it should be refused, and returns what it said.
    ///
    /// # Errors
    /// If it succeeds.
    pub async fn refused(&self, args: &[&str], input: &str) -> Result<String> {
        let output = self.output(args, input).await?;
        if output.status.success() {
            bail!("kubectl {} on {} should have been refused", args.join(" "), self.context);
        }
        Ok(String::from_utf8(output.stderr)?)
    }

    async fn output(&self, args: &[&str], input: &str) -> Result<Output> {
        let mut child = self
            .command()
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start kubectl")?;
        let mut stdin = child.stdin.take().expect("it was piped");
        stdin.write_all(input.as_bytes()).await?;
        drop(stdin);
        Ok(child.wait_with_output().await?)
    }

    /// Waits until every kind that was defined is served, at most kubectl's own 30 s.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn established(&self) -> Result<()> {
        self.run(&["wait", "--for=condition=Established", "crd", "--all"]).await.map(drop)
    }

    /// Applies manifests.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn apply(&self, manifests: &str) -> Result<String> {
        self.run_with_input(&["apply", "-f", "-"], manifests).await
    }

    /// Applies a file or a folder of manifests.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn apply_path(&self, path: &Path) -> Result<String> {
        let path = path.to_str().context("a path that is not UTF-8")?;
        self.run(&["apply", "-f", path]).await
    }
}

/// A client for `context` of `kubeconfig`.
///
/// # Errors
/// If the file cannot be read or used.
pub async fn client(kubeconfig: &Path, context: &str) -> Result<Client> {
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..Default::default() };
    let mut config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    // What a server answers is to be seen, not smoothed over.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// The JSON document at `path`; `None` for 404.
///
/// # Errors
/// If the server refuses for any other reason.
pub async fn get(client: &Client, path: &str) -> Result<Option<Value>> {
    let request = http::Request::get(path).body(Vec::new())?;
    match client.request(request).await {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error).with_context(|| format!("GET {path}")),
    }
}

/// Merges `patch` into the object at `path`.
///
/// # Errors
/// If the server refuses.
pub async fn merge(client: &Client, path: &str, patch: &Value) -> Result<()> {
    let request = http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(serde_json::to_vec(patch)?)?;
    client.request::<Value>(request).await.with_context(|| format!("PATCH {path}"))?;
    Ok(())
}

/// The items of the list at `path`; none for 404.
///
/// # Errors
/// As [`get`].
pub async fn list(client: &Client, path: &str) -> Result<Vec<Value>> {
    let Some(mut list) = get(client, path).await? else { return Ok(Vec::new()) };
    match list["items"].take() {
        Value::Array(items) => Ok(items),
        _ => bail!("GET {path}: not a list"),
    }
}
