//! A sequence of requests, as written in YAML, and how it is sent.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};

use super::normalise::Normaliser;

/// The longest a server may take over one request, watches included.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// The headers that matter to clients.
const HEADERS: [&str; 3] = ["content-type", "retry-after", "warning"];

/// Requests that are sent one after the other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequence {
    /// Its unique name.
    pub name: String,
    /// The requests.
    pub steps: Vec<Step>,
}

/// One request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Method and path with query, as in `GET /api/v1/namespaces/{ns}/pods`. `{ns}` is the
    /// sequence's own namespace; other names in braces are values kept from earlier answers.
    pub send: String,
    /// A JSON body; names in braces are replaced here too.
    #[serde(default)]
    pub body: Option<Value>,
    /// A body that is not JSON.
    #[serde(default)]
    pub text: Option<String>,
    /// The kind of patch that the body is; decides its content type.
    #[serde(default)]
    pub patch: Option<Patch>,
    /// Additional headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Values of the answer to keep: a name, and a JSON pointer into the body.
    #[serde(default)]
    pub keep: BTreeMap<String, String>,
}

/// The kinds of patch.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Patch {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, for built-in kinds.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl Sequence {
    /// Sends every request and gives the normalised answers.
    pub async fn send(&self, client: &Client, namespace: &str) -> Result<Vec<Value>> {
        let mut kept = BTreeMap::from([("ns".to_owned(), namespace.to_owned())]);
        let mut normaliser = Normaliser::default();
        let mut outcomes = Vec::new();
        for step in &self.steps {
            let context = || format!("{}: {}", self.name, step.send);
            let request = step.request(&kept).with_context(context)?;
            let answer = tokio::time::timeout(ANSWER_DEADLINE, answer(client, request)).await;
            let outcome = answer.with_context(context)?.with_context(context)?;
            for (name, pointer) in &step.keep {
                let value = outcome["body"].pointer(pointer).and_then(Value::as_str);
                let value = value.with_context(|| format!("no {pointer} in {}", outcome["body"]));
                kept.insert(name.clone(), value.with_context(context)?.to_owned());
            }
            outcomes.push(normaliser.normalise(outcome));
        }
        Ok(outcomes)
    }
}

impl Step {
    fn request(&self, kept: &BTreeMap<String, String>) -> Result<Request<Body>> {
        let fill = |text: &str| {
            kept.iter().fold(text.to_owned(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value)
            })
        };
        let line = fill(&self.send);
        let Some((method, path)) = line.split_once(' ') else { bail!("not METHOD PATH: {line}") };
        let mut request = Request::builder().method(method).uri(path);
        // We cannot decompress watches here.
        let mut headers =
            BTreeMap::from([("accept", "application/json"), ("accept-encoding", "identity")]);
        if self.body.is_some() || self.text.is_some() {
            headers.insert("content-type", content_type(self.patch));
        }
        headers.extend(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = match (&self.body, &self.text) {
            (Some(body), _) => fill(&body.to_string()),
            (None, Some(text)) => fill(text),
            (None, None) => String::new(),
        };
        Ok(request.body(Body::from(body.into_bytes()))?)
    }
}

fn content_type(patch: Option<Patch>) -> &'static str {
    match patch {
        None => "application/json",
        Some(Patch::Json) => "application/json-patch+json",
        Some(Patch::Merge) => "application/merge-patch+json",
        Some(Patch::Strategic) => "application/strategic-merge-patch+json",
        Some(Patch::Apply) => "application/apply-patch+yaml",
    }
}

/// The answer as one document: status, the headers that matter, and the body. The body of a watch
/// is the list of its lines.
async fn answer(client: &Client, request: Request<Body>) -> Result<Value> {
    let watch = request.uri().query().is_some_and(|query| query.contains("watch="));
    let response: Response<Body> = client.send(request).await?;
    let status = response.status().as_u16();
    let mut headers = BTreeMap::new();
    for name in HEADERS {
        if let Some(value) = response.headers().get(name) {
            headers.insert(name, value.to_str()?.to_owned());
        }
    }
    let bytes = response.into_body().collect().await?.to_bytes();
    let text = String::from_utf8(bytes.to_vec())?;
    let document = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    let body = match watch && status == 200 {
        true => Value::Array(text.lines().map(document).collect()),
        false => document(&text),
    };
    Ok(json!({"status": status, "headers": headers, "body": body}))
}
