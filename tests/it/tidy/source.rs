//! What the sources say, read with `syn`: the modules of every package, what they define, import
//! and name, and where a path leads, through re-exports and into the other packages of ours.

use std::collections::{BTreeMap, BTreeSet};

use syn::Item as Syntax;

use super::reader;

/// A path as it is written, in segments.
pub(super) type Path = Vec<String>;

/// Everything that was read.
#[derive(Default)]
pub(super) struct Sources {
    pub modules: Vec<Module>,
    /// The modules at the top of libraries, by the names that others import them under.
    pub libraries: BTreeMap<String, usize>,
}

/// One module: a file, or a part of one.
pub(super) struct Module {
    /// The folder of its package.
    pub package: String,
    /// The module at the top of its crate; several for a package with binaries and tests.
    pub top: usize,
    pub parent: Option<usize>,
    pub file: String,
    /// How many lines the file has, without the tests at its end; none for a part of a file.
    pub lines: usize,
    /// Is it compiled for the tests of its crate alone?
    pub is_test: bool,
    pub visibility: Reach,
    pub children: BTreeMap<String, usize>,
    pub items: Vec<Item>,
    pub imports: Vec<Import>,
    /// The paths in its code.
    pub mentions: BTreeSet<Path>,
    /// For a type, what the public methods of an `impl` and its associated types mention.
    pub methods: Vec<(Path, BTreeSet<Path>)>,
    /// What users of its items see: the path of an item, and a line.
    pub facts: Vec<(Path, String)>,
    /// The paths in its macros and in what it gives them.
    pub macros: BTreeSet<Path>,
    /// The types, functions and modules that it declares, methods among them: what and its name.
    pub names: Vec<(&'static str, String)>,
}

/// How far a name can be seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    Module,
    /// Some modules above: `pub(super)`, `pub(in ...)`.
    Some,
    Crate,
    Everybody,
}

pub(super) struct Item {
    pub what: &'static str,
    pub name: String,
    pub visibility: Reach,
    /// The paths in the part that users of the item see.
    pub signature: BTreeSet<Path>,
}

/// One name that a `use` brings in; `*` for all.
pub(super) struct Import {
    pub name: String,
    pub path: Path,
    pub visibility: Reach,
}

/// Where a path leads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Module(usize),
    /// An item, by the module that defines it and its name.
    Item(usize, String),
}

/// The imports that were followed, so that none is twice: by module and number.
type Seen = BTreeSet<(usize, usize)>;

/// Where a crate begins.
pub(super) struct Top {
    /// The folder of its package.
    pub package: String,
    /// The names under which others import it; none unless it is a library.
    pub library: Vec<String>,
    pub file: String,
}

impl Sources {
    /// Reads crates from their tops; `read` gives a file's text, if there is one.
    pub(super) fn read(tops: &[Top], read: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut sources = Self::default();
        for top in tops {
            let at = sources.modules.len();
            let place = Module::new(&top.package, at, None, &top.file, Reach::Everybody);
            sources.add_file(place, folder_of(&top.file), read);
            sources.libraries.extend(top.library.iter().map(|name| (name.clone(), at)));
        }
        sources
    }

    fn add_file(&mut self, mut place: Module, folder: &str, read: &dyn Fn(&str) -> Option<String>) {
        let text = read(&place.file).unwrap_or_else(|| panic!("no file {}", place.file));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", place.file));
        place.lines =
            text.split("\n#[cfg(test)]\nmod tests {").next().map_or(0, |t| t.lines().count());
        self.add(place, folder, &parsed.items, read);
    }

    /// Adds a module and the modules in it, whose files lie in `folder`.
    fn add(
        &mut self,
        mut place: Module,
        folder: &str,
        items: &[Syntax],
        read: &dyn Fn(&str) -> Option<String>,
    ) {
        for item in items {
            reader::read(&mut place, item);
        }
        let (at, top, package) = (self.modules.len(), place.top, place.package.clone());
        let file = place.file.clone();
        self.modules.push(place);
        for module in items.iter().filter_map(|item| match item {
            Syntax::Mod(module) => Some(module),
            _ => None,
        }) {
            let name = module.ident.to_string();
            let inner = format!("{folder}/{name}");
            let child = self.modules.len();
            let place = |file: &str| {
                let reach = reader::reach(&module.vis);
                let mut place = Module::new(&package, top, Some(at), file, reach);
                place.is_test = self.modules[at].is_test || reader::is_test(&module.attrs);
                place
            };
            if let Some((_, items)) = &module.content {
                self.add(place(&file), &inner, items, read);
            } else if let Some(named) = module.attrs.iter().find_map(reader::path_attribute) {
                let found = format!("{}/{named}", folder_of(&file));
                self.add_file(place(&found), folder_of(&found), read);
            } else {
                let names = [format!("{inner}.rs"), format!("{inner}/mod.rs")];
                let found = names.iter().find(|name| read(name).is_some());
                let found = found.unwrap_or_else(|| panic!("{file}: no file for mod {name}"));
                self.add_file(place(found), &inner, read);
            }
            self.modules[at].children.insert(name, child);
        }
    }

    /// Is `below` a part of the module `above`, or of a part of it?
    pub(super) fn is_part(&self, below: usize, above: usize) -> bool {
        let mut next = self.modules[below].parent;
        while let Some(at) = next {
            if at == above {
                return true;
            }
            next = self.modules[at].parent;
        }
        false
    }

    /// The modules of a crate, tests aside.
    pub(super) fn of_crate(&self, top: usize) -> impl Iterator<Item = (usize, &Module)> {
        let modules = self.modules.iter().enumerate();
        modules.filter(move |(_, module)| module.top == top && !module.is_test)
    }

    /// The module that is the whole file which a module is or is in.
    pub(super) fn file_module(&self, module: usize) -> usize {
        let parent = self.modules[module].parent;
        match parent.filter(|parent| self.modules[*parent].file == self.modules[module].file) {
            Some(parent) => self.file_module(parent),
            None => module,
        }
    }

    /// Where a path that a module writes leads, if to something of ours.
    pub(super) fn resolve(&self, module: usize, path: &[String]) -> Option<Target> {
        self.follow(module, path, &mut BTreeSet::new())
    }

    fn follow(&self, from: usize, path: &[String], seen: &mut Seen) -> Option<Target> {
        let (mut at, mut rest) = (from, path);
        while let Some((first, others)) = rest.split_first() {
            at = match first.as_str() {
                "crate" => self.modules[at].top,
                "self" => at,
                "super" => self.modules[at].parent?,
                _ => break,
            };
            rest = others;
        }
        if rest.is_empty() {
            return Some(Target::Module(at));
        }
        let found = self.look_in(at, rest, seen);
        let is_bare = rest.len() == path.len();
        if found.is_some() || !is_bare {
            // What is not written anywhere in a module of ours, a macro has made there.
            return found.or_else(|| Some(Target::Item(at, rest[0].clone())));
        }
        let library = *self.libraries.get(&rest[0])?;
        self.enter(library, &rest[1..], seen)
    }

    /// What the rest of a path leads to that has led to a module.
    fn enter(&self, at: usize, rest: &[String], seen: &mut Seen) -> Option<Target> {
        let Some(name) = rest.first() else { return Some(Target::Module(at)) };
        self.look_in(at, rest, seen).or_else(|| Some(Target::Item(at, name.clone())))
    }

    fn look_in(&self, at: usize, rest: &[String], seen: &mut Seen) -> Option<Target> {
        let (name, others) = rest.split_first()?;
        let module = &self.modules[at];
        let child = module.children.get(name).copied();
        if let (Some(child), false) = (child, others.is_empty()) {
            return self.enter(child, others, seen);
        }
        if module.items.iter().any(|item| item.name == *name) {
            return Some(Target::Item(at, name.clone()));
        }
        for (number, import) in module.imports.iter().enumerate() {
            if ![name, "*"].contains(&import.name.as_str()) || !seen.insert((at, number)) {
                continue;
            }
            let is_all = import.name == "*";
            let found = if !is_all {
                self.follow(at, &[import.path.as_slice(), others].concat(), seen)
            } else if let Some(Target::Module(all)) = self.follow(at, &import.path, seen) {
                self.look_in(all, rest, seen)
            } else {
                None
            };
            if found.is_some() {
                return found;
            }
        }
        child.map(Target::Module)
    }
}

impl Module {
    fn new(package: &str, top: usize, parent: Option<usize>, file: &str, reach: Reach) -> Self {
        Self {
            package: package.to_owned(),
            top,
            parent,
            file: file.to_owned(),
            lines: 0,
            is_test: false,
            visibility: reach,
            children: BTreeMap::new(),
            items: Vec::new(),
            imports: Vec::new(),
            mentions: BTreeSet::new(),
            methods: Vec::new(),
            facts: Vec::new(),
            macros: BTreeSet::new(),
            names: Vec::new(),
        }
    }

    /// All paths that the module writes.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.imports.iter().map(|import| &import.path).chain(&self.mentions)
    }
}

fn folder_of(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Crates in memory: the name of each and its files.
#[cfg(test)]
pub(super) fn planted(crates: &[(&str, &[(&str, &str)])]) -> Sources {
    let files: BTreeMap<String, &str> = crates
        .iter()
        .flat_map(|(name, files)| {
            files.iter().map(move |(file, text)| (format!("{name}/{file}"), *text))
        })
        .collect();
    let tops = crates.iter().map(|(name, _)| Top {
        package: (*name).to_owned(),
        library: vec![(*name).to_owned()],
        file: format!("{name}/lib.rs"),
    });
    Sources::read(&tops.collect::<Vec<_>>(), &|file| files.get(file).map(|text| (*text).to_owned()))
}
