//! The public API of a library, as lines of text, and whether a version may change it so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::source::{Reach, Sources, Target};

/// Everything that users of a library can name, a line each: the path, then a fact about it. An item
/// with several paths has its facts at the shortest.
pub(super) fn listing(sources: &Sources, library: &str) -> BTreeSet<String> {
    let (paths, mut lines) = named(sources, library);
    let mut facts: BTreeMap<(usize, String), BTreeSet<&str>> = BTreeMap::new();
    for (at, module) in sources.modules.iter().enumerate().filter(|(_, module)| !module.is_test) {
        for (of, fact) in &module.facts {
            if let Some(Target::Item(definer, name)) = sources.resolve(at, of) {
                facts.entry((definer, name)).or_default().insert(fact);
            }
        }
    }
    for (item, path) in paths {
        let of_item = facts.get(&item).into_iter().flatten();
        lines.extend(of_item.map(|fact| format!("{path}: {fact}")));
    }
    lines
}

type Paths = BTreeMap<(usize, String), String>;

/// The shortest path of each public item; and a line for each other path.
fn named(sources: &Sources, library: &str) -> (Paths, BTreeSet<String>) {
    let (mut paths, mut lines) = (Paths::new(), BTreeSet::new());
    let (mut seen, mut next) = (BTreeSet::new(), VecDeque::new());
    next.push_back((sources.libraries[library], library.to_owned()));
    while let Some((at, prefix)) = next.pop_front() {
        if !seen.insert(at) {
            continue;
        }
        let module = &sources.modules[at];
        let public = |reach: Reach| reach == Reach::Everybody;
        let items = module.items.iter().filter(|item| public(item.visibility));
        let own = items.map(|item| (item.name.clone(), Some(Target::Item(at, item.name.clone()))));
        let children = module.children.iter().filter(|(_, child)| {
            public(sources.modules[**child].visibility) && !sources.modules[**child].is_test
        });
        let children = children.map(|(name, child)| (name.clone(), Some(Target::Module(*child))));
        let imports = module.imports.iter().filter(|import| public(import.visibility));
        let imports = imports.map(|import| {
            let target = sources.resolve(at, &import.path);
            if target.is_none() {
                lines.insert(format!("{prefix}::{} = {}", import.name, import.path.join("::")));
            }
            (import.name.clone(), target)
        });
        for (name, target) in own.chain(children).chain(imports.collect::<Vec<_>>()) {
            let path = format!("{prefix}::{name}");
            match target {
                Some(Target::Item(definer, name)) => {
                    let first = paths.entry((definer, name)).or_insert_with(|| path.clone());
                    if *first != path {
                        lines.insert(format!("{path} = {first}"));
                    }
                }
                Some(Target::Module(module)) => {
                    // `pub use a::*` shows the items of `a` here.
                    let path = path.strip_suffix("::*").map_or(path.clone(), str::to_owned);
                    next.push_back((module, path));
                }
                None => {}
            }
        }
    }
    (paths, lines)
}

/// What a release promised and `now` does not keep, unless the versions allow it.
pub(super) fn broken(released: &str, version: &str, now: &BTreeSet<String>) -> Vec<String> {
    let mut lines = released.lines();
    let before = lines.next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
    if is_breaking(before, version) {
        return Vec::new();
    }
    lines.filter(|line| !now.contains(*line)).map(str::to_owned).collect()
}

/// Whether one may break what the other promised: <https://doc.rust-lang.org/cargo/reference/semver.html>.
fn is_breaking(before: &str, now: &str) -> bool {
    let leading = |version: &str| -> Vec<u64> {
        let numbers: Vec<u64> = version.split('.').map_while(|part| part.parse().ok()).collect();
        let significant = numbers.iter().take_while(|number| **number == 0).count() + 1;
        numbers.into_iter().take(significant).collect()
    };
    leading(now) > leading(before)
}

#[cfg(test)]
mod tests {
    use super::super::source::planted;
    use super::*;

    fn list(text: &str) -> BTreeSet<String> {
        let files = [("lib.rs", text), ("a.rs", "pub struct A { pub x: u8, y: u8 }")];
        listing(&planted(&[("face", &files)]), "face")
    }

    fn check(text: &str, expect: &[&str]) {
        let expect: BTreeSet<_> = expect.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(list(text), expect);
    }

    #[test]
    fn items_are_listed_where_users_find_them() {
        check(
            "mod a; pub use a::A; pub mod b { pub use super::a::A as Alpha; }",
            &["face::A: struct A", "face::A: x: u8", "face::b::Alpha = face::A"],
        );
    }

    #[test]
    fn methods_variants_and_traits_are_facts() {
        check(
            "#[derive(Clone)] pub enum E<T> { One(T), Two { x: u8 } } impl<T> E<T> { pub fn f(&self) -> \
             Option<&T> { None } fn g() {} } impl<T> Iterator for E<T> {}",
            &[
                "face::E: One(T)",
                "face::E: Two { x: u8 }",
                "face::E: derive Clone",
                "face::E: enum E<T>",
                "face::E: fn f(&self) -> Option<&T>",
                "face::E: impl<T> Iterator for E<T>",
            ],
        );
    }

    #[test]
    fn what_is_taken_away_or_changed_breaks_a_version_that_promised_it() {
        let released = "# 0.1.0\nface::f: fn f()\nface::g: fn g(a: u8)\n";
        let now = list("pub fn g(a: u16) {} pub fn h() {}");
        let gone = ["face::f: fn f()", "face::g: fn g(a: u8)"];
        assert_eq!(broken(released, "0.1.7", &now), gone);
        assert!(broken(released, "0.2.0", &now).is_empty());
        assert!(broken(released, "1.0.0", &now).is_empty());
        assert!(
            broken(released, "0.1.1", &list("pub fn f() {} pub fn g(a: u8) {} pub fn h() {}"))
                .is_empty()
        );
        assert!(is_breaking("0.9.0", "0.10.0") && !is_breaking("1.2.0", "1.10.0"));
    }
}
