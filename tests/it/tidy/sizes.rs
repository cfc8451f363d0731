//! No crate is long, tests aside.

use std::collections::BTreeMap;

use super::source::Sources;

/// The packages with more lines than `max`, of the crates that begin at `tops`.
pub(super) fn long(
    sources: &Sources,
    tops: impl Iterator<Item = usize>,
    max: usize,
) -> Vec<String> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for module in tops.flat_map(|top| sources.of_crate(top)).map(|(_, module)| module) {
        *lines.entry(&module.package).or_default() += module.lines;
    }
    lines.retain(|_, lines| *lines > max);
    lines.into_iter().map(|(package, lines)| format!("{package}: {lines} lines")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::planted;
    use super::*;

    #[test]
    fn lines_are_counted_over_files_and_without_tests() {
        let files = [
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod laws;\nfn f() {}\n"),
            ("a.rs", "fn g() {}\n\n#[cfg(test)]\nmod tests {\n    fn long() {}\n}\n"),
            ("laws.rs", "fn l() {}\nfn m() {}\n"),
        ];
        let sources = planted(&[("engine", &files)]);
        assert_eq!(long(&sources, [0].into_iter(), 4), ["engine: 5 lines"]);
        assert!(long(&sources, [0].into_iter(), 5).is_empty());
    }
}
