//! Takes secrets out of text: for what leaves the machine in a support bundle. Pure. What looks like a secret goes,
//! whether it is one or not.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

/// What stands in place of a secret.
pub(crate) const WITHHELD: &str = "(withheld)";

/// Names of fields whose values are secrets, as they end: `clientSecret`, `aws_secret_access_key`.
const SECRET_NAMES: &str = "passwords?|passwd|passphrase|pass|pwd|secrets?|tokens?|credentials?|authorization|auth|\
                            cookies?|signature|sig|dsn|connection[_-]?string|ca[_-]?bundle|userinfo|key[_-]?data|\
                            (?:api|access|account|private|secret|client|signing|encryption)[_-]?keys?(?:[_-]?data)?";
/// What is kept within a field of such a name: it says which secret, not what is in it.
const REFERENCES: [&str; 8] =
    ["name", "namespace", "key", "secretName", "path", "kind", "apiVersion", "audience"];

/// Secrets that show what they are by themselves.
static SHAPES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // A block of PEM, whatever it holds.
        r"-----BEGIN [A-Z0-9 ]+-----[\s\S]*?(?:-----END [A-Z0-9 ]+-----|$)",
        // A JSON Web Token.
        r"eyJ[A-Za-z0-9_=-]{5,}\.[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=+/-]*)?",
        // PEM, or JSON, in base64.
        r"LS0tLS1CRUdJT[A-Za-z0-9+/=]+",
        // Keys of AWS, tokens of GitHub, GitLab, Slack, Google, bootstrap tokens of Kubernetes.
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{20,}\b",
        r"\bglpat-[A-Za-z0-9_-]{20,}\b",
        r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
        r"\bAIza[A-Za-z0-9_-]{35}\b",
        r"\bya29\.[A-Za-z0-9_-]+",
        r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b",
    ]
    .iter()
    .map(|shape| Regex::new(shape).expect("the expression is right"))
    .collect()
});

/// Secrets of which what is beside them is kept.
static BESIDE: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    // Quotes may be escaped: JSON in a text that is in JSON.
    let name = format!(r#"[\w.-]*(?:{SECRET_NAMES})\\*["']?\s*"#);
    // In YAML: the lines of a block that are deeper than its key, and a value to the end of its line.
    let block = format!(
        r"(?im)(^[ \t]*(?:- )?{name}:[ \t]*[|>][-+0-9]*[ \t]*)(?:(?:\n[ \t]*)*\n[ \t]+\S.*)+"
    );
    let line = format!(r#"(?im)(^[ \t]*(?:- )?{name}:[ \t]+)[^\s|>"'\[{{(].*$"#);
    let named = format!(
        r#"(?i)(\b{name}[:=]\s*)(?:"(?:[^"\\]|\\.)*"|\\+"(?:\\{{2,}}"|[^"\\]|\\[^"])*(?:\\+")?|'[^']*'|[^\s,;&"'|>}}\]\[{{(]+)"#
    );
    let list = format!(r#"(?i)(\b{name}[:=]\s*)\[[^\]{{]*\]"#);
    // A flag and its value, as a shell has them, or as neighbours in a list.
    let flag = format!(r#"(?i)((?:^|[\s"'])--?[\w-]*(?:{SECRET_NAMES})[\s"',\\]+)[^\s"',\\\]]+"#);
    let pair = format!(
        r#"(?i)(\bname\\*["']?\s*:\s*\\*["']?{name}[\s,]*\\*["']?value\\*["']?\s*:\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,}}]+)"#
    );
    let xml = format!(r"(?i)(<[\w:]*(?:{SECRET_NAMES})>)[^<]+");
    [
        block,
        line,
        r#"(?i)(\bauthorization["']?\s*[:=]\s*["']?)[^\n"',;}]+"#.to_owned(),
        r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}".to_owned(),
        // Up to the last @ before the path: a token alone, or a user and a password.
        r#"(://)[^/\s"'<>]+@"#.to_owned(),
        // As the drivers of databases have it: user:password@tcp(host).
        r"(\b[\w.-]+:)[^\s:@/]+@(?:tcp|unix)\(".to_owned(),
        // Of curl and of mysql.
        r"(\bcurl\s(?:[^\n|;]*?\s)?-u\s*[\w.-]+:)[^\s'\x22]+".to_owned(),
        r"(\bmysql\w*\s(?:[^\n|;]*?\s)?-p)[^\s'\x22]+".to_owned(),
        list,
        xml,
        named,
        flag,
        pair,
        // Variables of a program, in JSON: a list of pairs, or a map.
        r#"(?i)("env\\*"\s*:\s*)(?:\[[^\]]*\]|\{[^}]*\})"#.to_owned(),
    ]
    .iter()
    .map(|shape| Regex::new(shape).expect("the expression is right"))
    .collect()
});

static SECRET_NAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!("(?i)(?:{SECRET_NAMES})$")).expect("the expression is right")
});

/// `text` without what looks like a secret.
pub(crate) fn text(text: &str) -> String {
    let mut text = text.to_owned();
    for shape in SHAPES.iter() {
        text = shape.replace_all(&text, WITHHELD).into_owned();
    }
    for shape in BESIDE.iter() {
        let keep = |found: &Captures<'_>| {
            let at = if found[1].ends_with("//") { "@" } else { "" };
            format!("{}{WITHHELD}{at}", &found[1])
        };
        text = shape.replace_all(&text, keep).into_owned();
    }
    text
}

/// Metrics without what looks like a secret. Their comments are texts of the program.
pub(crate) fn metrics(metrics: &str) -> String {
    let line = |line: &str| if line.starts_with("# ") { line.to_owned() } else { text(line) };
    metrics.split_inclusive('\n').map(line).collect()
}

/// `value` without what looks like a secret: values of fields, of pairs of name and value and of flags with such a
/// name, what is within such fields, and such text anywhere. Of containers the values of variables and the last applied
/// manifest go as a whole.
pub(crate) fn json(value: &mut Value) {
    clean(value, false);
}

/// `within` says whether it belongs to a field whose name is that of a secret.
fn clean(value: &mut Value, within: bool) {
    match value {
        Value::String(_) | Value::Number(_) if within => *value = WITHHELD.into(),
        Value::String(string) => *string = document(string).unwrap_or_else(|| text(string)),
        Value::Array(items) => {
            let mut follows = false;
            for item in items {
                let is_flag = item
                    .as_str()
                    .is_some_and(|item| item.starts_with('-') && SECRET_NAME.is_match(item));
                if follows && item.is_string() {
                    *item = WITHHELD.into();
                }
                follows = is_flag;
                clean(item, within);
            }
        }
        Value::Object(fields) => {
            fields.remove("managedFields");
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
            match fields.get_mut("env") {
                Some(Value::Array(variables)) => {
                    let values =
                        variables.iter_mut().filter_map(|variable| variable.get_mut("value"));
                    values.for_each(|value| *value = WITHHELD.into());
                }
                Some(Value::Object(variables)) => {
                    variables.values_mut().for_each(|value| *value = WITHHELD.into());
                }
                _ => {}
            }
            let is_pair = fields.get("name").and_then(Value::as_str).is_some_and(is_secret);
            for (name, field) in fields.iter_mut() {
                let refers = within && REFERENCES.contains(&name.as_str());
                clean(field, (within || is_secret(name) || is_pair && name == "value") && !refers);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text that is a document of its own, such as a file in a ConfigMap: its form says more than its lines.
fn document(string: &str) -> Option<String> {
    if !string.contains(": ") && !string.starts_with(['{', '[']) {
        return None;
    }
    let mut document: Value = serde_saphyr::from_str(string).ok()?;
    if !document.is_object() && !document.is_array() {
        return None;
    }
    clean(&mut document, false);
    serde_saphyr::to_string(&document).ok()
}

fn is_secret(name: &str) -> bool {
    SECRET_NAME.is_match(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json as value;

    use super::*;

    /// The part that must be gone.
    const SESAME: &str = "0pen-Sesame.42";

    #[test]
    fn secrets_in_text_are_withheld_and_the_rest_is_kept() {
        for (line, kept) in [
            (format!("Authorization: Bearer {SESAME}"), "Authorization: "),
            (
                format!("dial https://alice:{SESAME}@host:6443/x"),
                "dial https://(withheld)@host:6443/x",
            ),
            (format!("password={SESAME} user=bob"), " user=bob"),
            (format!("{{\"clientSecret\": \"{SESAME} and more\", \"a\": 1}}"), "\"a\": 1"),
            (format!("aws_secret_access_key = {SESAME}"), "aws_secret_access_key = (withheld)"),
            (format!("token: '{SESAME}'"), "token: (withheld)"),
            (format!("--token={SESAME}, retry"), ", retry"),
            (
                format!("a\n-----BEGIN PRIVATE KEY-----\n{SESAME}\n-----END PRIVATE KEY-----\nb"),
                "\nb",
            ),
            (format!("a -----BEGIN PRIVATE KEY-----\n{SESAME}"), "a (withheld)"),
            (format!("seen eyJhbGciOi.{SESAME}.sig end"), " end"),
            (format!("a: 1\npassword: |\n  open\n\n  {SESAME}\nb: 2"), "\nb: 2"),
            (format!("a: 1\n  - token: >-\n      {SESAME}\nb: 2"), "\nb: 2"),
            (format!("a: 1\npassword: open and then {SESAME}\nb: 2"), "\nb: 2"),
            (format!("sent authorization: Digest {SESAME}, b=2"), ", b=2"),
            (
                format!(r#"{{"error": "it said {{\"password\":\"{SESAME}\"}}", "b": 2}}"#),
                "\"b\": 2",
            ),
            (format!(r#"it said {{\"token\": \"a \\\"{SESAME}\", \"b\": 2}}"#), r#"\"b\": 2"#),
            (
                format!("<AccessKeyId>a</AccessKeyId><SecretAccessKey>{SESAME}</SecretAccessKey>"),
                ">a<",
            ),
            (format!("tokens: [a, {SESAME}] b"), " b"),
            (format!("open root:{SESAME}@tcp(10.0.0.1:3306)/x"), "10.0.0.1:3306)/x"),
            (format!("run curl -u alice:{SESAME} http://host"), "http://host"),
            (format!("run mysql -p{SESAME} shop"), " shop"),
            (format!("AccountKey={SESAME};EndpointSuffix=x"), ";EndpointSuffix=x"),
            (format!("https://host/blob?sv=1&sig={SESAME}&se=2"), "&se=2"),
            (format!("smtp_pass={SESAME} b"), " b"),
            (format!("sh -c \"agent --token {SESAME} --verbose\""), " --verbose"),
            (format!(r#""args":["login","--client-secret","{SESAME}"],"b":2"#), r#""b":2"#),
            (format!(r#"it ran {{\"args\":[\"--token\",\"{SESAME}\"],\"b\":2}}"#), r#"\"b\":2"#),
            (format!(r#"x "env":{{"LICENSE":"{SESAME}"}},"b":2"#), r#""b":2"#),
            (format!(r#"env: [{{"name":"VAULT_TOKEN","value":"{SESAME}"}}] b"#), " b"),
            (format!("- name: VAULT_TOKEN\n  value: {SESAME}\n- b"), "\n- b"),
            (format!("clone https://{SESAME}@host/x"), "https://(withheld)@host/x"),
            (format!("dial https://u:p@{SESAME}@host/x"), "https://(withheld)@host/x"),
        ] {
            let found = text(&line);
            assert!(!found.contains(SESAME) && !found.contains("Sesame"), "{line}: {found}");
            assert!(found.contains(kept), "{line}: {found}");
        }
        for secret in [
            "AKIAIOSFODNN7EXAMPLE",
            "ghp_0123456789abcdefghij0123",
            "abcdef.0123456789abcdef",
            "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==",
        ] {
            assert_eq!(text(&format!("x {secret} y")), "x (withheld) y");
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for line in [
            "shard east/tdset/0/1 is owned by replica-0-abcde at epoch 4",
            "leasehold_cluster_up{cluster=\"east\"} 1",
            "secrets \"cluster-east\" is forbidden: cannot list resource",
            "GET https://10.0.0.1:6443/api/v1/pods?limit=500 200",
            "a token is needed",
            "kubectl get pods -A -o wide; tar -pxf file",
            "read --token-file /run/token; see https://host/a@b",
        ] {
            assert_eq!(text(line), line);
        }
    }

    #[test]
    fn metrics_keep_their_comments() {
        let help = "# HELP leasehold_cluster_breaker_state Whether requests pass: 0 closed\n";
        let sample = format!("failed{{error=\"password={SESAME}\"}} 1\n");
        let clean = metrics(&format!("{help}{sample}{help}"));
        assert!(clean.starts_with(help) && clean.ends_with(help), "{clean}");
        assert!(!clean.contains(SESAME) && clean.contains("failed{error="), "{clean}");
    }

    #[test]
    fn files_in_objects_are_read_as_what_they_are() {
        let plugin = format!(
            r#"[{{"args": ["login", "--client-secret", "{SESAME}"], "env": {{"A": "{SESAME}"}}}}]"#
        );
        let config = format!("clusters:\n  credentialPlugins: {plugin}\n  kept: true\n");
        let mut object = value!({"data": {"config.yaml": config, "note": "kept: as it is"}});
        json(&mut object);
        let text = object.to_string();
        assert!(!text.contains("Sesame") && text.matches("kept").count() == 2, "{text}");
    }

    #[test]
    fn objects_lose_their_secrets_and_keep_their_form() {
        let mut object = value!({
            "metadata": {"name": "p", "managedFields": [1], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": SESAME, "a": "b"}},
            "spec": {
                "containers": [{
                    "env": [{"name": "A", "value": SESAME},
                        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                    "args": [format!("--password={SESAME}"), "--token", SESAME, "--kept", "kept"],
                    "headers": [{"name": "X-Api-Key", "value": SESAME}, {"name": "A", "value": "kept"}],
                }],
                "clientSecret": SESAME, "password": 4242424242u64, "secretName": "kept",
                "tokens": [SESAME, {"x": SESAME}], "credentials": {"user": SESAME, "deep": [{"a": SESAME}]},
                "volumes": [{"secret": {"secretName": "kept", "items": [{"key": "kept", "path": "kept"}]}}],
            },
        });
        json(&mut object);
        let text = object.to_string();
        assert!(!text.contains("Sesame") && !text.contains("4242424242"), "{object}");
        assert_eq!(text.matches("kept").count(), 7, "{object}");
        assert_eq!(object["metadata"], value!({"name": "p", "annotations": {"a": "b"}}));
        assert_eq!(object["spec"]["secretName"], "kept");
        assert_eq!(
            object["spec"]["containers"][0]["env"][1]["valueFrom"]["secretKeyRef"]["key"],
            "k"
        );
    }
}
