//! The real kubectl, and a plain client for requests with JSON.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, Result, bail};
use http::header::CONTENT_TYPE;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// kubectl for one context of a kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    context: String,
}

impl Kubectl {
    /// The kubectl inside `program` (which contains every component), for `context` of
    /// `kubeconfig`.
    pub fn new(program: &Path, kubeconfig: &Path, context: &str) -> Self {
        Self {
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            cache: kubeconfig.with_extension("cache"),
            context: context.to_owned(),
        }
    }

    /// A command line to which arguments can be added.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("kubectl").arg("--kubeconfig").arg(&self.kubeconfig);
        command.arg("--cache-dir").arg(&self.cache).args(["--context", &self.context]);
        command.kill_on_drop(true);
        command
    }

    /// Runs kubectl and gives its output.
    ///
    /// # Errors
    /// If it fails; the error quotes the arguments and its standard error.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        self.run_with_input(args, "").await
    }

    /// Runs kubectl with `input` on its standard input.
    pub async fn run_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        let output = self.output(args, input).await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("kubectl {} on {}: {}", args.join(" "), self.context, said.trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs kubectl, which must fail, and gives its standard error.
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

    /// Waits until every defined kind is served, at most kubectl's own 30 s.
    pub async fn established(&self) -> Result<()> {
        self.run(&["wait", "--for=condition=Established", "crd", "--all"]).await.map(drop)
    }

    /// Applies manifests.
    pub async fn apply(&self, manifests: &str) -> Result<String> {
        self.run_with_input(&["apply", "-f", "-"], manifests).await
    }

    /// Applies a file or a folder of manifests.
    pub async fn apply_path(&self, path: &Path) -> Result<String> {
        let path = path.to_str().context("a path that is not UTF-8")?;
        self.run(&["apply", "-f", path]).await
    }
}

/// A client for `context` of `kubeconfig`.
pub async fn client(kubeconfig: &Path, context: &str) -> Result<Client> {
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..Default::default() };
    let mut config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    // Checks must see what a server answers, not what a retry makes of it.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Whether the server says that it is ready.
pub async fn is_ready(client: &Client) -> bool {
    let request = http::Request::get("/readyz").body(Vec::new()).expect("a constant path");
    client.request_text(request).await.is_ok_and(|text| text == "ok")
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

/// Creates `object` in the collection at `path`.
pub async fn create(client: &Client, path: &str, object: &Value) -> Result<()> {
    let request = http::Request::post(path).header(CONTENT_TYPE, "application/json");
    send(client, request, path, object).await
}

/// Merges `patch` into the object at `path`.
pub async fn merge(client: &Client, path: &str, patch: &Value) -> Result<()> {
    let request = http::Request::patch(path).header(CONTENT_TYPE, "application/merge-patch+json");
    send(client, request, path, patch).await
}

async fn send(
    client: &Client,
    request: http::request::Builder,
    path: &str,
    body: &Value,
) -> Result<()> {
    let answer = client.request_text(request.body(serde_json::to_vec(body)?)?).await;
    answer.with_context(|| format!("write {path}"))?;
    Ok(())
}

/// Whether condition `kind` of an object is true.
pub fn holds(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["status"] == "True"))
}

/// The name of an object; empty if it has none.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The items of the list at `path`; none for 404.
pub async fn list(client: &Client, path: &str) -> Result<Vec<Value>> {
    let Some(mut list) = get(client, path).await? else { return Ok(Vec::new()) };
    match list["items"].take() {
        Value::Array(items) => Ok(items),
        _ => bail!("GET {path}: not a list"),
    }
}
