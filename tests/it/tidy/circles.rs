//! No files of a crate import each other in a circle, other than a module and its own parts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::source::{Sources, Target};

/// Which file imports which, and which names.
type Graph = BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>;

/// Every circle of one crate, shortest first: each file, the names it imports, the next file.
pub(super) fn circles(sources: &Sources, top: usize) -> Vec<String> {
    let graph = imports(sources, top);
    let mut found = BTreeSet::new();
    search(sources, &graph, &graph.keys().copied().collect(), &mut found);
    let mut found: Vec<Vec<usize>> = found.into_iter().collect();
    found.sort_by_key(Vec::len);
    found.iter().map(|circle| describe(sources, &graph, circle)).collect()
}

fn imports(sources: &Sources, top: usize) -> Graph {
    let mut graph = Graph::new();
    for (at, module) in sources.of_crate(top) {
        let from = sources.file_module(at);
        graph.entry(from).or_default();
        for path in module.paths() {
            let Some(Target::Item(definer, name)) = sources.resolve(at, path) else { continue };
            let to = sources.file_module(definer);
            if to != from && sources.modules[to].top == top {
                graph.entry(from).or_default().entry(to).or_default().insert(name);
            }
        }
    }
    graph
}

/// Adds the circles among `files`. A circle through a module and its own parts alone is none.
fn search(
    sources: &Sources,
    graph: &Graph,
    files: &BTreeSet<usize>,
    found: &mut BTreeSet<Vec<usize>>,
) {
    for tangle in tangles(graph, files) {
        let heads: Vec<usize> = (tangle.iter().copied())
            .filter(|file| !tangle.iter().any(|above| sources.is_part(*file, *above)))
            .collect();
        if heads.len() > 1 {
            found.extend(between(sources, graph, &tangle, &heads));
        }
        for head in heads {
            let parts = tangle.iter().copied().filter(|file| sources.is_part(*file, head));
            search(sources, graph, &parts.collect(), found);
        }
    }
}

/// The sets of more than one file in which each leads to each.
fn tangles(graph: &Graph, files: &BTreeSet<usize>) -> BTreeSet<BTreeSet<usize>> {
    let reach: BTreeMap<usize, BTreeSet<usize>> = files
        .iter()
        .map(|file| (*file, routes(graph, files, *file).into_keys().collect()))
        .collect();
    files
        .iter()
        .map(|file| reach[file].iter().copied().filter(|to| reach[to].contains(file)).collect())
        .filter(|tangle: &BTreeSet<usize>| tangle.len() > 1)
        .collect()
}

/// For every file that one leads to, the one before it on a shortest way.
fn routes(graph: &Graph, files: &BTreeSet<usize>, from: usize) -> BTreeMap<usize, usize> {
    let mut before = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(file) = next.pop_front() {
        for to in graph[&file].keys().filter(|to| files.contains(to)) {
            before.entry(*to).or_insert_with(|| {
                next.push_back(*to);
                file
            });
        }
    }
    before
}

/// For each import from a part of one head to a part of another, the shortest circle through it,
/// beginning with its first file.
fn between(
    sources: &Sources,
    graph: &Graph,
    tangle: &BTreeSet<usize>,
    heads: &[usize],
) -> BTreeSet<Vec<usize>> {
    let head = |file| heads.iter().find(|head| file == **head || sources.is_part(file, **head));
    let mut found = BTreeSet::new();
    for from in tangle {
        for to in graph[from].keys().filter(|to| tangle.contains(to) && head(*from) != head(**to)) {
            let before = routes(graph, tangle, *to);
            let mut circle = vec![*from];
            while circle[circle.len() - 1] != *to {
                circle.push(before[&circle[circle.len() - 1]]);
            }
            circle.reverse();
            let first = (0..circle.len()).min_by_key(|at| circle[*at]);
            circle.rotate_left(first.unwrap_or_default());
            found.insert(circle);
        }
    }
    found
}

fn describe(sources: &Sources, graph: &Graph, circle: &[usize]) -> String {
    let file = |at: usize| sources.modules[at].file.as_str();
    let next = circle.iter().cycle().skip(1);
    let mut text = file(circle[0]).to_owned();
    for (from, to) in circle.iter().zip(next) {
        let names: Vec<_> = graph[from][to].iter().map(String::as_str).collect();
        text += &format!(" -({})-> {}", names.join(", "), file(*to));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::source::planted;
    use super::*;

    fn check(files: &[(&str, &str)], expect: &[&str]) {
        assert_eq!(circles(&planted(&[("lib", files)]), 0), expect);
    }

    #[test]
    fn two_files_that_import_each_other() {
        check(
            &[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", "use crate::b::B; pub struct A(B);"),
                ("b.rs", "pub struct B; fn b() { super::a::A::new(); }"),
            ],
            &["lib/a.rs -(B)-> lib/b.rs -(A)-> lib/a.rs"],
        );
    }

    #[test]
    fn a_re_export_hides_nothing() {
        check(
            &[
                ("lib.rs", "mod a; mod b; pub use a::inner::A as Alpha;"),
                ("a/mod.rs", "pub mod inner;"),
                ("a/inner.rs", "use crate::b::*; pub struct A(B);"),
                ("b.rs", "pub struct B; fn b() { vec![crate::Alpha] }"),
            ],
            &["lib/a/inner.rs -(B)-> lib/b.rs -(A)-> lib/a/inner.rs"],
        );
    }

    #[test]
    fn siblings_beside_their_parent() {
        check(
            &[
                ("lib.rs", "mod m;"),
                ("m/mod.rs", "mod a; mod b; pub struct M(a::A, b::B);"),
                ("m/a.rs", "use super::M; use super::b::B; pub struct A;"),
                ("m/b.rs", "use super::a::A; pub struct B;"),
            ],
            &["lib/m/a.rs -(B)-> lib/m/b.rs -(A)-> lib/m/a.rs"],
        );
    }

    #[test]
    fn a_module_and_its_parts_belong_together() {
        check(
            &[
                ("lib.rs", "mod m; pub struct Top(m::M);"),
                ("m/mod.rs", "mod a; pub struct M(a::A);"),
                ("m/a.rs", "use super::M; use crate::Top; pub struct A;"),
            ],
            &[],
        );
    }

    #[test]
    fn a_part_of_one_module_and_another_module() {
        check(
            &[
                ("lib.rs", "mod m; mod n;"),
                ("m/mod.rs", "mod a; pub struct M(a::A);"),
                ("m/a.rs", "use crate::n::N; pub struct A;"),
                ("n.rs", "use crate::m::M; pub struct N;"),
            ],
            &["lib/m/mod.rs -(A)-> lib/m/a.rs -(N)-> lib/n.rs -(M)-> lib/m/mod.rs"],
        );
    }

    #[test]
    fn tests_may() {
        check(
            &[
                ("lib.rs", "mod a;\nmod b;"),
                ("a.rs", "pub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"),
                ("b.rs", "use crate::a::A;\npub struct B(A);\n"),
            ],
            &[],
        );
    }
}
