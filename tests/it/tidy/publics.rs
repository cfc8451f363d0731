//! What is public is used by another room, and types have names of their own.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Path, Reach, Sources, Target};

/// An item by the module that defines it and its name.
type Name = (usize, String);

/// The items that a library shows to everybody and that no other crate uses: names them, or names
/// something whose signature has them. What a face re-exports, authors use.
pub(super) fn unused(sources: &Sources, library: &str, faces: &[&str]) -> Vec<String> {
    let top = sources.libraries[library];
    let signatures = signatures(sources, top);
    let mut used = named_elsewhere(sources, top);
    let faces = faces.iter().filter_map(|face| sources.libraries.get(*face));
    used.extend(faces.flat_map(|face| shown(sources, *face)));
    let mut next: Vec<Name> = used.iter().cloned().collect();
    while let Some(item) = next.pop() {
        let seen = signatures.get(&item).or_else(|| signatures.get(&macros(item.0)));
        let seen = seen.into_iter().flatten();
        next.extend(seen.filter(|item| used.insert((*item).clone())).cloned());
    }
    let shown = shown(sources, top);
    let unused = shown.difference(&used).filter(|(module, _)| sources.modules[*module].top == top);
    unused.map(|(module, name)| format!("{}: {name}", sources.modules[*module].file)).collect()
}

/// The types of one name in a crate, where more than one can be seen in all of it: name and files.
pub(super) fn namesakes(sources: &Sources, top: usize) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, module) in sources.of_crate(top) {
        let is_type = |what| ["struct", "enum", "trait", "type"].contains(&what);
        for item in module.items.iter().filter(|item| is_type(item.what)) {
            if item.visibility >= Reach::Crate {
                found.entry(&item.name).or_default().push(&module.file);
            }
        }
    }
    found.retain(|_, files| files.len() > 1);
    found.into_iter().map(|(name, files)| format!("{name}: {}", files.join(", "))).collect()
}

fn item(sources: &Sources, at: usize, path: &Path) -> Option<Name> {
    match sources.resolve(at, path)? {
        Target::Item(definer, name) => Some((definer, name)),
        Target::Module(_) => None,
    }
}

/// Everything that one can name through a crate, other crates' items too, but not other crates as
/// a whole.
fn shown(sources: &Sources, top: usize) -> BTreeSet<Name> {
    let mut shown = BTreeSet::new();
    let (mut seen, mut next) = (BTreeSet::new(), vec![top]);
    while let Some(at) = next.pop() {
        let module = &sources.modules[at];
        let is_crate = module.parent.is_none() && at != top;
        if is_crate || module.is_test || !seen.insert(at) {
            continue;
        }
        let is_public = |child: &usize| sources.modules[*child].visibility == Reach::Everybody;
        next.extend(module.children.values().copied().filter(is_public));
        let items = module.items.iter().filter(|item| item.visibility == Reach::Everybody);
        shown.extend(items.map(|item| (at, item.name.clone())));
        for import in module.imports.iter().filter(|i| i.visibility == Reach::Everybody) {
            match sources.resolve(at, &import.path) {
                Some(Target::Item(definer, name)) => _ = shown.insert((definer, name)),
                Some(Target::Module(module)) => next.push(module),
                None => {}
            }
        }
    }
    shown
}

/// The items of a crate that other crates name.
fn named_elsewhere(sources: &Sources, top: usize) -> BTreeSet<Name> {
    let others = sources.modules.iter().enumerate().filter(|(_, module)| module.top != top);
    others
        .flat_map(|(at, module)| module.paths().map(move |path| (at, path)))
        .filter_map(|(at, path)| item(sources, at, path))
        .filter(|(definer, _)| sources.modules[*definer].top == top)
        .collect()
}

/// Stands for what the macros of a module make, which nobody has read.
fn macros(module: usize) -> Name {
    (module, String::new())
}

/// For each item of a crate, the items in its signature.
fn signatures(sources: &Sources, top: usize) -> BTreeMap<Name, BTreeSet<Name>> {
    let mut signatures: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
    for (at, module) in sources.of_crate(top) {
        let own = module.items.iter().map(|item| (vec![item.name.clone()], &item.signature));
        let methods = module.methods.iter().map(|(of, signature)| (of.clone(), signature));
        for (of, signature) in own.chain(methods) {
            let Some(of) = item(sources, at, &of) else { continue };
            let seen = signature.iter().filter_map(|path| item(sources, at, path));
            signatures.entry(of).or_default().extend(seen);
        }
        let seen = module.macros.iter().filter_map(|path| item(sources, at, path));
        signatures.insert(macros(at), seen.collect());
    }
    signatures
}

#[cfg(test)]
mod tests {
    use super::super::source::planted;
    use super::*;

    fn check_unused(library: &[(&str, &str)], other: &str, expect: &[&str]) {
        let other = [("lib.rs", other)];
        let face = [("lib.rs", "pub use engine; pub use engine::face; pub use engine::Face;")];
        let sources = planted(&[("engine", library), ("other", &other), ("face", &face)]);
        assert_eq!(unused(&sources, "engine", &["face"]), expect);
    }

    #[test]
    fn a_function_that_nobody_names() {
        let library = [("lib.rs", "pub mod a;"), ("a.rs", "pub fn used() {} pub fn idle() {}")];
        check_unused(&library, "use engine::a; fn f() { a::used() }", &["engine/a.rs: idle"]);
    }

    #[test]
    fn a_re_export_that_only_its_own_crate_names() {
        let library = [
            ("lib.rs", "mod a; pub use a::{A as Alpha, B}; fn f() { B }"),
            ("a.rs", "pub struct A; pub struct B; pub struct Inner;"),
        ];
        check_unused(&library, "fn f() { engine::Alpha }", &["engine/a.rs: B"]);
    }

    #[test]
    fn what_a_signature_has_is_used() {
        let library = [(
            "lib.rs",
            "pub struct Engine { pub state: State, hidden: Secret } impl Engine { pub fn run(&self) -> \
             Result<(), Error> {} fn inner(&self) -> Secret {} } pub enum State { Up(Since) } pub \
             struct Since; pub struct Error; pub struct Secret;",
        )];
        check_unused(&library, "use engine::Engine;", &["engine/lib.rs: Secret"]);
    }

    #[test]
    fn what_a_face_shows_is_used() {
        let library = [
            ("lib.rs", "pub mod face; pub mod a; pub use a::Face; pub struct Other;"),
            ("face.rs", "pub fn f() {}"),
            ("a.rs", "pub struct Face; pub struct A;"),
        ];
        check_unused(&library, "", &["engine/lib.rs: Other", "engine/a.rs: A"]);
    }

    #[test]
    fn what_a_macro_makes_has_a_signature() {
        let made = "macro_rules! name { ($n:ident) => { pub struct $n; impl $n { pub fn new() -> Result<$n, \
                    Invalid> {} } } } name!(Cluster); pub struct Invalid; pub struct Idle;";
        check_unused(&[("lib.rs", made)], "use engine::Cluster;", &["engine/lib.rs: Idle"]);
    }

    #[test]
    fn kube_makes_a_type_of_a_spec() {
        let spec = "#[derive(CustomResource)] #[kube(kind = \"Post\", status = \"PostStatus\")] pub \
                    struct PostSpec; pub struct PostStatus;";
        check_unused(&[("lib.rs", spec)], "use engine::Post;", &[]);
        let all = ["engine/lib.rs: Post", "engine/lib.rs: PostSpec", "engine/lib.rs: PostStatus"];
        check_unused(&[("lib.rs", spec)], "", &all);
    }

    #[test]
    fn two_types_of_one_name() {
        let files = [
            ("lib.rs", "mod a; mod b; struct Own; pub struct Verdict;"),
            ("a.rs", "pub(crate) enum Verdict {} struct Own;"),
            ("b.rs", "pub(super) type Verdict = u8; pub fn Own() {}"),
        ];
        let sources = planted(&[("engine", &files)]);
        assert_eq!(namesakes(&sources, 0), ["Verdict: engine/lib.rs, engine/a.rs"]);
    }
}
