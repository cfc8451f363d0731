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
                            string[_-]?data|\
                            (?:api|access|account|private|secret|client|signing|encryption)[._-]?keys?(?:[_-]?data)?";
/// What may follow: `DB_PASSWORD_PROD`, `SecretString`, `token_v2`.
const SUFFIX: &str = r"(?:(?:[_-]\w{1,12}){1,2}|value|string|binary|text|data|bytes|plain|base64|b64|hash|v?\d{1,4})";
/// What is kept within a field of such a name: it says which secret, not what is in it.
const REFERENCES: [&str; 7] =
    ["name", "namespace", "secretName", "path", "kind", "apiVersion", "audience"];
/// What an object has that selects a key of a Secret: with more or less than these, `key` may be the secret itself.
const SELECTOR: [&str; 5] = ["name", "key", "namespace", "optional", "kind"];
/// How the two parts of a pair are called that has a name and a value, in letters of either case.
const PAIR_NAMES: [&str; 3] = ["name", "key", "id"];
const PAIR_VALUES: [&str; 2] = ["value", "stringValue"];
/// What is said of passwords in sentences, where the next word is none.
const CONTINUATIONS: &str = "a again and any are as at authentication be because before but by can cannot could does \
                             expired failed file for from given had has have if in incorrect invalid is it may \
                             mismatch missing must needed no not of on only or policy provided required reset set \
                             should that the to was were when which will with wrong";
/// Flags that take a user and a password.
const USER_FLAGS: [&str; 3] = ["-u", "--user", "--proxy-user"];
/// Programs whose flags `-p` and `-a` take a password.
const TAKES_P: &str = r"(?:\b(?:mysql|mariadb|mongo)\w*|\bsshpass|\blogin)\b";
const TAKES_A: &str = r"\bredis-cli\b";
/// How names end of fields that say which secret, or of what kind it is: `token-file`, `secret_name`.
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        "(?i)(?:names?|namespace|files?|path|dir|kind|types?|refs?|version|ur[li]s?|ttl|mode|audiences?|seconds|\
         duration|count|total|size|class|policy|status|errors?|provider|method)$",
    )
});

/// How far a bracket's end is looked for, in bytes.
const MAX_BRACKET: usize = 16 << 10;
/// How many values of JSON are looked for in a line of a log.
const MAX_VALUES: usize = 16;
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
    let others = r#""env\\*"\s*:|(?P<data>"data\\*"\s*:)"#;
    regex(&format!(r"(?i)(?:{name}|{others})[ \t]*[&*]?[\w.:]*(?P<open>[\[{{(])"))
});

/// A name of a secret in YAML, or the data of a Secret, with its value in the lines below.
static ABOVE: LazyLock<Regex> = LazyLock::new(|| {
    let name = format!("(?P<name>[\\w.-]*(?:{SECRET_NAMES}){SUFFIX}?)|(?P<data>data)");
    regex(&format!(
        r#"(?i)^[ \t]*(?:- )*["']?(?:{name})["']?:[ \t]*(?:[&!]\S*[ \t]*)?(?P<block>[|>][-+0-9]*)?[ \t]*(?:\#.*)?$"#
    ))
});

/// A field of YAML.
static FIELD: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"^[ \t]*(?:- )*["']?(?P<name>[\w.-]+)["']?:(?:\s|$)"#));

/// What says that data is that of a Secret.
static OF_SECRET: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"\bkind\\*["']?\s*:\s*\\*["']?Secret(?:List)?\b"#));

/// Flags that take a password, with the programs of which they are.
static PASSWORD_FLAGS: LazyLock<[(&str, Regex); 2]> =
    LazyLock::new(|| [("-p", regex(TAKES_P)), ("-a", regex(TAKES_A))]);

/// Secrets of which what is beside them is kept.
static BESIDE: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let fixed = [
        r#"(?i)(\bauthorization["']?\s*[:=]\s*["']?)[^\n"',;}]+"#,
        r#"(?i)(\b(?:set-)?cookie["']?\s*[:=]\s*["']?)[^\n"']+"#,
        r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}",
        // Up to the last @, but a path of the Web may have one too: a user and a password, which is no port, or a token
        // alone.
        r#"(?i)(\b[a-gi-vx-z][a-z0-9+.-]*://)[^\s"'<>]+@"#,
        r#"(://)(?:[^/\s"'<>:]*:[0-9]*[^0-9/\s"'<>][^\s"'<>]*|[^/\s"'<>]+)@"#,
        // As the drivers of databases have it: user:password@tcp(host).
        r"(\b[\w.-]+:)[^\s:@/]+@(?:tcp|unix)\(",
        // A user and a password, but no address.
        r#"(?m)((?:^|[\s"'\\,\[])(?:-u|--(?:proxy-)?user)[\s"',\\=]*[\w.@%+-]+:)(?:[^\s"',\\\]/]|/[^\s"',\\\]/])[^\s"',\\\]]*"#,
        // Variables of a program, in YAML, whatever they are called.
        r"(?m)(^[ \t]*- name:[^\n]*\n[ \t]+value:[ \t]*)(?:[|>][^\n]*(?:(?:\n[ \t]*)*\n[ \t]+\S.*)+|[^\n]+)",
    ];
    // Those with more after the word are looked for in a pass of their own: what they keep may hold others.
    let named = ["", SUFFIX].into_iter().flat_map(beside_name);
    let short = [("p", TAKES_P), ("a", TAKES_A)].map(|(flag, programs)| {
        format!(r#"({programs}[^\n|;]*?[\s"',]-{flag}[\s"',\\=]*)[^\s"',\\\]]+"#)
    });
    // The next word: after a password's name always, and after one of a variable.
    let (upper, word) =
        (SECRET_NAMES.to_uppercase(), r#"(?P<word>"[^"\n]*"|[^\s=:(\[{|"][^\s"]*)"#);
    let spaced = [
        format!(
            r"(?i)(\b(?P<name>[\w.-]*(?:password|passwd|passphrase))[ \t]+(?:is[ \t]+)?){word}"
        ),
        format!(r"(\b(?P<name>[A-Z0-9_]*(?:{upper})(?:_[A-Z0-9_]+)?)[ \t]+){word}"),
    ];
    let all = named.chain(fixed.map(str::to_owned)).chain(short).chain(spaced);
    all.map(|shape| regex(&shape)).collect()
});

/// Values beside a name that ends in one of a secret and this. One that was cut ends with the text.
fn beside_name(suffix: &str) -> [String; 6] {
    let words = format!("(?:{SECRET_NAMES}){suffix}");
    // Quotes may be escaped: JSON in a text that is in JSON.
    let name = format!(r#"(?P<name>[\w.-]*{words})\\*["']?\s*"#);
    let string = r#"(?:"(?:[^"\\]|\\(?s:.))*(?:"|\\?$)|'[^']*(?:'|$))"#;
    let escaped = r#"\\+"(?:\\{2,}"|[^"\\]|\\[^"])*(?:\\+")?"#;
    [
        // In YAML: a value to the end of its line.
        format!(r#"(?im)(^[ \t]*(?:- )?{name}:[ \t]+)[^\s|>"'\[{{(].*$"#),
        format!(r"(?i)(<(?P<name>[\w:]*{words})>)[^<]+"),
        format!(r#"(?i)(\b{name}[:=][ \t]*)(?:{string}|{escaped}|[^\s,;&"'|>}}\]\[{{(]+)"#),
        // A flag and its value, as a shell has them, or as neighbours in a list.
        format!(
            r#"(?i)((?:^|[\s"'])--?(?P<name>[\w-]*{words})[\s"',\\]+(?:-[ \t]+)?)[^\s"',\\\]]+"#
        ),
        // A name and a value beside each other: as fields, as attributes, and as elements.
        format!(
            r#"(?i)(\b(?:name|key|id)\\*["']?\s*[:=]\s*\\*["']?{name}(?:[^{{}}<>\w.-][^{{}}<>]{{0,64}}?)?\b(?:string)?value\\*["']?\s*[:=]\s*)(?:{string}|{escaped}|[^\s,}}<>]+)"#
        ),
        format!(r"(?i)(<(?:name|key)>(?P<name>[\w.-]*{words})</(?:name|key)>\s*<value>)[^<]+"),
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
    text = below(&brackets(&BASE64.replace_all(&text, encoded)));
    for shape in BESIDE.iter() {
        let keep = |found: &Captures<'_>| {
            let refers = found.name("name").is_some_and(|name| REFERENCE.is_match(name.as_str()));
            if refers || found.name("word").is_some_and(|word| goes_on(word.as_str())) {
                return found[0].to_owned();
            }
            let at = if found[1].ends_with("//") { "@" } else { "" };
            format!("{}{WITHHELD}{at}", &found[1])
        };
        text = shape.replace_all(&text, keep).into_owned();
    }
    text
}

/// Whether a word goes on with a sentence, and is no password.
fn goes_on(word: &str) -> bool {
    let word = word.trim_end_matches(['.', ',', ';', ':', '!', '?', ')']);
    CONTINUATIONS.split(' ').any(|known| known.eq_ignore_ascii_case(word))
}

/// A log without what looks like a secret: what is JSON in a line is read as such.
pub(crate) fn log(log: &str) -> String {
    text(&log.split_inclusive('\n').map(line).collect::<String>())
}

/// A line without the secrets in its first values of JSON.
fn line(line: &str) -> String {
    let (mut kept, mut rest) = (String::new(), line);
    for _ in 0..MAX_VALUES {
        let Some(at) = rest.find(['{', '[']) else { break };
        let (value, length) = first_value(&rest[at..]);
        kept += &rest[..at];
        kept += &value;
        rest = &rest[at + length..];
    }
    kept + rest
}

/// The JSON that a text begins with, without its secrets, and how long it was; of other text its first letter.
fn first_value(text: &str) -> (String, usize) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let Some(Ok(before)) = values.next() else { return (text[..1].to_owned(), 1) };
    let (mut after, length) = (before.clone(), values.byte_offset());
    clean(&mut after, false);
    let is_same = before == after;
    (if is_same { text[..length].to_owned() } else { after.to_string() }, length)
}

/// `text` without the lines below a name of a secret in YAML: those of a block, and fields but those that say which
/// secret it is.
fn below(text: &str) -> String {
    let of_secret = OF_SECRET.is_match(text);
    let mut kept = String::new();
    // The column of the name, and whether a block of text follows.
    let mut within: Option<(usize, bool)> = None;
    for line in text.split_inclusive('\n') {
        let (indent, rest) = line.split_at(line.len() - line.trim_start_matches([' ', '\t']).len());
        let is_below = |column: usize| {
            rest.trim_end().is_empty()
                || indent.len() > column
                || (indent.len() == column && rest.starts_with("- "))
        };
        if let Some((_, is_block)) = within.filter(|(column, _)| is_below(*column)) {
            let refers = |field: Captures<'_>| REFERENCE.is_match(&field["name"]);
            let is_kept = rest.trim_end().is_empty()
                || (!is_block && FIELD.captures(line).is_some_and(refers));
            let end = if line.ends_with('\n') { "\n" } else { "" };
            match is_kept {
                true => kept += line,
                false => kept += &format!("{indent}{WITHHELD}{end}"),
            }
            continue;
        }
        let above = ABOVE.captures(line.trim_end_matches(['\n', '\r']));
        let above = above.filter(|above| match above.name("name") {
            Some(name) => !REFERENCE.is_match(name.as_str()),
            None => of_secret,
        });
        within = above.map(|above| {
            let column = line.len() - line.trim_start_matches([' ', '\t', '-']).len();
            (column, above.name("block").is_some())
        });
        kept += line;
    }
    kept
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
    let (mut kept, mut at, of_secret) = (String::new(), 0, OF_SECRET.is_match(text));
    while let Some(found) = BRACKET.captures_at(text, at) {
        let open = found.name("open").expect("it is in every match");
        let refers = found.name("name").is_some_and(|name| REFERENCE.is_match(name.as_str()));
        let is_kept = refers || (found.name("data").is_some() && !of_secret);
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
            arguments(items, "");
            items.iter_mut().for_each(|item| clean(item, within));
        }
        Value::Object(fields) => {
            fields.remove("managedFields");
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
            let parts: &[&str] = match fields.get("kind").and_then(Value::as_str) {
                Some("Secret") => &["binaryData", "data", "stringData"],
                Some("SecretList") => &["items"],
                _ => &["binaryData"],
            };
            for part in parts {
                fields.get_mut(*part).into_iter().for_each(withhold);
            }
            let program = ["image", "command"].into_iter().filter_map(|field| fields.get(field));
            let program: String = program.map(Value::to_string).collect();
            if let Some(Value::Array(items)) = fields.get_mut("args") {
                arguments(items, &program);
            }
            match fields.get_mut("env") {
                Some(Value::Array(variables)) => {
                    let values =
                        variables.iter_mut().filter_map(|variable| variable.get_mut("value"));
                    values.for_each(|value| *value = WITHHELD.into());
                }
                Some(variables) if variables.is_object() => withhold(variables),
                _ => {}
            }
            let is_pair = fields.iter().any(|(name, field)| {
                is_one(name, &PAIR_NAMES) && field.as_str().is_some_and(is_secret)
            });
            let is_selector = fields.contains_key("name")
                && fields.keys().all(|name| SELECTOR.contains(&name.as_str()));
            for (name, field) in fields.iter_mut() {
                let says_which =
                    REFERENCES.contains(&name.as_str()) || (is_selector && name == "key");
                let hides = within || is_secret(name) || (is_pair && is_one(name, &PAIR_VALUES));
                clean(field, hides && !(within && says_which && field.is_string()));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Takes the values of an object away, and keeps their names; of another value everything.
fn withhold(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|field| *field = WITHHELD.into()),
        other => *other = WITHHELD.into(),
    }
}

/// Takes away what flags say in the arguments of a program, which is named there or before.
fn arguments(items: &mut [Value], program: &str) {
    let words = items.iter().filter_map(Value::as_str);
    let line = words.fold(program.to_owned(), |line, word| line + " " + word);
    let takes = |flag: &str| {
        let mut flags = PASSWORD_FLAGS.iter();
        flags.any(|(known, programs)| *known == flag && programs.is_match(&line))
    };
    let mut flag = String::new();
    for item in items {
        let Value::String(word) = item else {
            flag.clear();
            continue;
        };
        let next = word.clone();
        if takes(&flag) || (flag.starts_with('-') && is_secret(&flag)) {
            *word = WITHHELD.into();
        } else if let Some((user, _)) = word.split_once(':').filter(|_| is_one(&flag, &USER_FLAGS))
        {
            *word = format!("{user}:{WITHHELD}");
        } else if let Some(short) = word.get(..2).filter(|short| word.len() > 2 && takes(short)) {
            *word = format!("{short}{WITHHELD}");
        }
        flag = next;
    }
}

/// Whether a word is one of these, in letters of either case.
fn is_one(word: &str, words: &[&str]) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
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
    if !string.contains(": ") && !string.trim_start().starts_with(['{', '[']) {
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
mod tests;
