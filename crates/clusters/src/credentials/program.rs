//! Credential programs, by client-go's protocol. Shell: runs them.
//!
//! The program gets its task in `KUBERNETES_EXEC_INFO` and writes an `ExecCredential` to its standard
//! output; see
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>.
//! It has no terminal, because nobody could answer it there.
//!
//! It runs in a process group of its own. With its end, or that of the time it has, what it began ends too: else
//! each attempt could leave processes behind.

use std::fmt;
use std::io;
use std::path::{MAIN_SEPARATOR, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use model::error::foreign;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::header::bearer;
use super::{Credential, MAX_ANSWER_BYTES};
use crate::error::Unusable;
use crate::http::Identity;
use crate::trust::Environment;

/// How long after its end what it wrote is read on: its output stays open while a process that it began has it.
const GRACE: Duration = Duration::from_secs(1);

/// A credential program.
pub(crate) struct Program {
    exec: ExecConfig,
    command: String,
    /// What it gets of this process's environment.
    environment: Environment,
    /// `KUBERNETES_EXEC_INFO`.
    info: String,
}

/// The answer of a program.
#[derive(PartialEq, Eq)]
pub(crate) struct Answer {
    pub token: Option<String>,
    pub identity: Option<(String, String)>,
    pub expires: Option<Timestamp>,
}

impl Program {
    /// # Errors
    /// [`Unusable`] if it needs something that is missing here.
    pub fn new(origin: &str, exec: ExecConfig, environment: Environment) -> Result<Self, Unusable> {
        let command = exec.command.clone().unwrap_or_default();
        if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
            let problem = "its interactiveMode is Always, but there is no terminal here";
            return Err(no_credential(origin, &command, problem));
        }
        let mut spec = json!({"interactive": false});
        if exec.provide_cluster_info
            && let Some(cluster) = &exec.cluster
        {
            spec["cluster"] = serde_json::to_value(cluster).map_err(|source| Unusable::Client {
                origin: origin.to_owned(),
                source: Box::new(source),
            })?;
        }
        let version = exec.api_version.as_deref().unwrap_or_default();
        let info = json!({"apiVersion": version, "kind": "ExecCredential", "spec": spec});
        Ok(Self { exec, command, environment, info: info.to_string() })
    }

    /// Runs it once. Ends it, and what it began, when the future is dropped.
    pub async fn run(&self, origin: &str) -> Result<Answer, Unusable> {
        let path = find(&self.command).ok_or_else(|| Unusable::NoPlugin {
            origin: origin.to_owned(),
            command: self.command.clone(),
            hint: self.exec.install_hint.clone(),
        })?;
        let mut command = Command::new(path);
        if let Environment::Named(names) = &self.environment {
            let passed = names.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
            command.env_clear().envs(passed);
        }
        let variables = self.exec.env.iter().flatten();
        let variables = variables.filter_map(|one| Some((one.get("name")?, one.get("value")?)));
        command
            .args(self.exec.args.iter().flatten())
            .envs(variables)
            .env("KUBERNETES_EXEC_INFO", &self.info)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let wrong = |problem: String| no_credential(origin, &self.command, problem);
        let ended = ended(command).await;
        let (status, output, errors) = ended.map_err(|source| wrong(source.to_string()))?;
        if !status.success() {
            return Err(self.failed(origin, status, &errors));
        }
        let version = self.exec.api_version.as_deref();
        parse(&output, version).map_err(wrong)
    }

    /// The error when it failed. Repeats only the last line for people, because the rest may be secret.
    fn failed(&self, origin: &str, status: ExitStatus, errors: &[u8]) -> Unusable {
        let said = String::from_utf8_lossy(errors);
        let said = said.trim().lines().next_back().unwrap_or("it wrote nothing to stderr");
        Unusable::PluginFailed {
            origin: origin.to_owned(),
            command: self.command.clone(),
            status,
            said: foreign(said),
        }
    }
}

/// Never prints the credential.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Answer {
    /// The credential in it.
    pub fn credential(&self, origin: &str) -> Result<Credential, Unusable> {
        let header = self.token.as_deref().map(|token| bearer(origin, token)).transpose()?;
        let identity = self.identity.clone();
        let identity = identity.map(|(certificate, key)| Identity { certificate, key }.into());
        Ok(Credential { header, identity })
    }
}

fn no_credential(origin: &str, command: &str, problem: impl Into<String>) -> Unusable {
    let (origin, command) = (origin.to_owned(), command.to_owned());
    Unusable::PluginAnswer { origin, command, problem: problem.into() }
}

/// The process group of a program. It ends with this.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Mostly there is none any more.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs a command to its end. Returns how it ended and what it wrote.
async fn ended(mut command: Command) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let mut child = command.spawn()?;
    // Dropped before the child, whose id is its own until then; or right after its end.
    let _group = Group::of(&child);
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let reading = async { tokio::try_join!(read(stdout, &mut output), read(stderr, &mut errors)) };
    let status = {
        let mut reading = pin!(reading);
        tokio::select! {
            read = &mut reading => {
                read?;
                child.wait().await?
            }
            status = child.wait() => {
                if let Ok(read) = tokio::time::timeout(GRACE, reading).await {
                    read?;
                }
                status?
            }
        }
    };
    Ok((status, output, errors))
}

/// Reads to the end, or fails beyond the bound.
async fn read(from: Option<impl AsyncRead + Unpin>, bytes: &mut Vec<u8>) -> io::Result<()> {
    if let Some(from) = from {
        from.take(MAX_ANSWER_BYTES + 1).read_to_end(bytes).await?;
    }
    if bytes.len() as u64 > MAX_ANSWER_BYTES {
        return Err(io::Error::other(format!("it writes more than {MAX_ANSWER_BYTES} bytes")));
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: Option<String>,
    kind: Option<String>,
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

/// Reads an answer in the requested version. An error does not repeat the output.
pub(super) fn parse(output: &[u8], version: Option<&str>) -> Result<Answer, String> {
    let read: ExecCredential = serde_json::from_slice(output).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("it is not an ExecCredential in JSON (line {line}, column {column})")
    })?;
    if read.kind.as_deref().is_some_and(|kind| kind != "ExecCredential") {
        return Err("its kind is not ExecCredential".into());
    }
    if let (Some(wanted), Some(given)) = (version, &read.api_version)
        && wanted != given
    {
        let given = foreign(given);
        return Err(format!("it is in version {given:?} where {wanted:?} was asked for"));
    }
    let status = read.status.ok_or("it has no status")?;
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    let token = some(status.token);
    let identity = match (some(status.client_certificate_data), some(status.client_key_data)) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err("its certificate has no key".into()),
        (None, Some(_)) => return Err("its key has no certificate".into()),
    };
    if token.is_none() && identity.is_none() {
        return Err("it has neither a token nor a client certificate".into());
    }
    let expires = some(status.expiration_timestamp).map(|text| text.parse());
    let expires = expires.transpose().map_err(|_| "its expirationTimestamp is not a time")?;
    Ok(Answer { token, identity, expires })
}

/// The path of a command, found as a shell would find it.
fn find(command: &str) -> Option<PathBuf> {
    if command.contains(MAIN_SEPARATOR) {
        return Some(PathBuf::from(command)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(command)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_good_and_bad() {
        let check = |output: &str, expect: Result<(Option<&str>, Option<i64>), &str>| {
            let version = Some("client.authentication.k8s.io/v1");
            let found = parse(output.as_bytes(), version);
            let found = found
                .as_ref()
                .map(|answer| (answer.token.as_deref(), answer.expires.map(Timestamp::as_second)));
            assert_eq!(found.map_err(String::as_str), expect, "{output}");
        };
        check(r#"{"kind":"ExecCredential","status":{"token":"t"}}"#, Ok((Some("t"), None)));
        check(
            r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",
                "status":{"token":"t","expirationTimestamp":"1970-01-01T01:00:00+01:00"}}"#,
            Ok((Some("t"), Some(0))),
        );
        check(r#"{"status":{"clientCertificateData":"c","clientKeyData":"k"}}"#, Ok((None, None)));
        check(r#"{"status":{"clientCertificateData":"c"}}"#, Err("its certificate has no key"));
        check(r#"{"status":{"clientKeyData":"k"}}"#, Err("its key has no certificate"));
        check(r#"{"status":{"token":""}}"#, Err("it has neither a token nor a client certificate"));
        check(r#"{"kind":"ExecCredential"}"#, Err("it has no status"));
        check(r#"{"kind":"Token"}"#, Err("its kind is not ExecCredential"));
        check(
            r#"{"apiVersion":"client.authentication.k8s.io/v1beta1","status":{"token":"t"}}"#,
            Err("it is in version \"client.authentication.k8s.io/v1beta1\" where \
                 \"client.authentication.k8s.io/v1\" was asked for"),
        );
        check(
            r#"{"status":{"token":"t","expirationTimestamp":"soon"}}"#,
            Err("its expirationTimestamp is not a time"),
        );
        check("sesame", Err("it is not an ExecCredential in JSON (line 1, column 1)"));
        check(r#""sesame""#, Err("it is not an ExecCredential in JSON (line 1, column 8)"));
    }
}
