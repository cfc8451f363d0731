//! One word, one meaning, the field's word: names that are retired, phrases that read like riddles,
//! and the glossary of `crates/README.md`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::source::Sources;

/// Crates in which some retired words mean something else: HTTP routes, OIDC claims, those of fleets, a tunnel's echo.
const ELSEWHERE: &[&str] = &[
    "admin",
    "apiserver",
    "clusters",
    "controllers",
    "demo",
    "leasehold",
    "marks",
    "telemetry",
    "xtask",
];

/// Where a word is retired.
enum Retired {
    Everywhere,
    Except(&'static [&'static str]),
    In(&'static [&'static str]),
}
use Retired::{Everywhere, Except, In};

/// No type, function, module, constant, variant or file has one of these as a word of its name: what
/// the glossary has instead, and where the word is retired.
const RETIRED: &[(&str, &[&str], Retired)] = &[
    ("feed", &["source", "event handler"], Everywhere),
    ("recipe", &["transform"], Everywhere),
    ("strip", &["transform"], Except(ELSEWHERE)),
    ("echo", &["expectations", "read-your-writes"], Except(ELSEWHERE)),
    ("tenure", &["assignment"], Everywhere),
    ("site", &["cluster context"], Except(ELSEWHERE)),
    ("claim", &["scope"], Except(ELSEWHERE)),
    ("extent", &["range filter"], Everywhere),
    ("coverage", &["scope", "range filter"], Except(ELSEWHERE)),
    ("division", &["range filter"], Everywhere),
    ("sketch", &["partial metadata"], Everywhere),
    ("lane", &["per-cluster queue"], Except(ELSEWHERE)),
    ("route", &["per-cluster queue", "item"], In(&["engine", "queue", "sdk"])),
    ("place", &["item"], In(&["engine", "queue", "sdk"])),
    ("nudge", &["reason"], Everywhere),
    ("conductor", &["supervisor"], Everywhere),
    ("seat", &["member"], Everywhere),
    ("parcel", &["unit"], Everywhere),
    ("stance", &["state"], Everywhere),
    ("homeless", &["unassigned"], Everywhere),
    ("crest", &["peak"], Everywhere),
    ("reshape", &["split", "merge"], Everywhere),
    ("late", &["suspect"], In(&["sharding"])),
    ("frozen", &["suspect"], In(&["sharding"])),
    ("emptying", &["cordoned"], Everywhere),
];

/// No comment, document or message has one of these, over line ends too.
const RIDDLES: &[(&str, &str)] = &[
    (r"see the file's text", "say what it is"),
    (r"\b(is|are) to be\b", "say `should be`, `will be` or who does it"),
    (r"\b(told|heard) of\b", "say who reports what to whom"),
    (r"\bno [a-z]+ that would [a-z ]+ is\b", "say what is missing, then what follows"),
    (r"\bbe [a-z]+ed this time\b", "say who does what"),
    (r", for (it|they|we|you|he|she) ", "say `because`"),
    (
        r"\b(shall|lest|albeit|hence|whence|thence|hitherto|henceforth|whereupon)\b",
        "a plainer word",
    ),
    (r"\b(here|there|where)(of|in|by|to|with)\b", "a plainer word"),
    // What a function does, after the mark of a comment's beginning.
    (r"¶has [^.?]*[.]", "say `makes`, `lets` or who does it"),
];

/// The retired names of a crate: where, what, and what to say instead.
pub(super) fn retired(sources: &Sources, top: usize) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (_, module) in sources.of_crate(top) {
        let stem = Path::new(&module.file).file_stem().unwrap_or_default().to_string_lossy();
        let file = [("file", stem.into_owned())];
        for (what, name) in module.names.iter().chain(&file) {
            for (word, instead, _) in RETIRED.iter().filter(|(_, _, r)| r.holds(&module.package)) {
                if words(name).iter().any(|part| is_form(part, word)) {
                    let instead = instead.join(" or ");
                    found.insert(format!("{}: {what} {name}: say {instead}", module.file));
                }
            }
        }
    }
    found.into_iter().collect()
}

impl Retired {
    fn holds(&self, package: &str) -> bool {
        match self {
            Everywhere => true,
            Except(packages) => !packages.contains(&package),
            In(packages) => packages.contains(&package),
        }
    }
}

/// The words of a name in CamelCase, snake_case or CAPITALS.
fn words(name: &str) -> Vec<String> {
    let is_camel = name.contains(char::is_lowercase);
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || (is_camel && letter.is_uppercase()) {
            words.push(String::new());
        }
        if let (Some(word), true) = (words.last_mut(), letter != '_') {
            word.extend(letter.to_lowercase());
        }
    }
    words
}

/// Is `part` the word, its plural or a form of the verb?
fn is_form(part: &str, word: &str) -> bool {
    let ending = |stem: &str| part.strip_prefix(stem).map(str::to_owned);
    let is_verb = word.strip_suffix('e').and_then(ending).is_some_and(|end| end == "ing");
    is_verb || ending(word).is_some_and(|end| ["", "s", "es", "d", "ed", "ing"].contains(&&*end))
}

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let pattern = |riddle: &str| Regex::new(riddle).expect("a pattern");
    RIDDLES.iter().map(|(riddle, instead)| (pattern(riddle), *instead)).collect()
});

/// The riddles in a text: line and what to do.
pub(super) fn riddles(text: &str) -> Vec<String> {
    let (text, starts) = prose(text);
    let line = |at: usize| starts.partition_point(|start| *start <= at);
    let mut found = Vec::new();
    for (pattern, instead) in PATTERNS.iter() {
        for hit in pattern.find_iter(&text) {
            found.push((line(hit.start()), format!("{:?}: {instead}", hit.as_str())));
        }
    }
    found.sort();
    found.into_iter().map(|(line, riddle)| format!("{line}: {riddle}")).collect()
}

/// A text in lower case as one line, with `¶` for the mark at a comment's beginning, and where its
/// lines begin in it.
fn prose(text: &str) -> (String, Vec<usize>) {
    let (mut prose, mut starts, mut was_comment) = (String::new(), Vec::new(), false);
    for line in text.lines() {
        starts.push(prose.len());
        let line = line.trim();
        let is_comment = line.starts_with("//");
        if is_comment && !was_comment {
            prose.push('¶');
        }
        was_comment = is_comment;
        prose += &line.trim_start_matches(['/', '!', '#', '>', '*']).trim().to_lowercase();
        prose.push(' ');
    }
    (prose, starts)
}

/// What is wrong with the glossary of a document: a word that the table above has and it has not,
/// or a name in backticks that no crate declares.
pub(super) fn glossary(document: &str, sources: &Sources) -> Vec<String> {
    let rows = document.split("\n## Glossary\n").nth(1).unwrap_or_default();
    let rows = rows.split("\n## ").next().unwrap_or_default();
    let rows = rows.lines().filter(|line| line.starts_with("| ")).skip(1);
    let rows: Vec<_> = rows.filter_map(|row| row[2..].split_once(" | ")).collect();
    let explained: BTreeSet<&str> = rows.iter().flat_map(|(words, _)| words.split(", ")).collect();
    let declared: BTreeSet<&str> = (sources.modules.iter())
        .flat_map(|module| {
            let items = module.items.iter().map(|item| item.name.as_str());
            module.names.iter().map(|(_, name)| name.as_str()).chain(items)
        })
        .collect();
    let wanted = RETIRED.iter().flat_map(|(_, instead, _)| *instead);
    let mut wrong: BTreeSet<String> = wanted
        .filter(|word| !explained.contains(*word))
        .map(|word| format!("`{word}` is not explained"))
        .collect();
    for (words, meaning) in rows {
        let is_name = |code: &&str| code.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
        let code = meaning.split('`').skip(1).step_by(2).filter(is_name);
        for name in code.flat_map(|code| code.split("::")) {
            if !declared.contains(name) {
                wrong.insert(format!("{words}: no crate declares `{name}`"));
            }
        }
    }
    wrong.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::planted;
    use super::*;

    #[test]
    fn retired_words_in_names() {
        let engine = [
            ("lib.rs", "mod feed; struct RangeFilter; impl RangeFilter { fn strip_prefixes() {} }"),
            (
                "feed.rs",
                "enum E { NoRoute } const CREST_MS: u8 = 0; fn feedback() { fn seats() {} }",
            ),
        ];
        let sources = planted(&[("engine", &engine)]);
        let expect = [
            "engine/feed.rs: constant CREST_MS: say peak",
            "engine/feed.rs: file feed: say source or event handler",
            "engine/feed.rs: function seats: say member",
            "engine/feed.rs: variant NoRoute: say per-cluster queue or item",
            "engine/lib.rs: function strip_prefixes: say transform",
            "engine/lib.rs: module feed: say source or event handler",
        ];
        assert_eq!(retired(&sources, 0), expect);
        let admin = [("lib.rs", "mod routes {} fn strip() {} struct Reshaping;")];
        let expect = ["admin/lib.rs: type Reshaping: say split or merge"];
        assert_eq!(retired(&planted(&[("admin", &admin)]), 0), expect);
    }

    #[test]
    fn riddles_are_found_over_line_ends() {
        let text = "/// No shard that would\n/// hold it is held: dropped.\n/// See the file's text.\n\
                    /// Has a list that\n/// is to be streamed be paged this time.\nfn f() {}\n\
                    /// Has it a spec?\nfn g() {} // waits, for it must\n";
        let found: Vec<_> = riddles(text).iter().map(|line| line[..8].to_owned()).collect();
        assert_eq!(found, ["1: \"no s", "3: \"see ", "5: \"be p", "5: \"is t", "8: \", fo"]);
        let text = "//! A queue.\n\n/// Has everything listed anew.\nfn f() {}\n";
        assert_eq!(riddles(text).len(), 1);
    }

    #[test]
    fn the_glossary_explains_and_is_true() {
        let sources = planted(&[("engine", &[("lib.rs", "pub struct Source; fn member() {}")])]);
        let document = "# A\n\n## Glossary\n\n| word | meaning |\n|---|---|\n\
                        | source, event handler | a `Source::member` or `Feed`, `i/2` |\n\n## B\n\n| item | `None` |\n";
        let wrong = glossary(document, &sources);
        assert!(wrong.contains(&"source, event handler: no crate declares `Feed`".to_owned()));
        assert!(wrong.contains(&"`item` is not explained".to_owned()));
        assert!(!wrong.iter().any(|line| line.contains("`source`") || line.contains("`None`")));
    }
}
