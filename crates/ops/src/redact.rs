//! Takes secrets out of text: for what leaves the machine in a support bundle. Pure. What looks like a secret goes,
//! whether it is one or not.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use regex::{Captures, Regex};
use serde_json::Value;

/// What stands in place of a secret.
pub(crate) const WITHHELD: &str = "(withheld)";

/// Names of fields whose values are secrets, as they end: `clientSecret`, `aws_secret_access_key`.
const SECRET_NAMES: &str = "passwords?|passwd|passphrase|pass|pwd|secrets?|tokens?|credentials?|authorization|auth|\
                            cookies?|signature|sig|dsn|connection[_-]?string|ca[_-]?bundle|userinfo|key[_-]?data|\
                            (?:api|access|account|private|secret|client|signing|encryption)[_-]?keys?(?:[_-]?data)?";
/// What may follow: `DB_PASSWORD_PROD`, `SecretString`, `token_v2`.
const SUFFIX: &str = r"(?:(?:[_-]\w{1,12}){1,2}|value|string|binary|text|data|bytes|plain|base64|b64|hash|v?\d{1,4})";
/// What is kept within a field of such a name: it says which secret, not what is in it.
const REFERENCES: [&str; 8] =
    ["name", "namespace", "key", "secretName", "path", "kind", "apiVersion", "audience"];
/// How names end of fields that say which secret, or of what kind it is: `token-file`, `secret_name`.
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        "(?i)(?:names?|namespace|files?|path|dir|kind|types?|refs?|version|ur[li]s?|ttl|mode|audiences?|seconds|\
         duration|count|total|size|class|policy|status|errors?|provider|method)$",
    )
});

/// How far a bracket's end is looked for, in bytes.
const MAX_BRACKET: usize = 16 << 10;
/// The shortest run of letters that may be text in base64.
const MIN_BASE64: usize = 20;

fn regex(expression: &str) -> Regex {
    Regex::new(expression).expect("the expression is right")
}

/// Secrets that show what they are by themselves.
static SHAPES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // A block of PEM, whatever it holds.
        r"-----BEGIN [A-Z0-9 ]+-----[\s\S]*?(?:-----END [A-Z0-9 ]+-----|$)",
        // A JSON Web Token.
        r"eyJ[A-Za-z0-9_=-]{5,}\.[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=+/-]*)?",
        // PEM in base64.
        r"LS0tLS1CRUdJT[A-Za-z0-9+/=]+",
        // Keys of AWS, tokens of GitHub, GitLab, Slack, Google, Stripe, bootstrap tokens of Kubernetes, keys of age.
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{20,}\b",
        r"\bgithub_pat_[A-Za-z0-9_]{20,}",
        r"\bglpat-[A-Za-z0-9_-]{20,}\b",
        r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
        r"\bhooks\.slack\.com/[^\s'\x22]+",
        r"\bAIza[A-Za-z0-9_-]{35}\b",
        r"\bya29\.[A-Za-z0-9_-]+",
        r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,}",
        r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b",
        r"\bAGE-SECRET-KEY-1[A-Z0-9]+",
    ]
    .iter()
    .map(|shape| regex(shape))
    .collect()
});

/// Letters that may be base64.
static BASE64: LazyLock<Regex> =
    LazyLock::new(|| regex(&format!(r"[A-Za-z0-9+/]{{{MIN_BASE64},}}={{0,2}}")));

/// A name of a secret, or the variables of a program, and the bracket in which the value begins.
static BRACKET: LazyLock<Regex> = LazyLock::new(|| {
    let name = format!(r#"\b(?P<name>[\w.-]*(?:{SECRET_NAMES}){SUFFIX}?)\\*["']?\s*[:=]"#);
    regex(&format!(r#"(?i)(?:{name}|"env\\*"\s*:)[ \t]*[&*]?[\w.:]*(?P<open>[\[{{(])"#))
});

/// Secrets of which what is beside them is kept.
static BESIDE: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let others = [
        r#"(?i)(\bauthorization["']?\s*[:=]\s*["']?)[^\n"',;}]+"#,
        r#"(?i)(\b(?:set-)?cookie["']?\s*[:=]\s*["']?)[^\n"']+"#,
        r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}",
        // Up to the last @ before the path: a token alone, or a user and a password.
        r#"(://)[^/\s"'<>]+@"#,
        // As the drivers of databases have it: user:password@tcp(host).
        r"(\b[\w.-]+:)[^\s:@/]+@(?:tcp|unix)\(",
        // Of curl and of mysql.
        r"(\bcurl\s(?:[^\n|;]*?\s)?-u\s*[\w.-]+:)[^\s'\x22]+",
        r"(\bmysql\w*\s(?:[^\n|;]*?\s)?-p)[^\s'\x22]+",
        // Variables of a program, in YAML, whatever they are called.
        r"(?m)(^[ \t]*- name:[^\n]*\n[ \t]+value:[ \t]*)(?:[|>][^\n]*(?:(?:\n[ \t]*)*\n[ \t]+\S.*)+|[^\n]+)",
    ];
    // Those with more after the word are looked for in a pass of their own: what they keep may hold others.
    let named = ["", SUFFIX].into_iter().flat_map(beside_name);
    named.chain(others.map(str::to_owned)).map(|shape| regex(&shape)).collect()
});

/// Values beside a name that ends in one of a secret and this. One that was cut ends with the text.
fn beside_name(suffix: &str) -> [String; 6] {
    let words = format!("(?:{SECRET_NAMES}){suffix}");
    // Quotes may be escaped: JSON in a text that is in JSON.
    let name = format!(r#"(?P<name>[\w.-]*{words})\\*["']?\s*"#);
    let string = r#"(?:"(?:[^"\\]|\\(?s:.))*(?:"|\\?$)|'[^']*(?:'|$))"#;
    [
        // In YAML: the lines of a block that are deeper than its key, and a value to the end of its line.
        format!(
            r"(?im)(^[ \t]*(?:- )?{name}:[ \t]*[|>][-+0-9]*[ \t]*(?:\#[^\n]*)?)(?:(?:\n[ \t]*)*\n[ \t]+\S.*)+"
        ),
        format!(r#"(?im)(^[ \t]*(?:- )?{name}:[ \t]+)[^\s|>"'\[{{(].*$"#),
        format!(r"(?i)(<(?P<name>[\w:]*{words})>)[^<]+"),
        format!(
            r#"(?i)(\b{name}[:=]\s*)(?:{string}|\\+"(?:\\{{2,}}"|[^"\\]|\\[^"])*(?:\\+")?|[^\s,;&"'|>}}\]\[{{(]+)"#
        ),
        // A flag and its value, as a shell has them, or as neighbours in a list.
        format!(r#"(?i)((?:^|[\s"'])--?(?P<name>[\w-]*{words})[\s"',\\]+)[^\s"',\\\]]+"#),
        format!(
            r#"(?i)(\bname\\*["']?\s*:\s*\\*["']?{name}[\s,]*\\*["']?value\\*["']?\s*:\s*)(?:{string}|[^\s,}}]+)"#
        ),
    ]
}

static SECRET_NAME: LazyLock<Regex> =
    LazyLock::new(|| regex(&format!("(?i)(?:{SECRET_NAMES}){SUFFIX}?$")));

/// `text` without what looks like a secret.
pub(crate) fn text(text: &str) -> String {
    let mut text = text.to_owned();
    for shape in SHAPES.iter() {
        text = shape.replace_all(&text, WITHHELD).into_owned();
    }
    let encoded = |found: &Captures<'_>| match is_encoded(&found[0]) {
        true => WITHHELD.to_owned(),
        false => found[0].to_owned(),
    };
    text = brackets(&BASE64.replace_all(&text, encoded));
    for shape in BESIDE.iter() {
        let keep = |found: &Captures<'_>| {
            if found.name("name").is_some_and(|name| REFERENCE.is_match(name.as_str())) {
                return found[0].to_owned();
            }
            let at = if found[1].ends_with("//") { "@" } else { "" };
            format!("{}{WITHHELD}{at}", &found[1])
        };
        text = shape.replace_all(&text, keep).into_owned();
    }
    text
}

/// A log without what looks like a secret: lines that are JSON are read as such.
pub(crate) fn log(log: &str) -> String {
    let line = |line: &str| {
        let found = line.find('{').and_then(|at| Some((at, cleaned(line[at..].trim_end())?)));
        found.map_or_else(|| line.to_owned(), |(at, json)| format!("{}{json}\n", &line[..at]))
    };
    text(&log.split_inclusive('\n').map(line).collect::<String>())
}

/// JSON without what looks like a secret, if it is JSON and holds one.
fn cleaned(json: &str) -> Option<Value> {
    let before: Value = serde_json::from_str(json).ok()?;
    let mut after = before.clone();
    clean(&mut after, false);
    (before != after).then_some(after)
}

/// Whether letters are text in base64 that has pairs of names and values.
fn is_encoded(letters: &str) -> bool {
    let letters = letters.trim_end_matches('=');
    let Ok(bytes) = STANDARD_NO_PAD.decode(&letters[..letters.len() / 4 * 4]) else { return false };
    let is_text = |c: char| !c.is_control() || c.is_ascii_whitespace();
    match String::from_utf8(bytes) {
        Ok(text) => text.chars().all(is_text) && [": ", "{", "="].iter().any(|p| text.contains(p)),
        Err(_) => false,
    }
}

/// `text` without the brackets that belong to a name of a secret.
fn brackets(text: &str) -> String {
    let (mut kept, mut at) = (String::new(), 0);
    while let Some(found) = BRACKET.captures_at(text, at) {
        let open = found.name("open").expect("it is in every match");
        let is_kept = found.name("name").is_some_and(|name| REFERENCE.is_match(name.as_str()));
        let (from, to) = match is_kept {
            true => (open.end(), open.end()),
            false => (open.start(), open.start() + bracket(&text[open.start()..])),
        };
        kept.push_str(&text[at..from]);
        if !is_kept {
            kept.push_str(WITHHELD);
        }
        at = to;
    }
    kept + &text[at..]
}

/// How long the bracket is that a text begins with. Without its end it was cut: then all that is left of a short text,
/// or of the line.
fn bracket(text: &str) -> usize {
    let (mut depth, mut slashes, mut quoted) = (0, 0, None);
    for (at, byte) in text.bytes().enumerate().take(MAX_BRACKET) {
        match (byte, quoted) {
            (b'\\', _) => {
                slashes += 1;
                continue;
            }
            (b'"', None) => quoted = Some(slashes),
            // Quotes in JSON in JSON are escaped, and those within them once more.
            (b'"', Some(by)) if slashes == by || (by == 0 && slashes % 2 == 0) => quoted = None,
            (b'[' | b'{' | b'(', None) => depth += 1,
            (b']' | b'}' | b')', None) => depth -= 1,
            _ => {}
        }
        slashes = 0;
        if depth == 0 {
            return at + 1;
        }
    }
    let is_short = text.len() <= MAX_BRACKET;
    if is_short { text.len() } else { text.find('\n').unwrap_or(text.len()) }
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
        Value::String(string) => *string = documents(string),
        Value::Array(items) => {
            let mut follows = false;
            for item in items {
                let is_flag =
                    item.as_str().is_some_and(|item| item.starts_with('-') && is_secret(item));
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
            if let Some(Value::Object(files)) = fields.get_mut("binaryData") {
                files.values_mut().for_each(|file| *file = WITHHELD.into());
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

/// A text, which may be documents of their own, such as a file in a ConfigMap: their form says more than their lines.
fn documents(string: &str) -> String {
    let (mut kept, mut one) = (String::new(), String::new());
    let end = |one: &mut String| {
        let one = std::mem::take(one);
        document(&one).unwrap_or_else(|| text(&one))
    };
    for line in string.split_inclusive('\n') {
        let begins = line.strip_prefix("---").is_some_and(|rest| rest.trim_end() == "");
        if begins {
            kept += &end(&mut one);
            kept += line;
        } else {
            one += line;
        }
    }
    kept + &end(&mut one)
}

/// A document without its secrets; `None` if it is none, or holds none.
fn document(string: &str) -> Option<String> {
    if !string.contains(": ") && !string.starts_with(['{', '[']) {
        return None;
    }
    let before: Value = serde_saphyr::from_str(string).ok()?;
    if !before.is_object() && !before.is_array() {
        return None;
    }
    let mut after = before.clone();
    clean(&mut after, false);
    (before != after).then(|| serde_saphyr::to_string(&after).ok()).flatten()
}

fn is_secret(name: &str) -> bool {
    SECRET_NAME.is_match(name) && !REFERENCE.is_match(name)
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
            // Texts that were cut.
            (format!(r#"a {{"client_secret":"{SESAME} rest of…"#), "a {"),
            (format!(r#"a password="{SESAME}"#), "a password="),
            (format!(r#"a password="{SESAME}\"#), "a password="),
            (format!("a token='{SESAME} more"), "a token="),
            (format!(r#"a {{"credentials":{{"user":"u","code":"{SESAME}…"#), "a {"),
            // What is within a bracket.
            (format!(r#"a {{"credentials":{{"u":"}}","code":"{SESAME}"}},"b":2}}"#), r#","b":2"#),
            (format!(r#"a secret: {{"a":"{SESAME}"}} b"#), " b"),
            (format!(r#"{{"password":["x",{{"a":1}},"{SESAME}"],"b":2}}"#), r#","b":2}"#),
            (format!(r#"x {{\"auth\": {{\"a\": \"}}{SESAME}\"}}, \"b\": 2}}"#), r#"\"b\": 2"#),
            (format!(r#"Secret {{ "password": ByteString("{SESAME}") }} b"#), " } b"),
            (format!("a: 1\ntoken: {{x: {SESAME}}}\nb: 2"), "\nb: 2"),
            (format!("a: 1\npassword: ({SESAME})\nb: 2"), "\nb: 2"),
            (format!("a: 1\npassword: |  # c\n  {SESAME}\nb: 2"), "\nb: 2"),
            (format!("env:\n- name: LICENSE\n  value: {SESAME}\nb: 2"), "\nb: 2"),
            (format!("env:\n- name: LICENSE\n  value: |\n    a\n\n    {SESAME}\nb: 2"), "\nb: 2"),
            // Names with more after the word.
            (format!(r#"{{"SecretString":"{SESAME}","b":2}}"#), r#""b":2"#),
            (format!(r#"{{"secretValue":"{SESAME}","b":2}}"#), r#""b":2"#),
            (format!("DB_PASSWORD_PROD={SESAME} b"), " b"),
            (format!("password2={SESAME} token_v2: {SESAME} secret_id={SESAME} b"), " b"),
            (format!("token-file=/run/x password={SESAME} b"), "token-file=/run/x password="),
            (format!("GET /x Cookie: theme=dark; session={SESAME}; a=b"), "GET /x Cookie: "),
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
            "eyJhdXRocyI6eyJyIjp7ImF1dGgiOiJkWE5sY2pwdmNHVnUifX19",
            "YXBpVmVyc2lvbjogdjEKa2luZDogQ29uZmlnCnVzZXJzOiAtIHRva2VuOiBvcGVu",
            "github_pat_11AAAAAAA0abcdefghij_abcdefghijklmnop",
            "sk_live_abcdefghijklmnopqrstuvwx",
            "hooks.slack.com/services/T000/B000/open",
            "AGE-SECRET-KEY-1QQQQQQQQ",
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
            "secretName: cluster-east, token-file=/run/token, auth_mode=(token)",
            "GET /apis/leasehold.dev/v1alpha1/namespaces/leasehold/shardmaps/abcdefghijklmnopqrst",
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
    fn a_file_of_several_documents_is_read_as_each_of_them() {
        let files =
            format!("a: kept\n---\nenv:\n- value: {SESAME}\n  name: LICENSE\n---\n# kept\n");
        let mut object =
            value!({"data": {"all.yaml": files}, "binaryData": {"kubeconfig": "YXBpVmVyc2lvbg=="}});
        json(&mut object);
        let text = object["data"]["all.yaml"].as_str().unwrap();
        assert!(!text.contains("Sesame") && text.matches("---\n").count() == 2, "{text}");
        assert!(text.starts_with("a: kept\n") && text.ends_with("# kept\n"), "{text}");
        assert_eq!(object["binaryData"]["kubeconfig"], WITHHELD);
    }

    #[test]
    fn lines_of_a_log_that_are_json_are_read_as_such() {
        let plain = r#"2026-01-01T00:00:00Z {"level":"INFO","b":1,"a":"kept: as it is"}"#;
        let secret = format!(
            r#"2026-01-01T00:00:00Z {{"spec":{{"credentials":{{"user":"u","code":"{SESAME}"}}}},"a":[1]}}"#
        );
        let clean = log(&format!("{plain}\n{secret}\n{plain}\n"));
        let lines: Vec<&str> = clean.lines().collect();
        assert_eq!((lines[0], lines[2], lines.len()), (plain, plain, 3));
        let expect = r#"2026-01-01T00:00:00Z {"a":[1],"spec":{"credentials":(withheld)}}"#;
        assert_eq!(lines[1], expect);
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
