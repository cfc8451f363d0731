//! What one module's syntax says: what it defines, declares, imports and names.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Fields, ImplItem, Item as Syntax, Meta, UseTree, Visibility};

use super::facts;
use super::source::{Import, Item, Module, Path, Reach};

/// Puts into a module what an item of it says.
pub(super) fn read(module: &mut Module, item: &Syntax) {
    let mut reader = Reader::default();
    reader.visit_item(item);
    module.mentions.extend(reader.paths);
    module.imports.extend(reader.imports);
    module.names.extend(reader.names);
    module.facts.extend(facts::facts(item));
    module.items.extend(defined(item).into_iter().chain(made_by_kube(item)));
    if let Syntax::Macro(item) = item {
        module.macros.extend(signature(|reader| reader.visit_macro(&item.mac)));
    }
    if let Syntax::Impl(item) = item
        && let syn::Type::Path(ty) = &*item.self_ty
    {
        module.methods.push((segments(&ty.path), signature(|reader| reader.visit_face(item))));
    }
}

/// What an item of a module defines.
fn defined(item: &Syntax) -> Option<Item> {
    let (what, name, visibility, signature) = match item {
        Syntax::Const(it) => ("const", &it.ident, &it.vis, signature(|r| r.visit_type(&it.ty))),
        Syntax::Static(it) => ("static", &it.ident, &it.vis, signature(|r| r.visit_type(&it.ty))),
        Syntax::Fn(it) => ("fn", &it.sig.ident, &it.vis, signature(|r| r.visit_signature(&it.sig))),
        Syntax::Type(it) => ("type", &it.ident, &it.vis, signature(|r| r.visit_type(&it.ty))),
        Syntax::Trait(it) => ("trait", &it.ident, &it.vis, signature(|r| r.visit_item_trait(it))),
        Syntax::Enum(it) => ("enum", &it.ident, &it.vis, signature(|r| r.visit_item_enum(it))),
        Syntax::Struct(it) => {
            let face = signature(|r| {
                r.visit_generics(&it.generics);
                r.visit_public(&it.fields);
            });
            ("struct", &it.ident, &it.vis, face)
        }
        _ => return None,
    };
    Some(Item { what, name: name.to_string(), visibility: reach(visibility), signature })
}

/// The type that kube's derive makes of a spec.
fn made_by_kube(item: &Syntax) -> Option<Item> {
    let Syntax::Struct(spec) = item else { return None };
    let kube = || spec.attrs.iter().filter(|attribute| attribute.path().is_ident("kube"));
    let lists = kube().filter_map(|attribute| attribute.meta.require_list().ok());
    let text: String = lists.map(|list| list.tokens.to_string()).collect();
    let name = text.split("kind = \"").nth(1)?.split('"').next()?.to_owned();
    let mut signature = signature(|reader| kube().for_each(|it| reader.visit_attribute(it)));
    signature.insert(vec![spec.ident.to_string()]);
    Some(Item { what: "struct", name, visibility: reach(&spec.vis), signature })
}

/// Gathers what code imports, names and declares.
#[derive(Default)]
struct Reader {
    imports: Vec<Import>,
    paths: BTreeSet<Path>,
    names: Vec<(&'static str, String)>,
}

impl<'ast> Visit<'ast> for Reader {
    /// Modules are read by themselves.
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.names.push(("module", item.ident.to_string()));
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &mut Vec::new(), reach(&item.vis));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.paths.insert(segments(path));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.scan(call.tokens.clone(), false);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.scan(list.tokens.clone(), true);
        }
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.names.push(("function", signature.ident.to_string()));
        visit::visit_signature(self, signature);
    }

    fn visit_item(&mut self, item: &'ast Syntax) {
        let name = match item {
            Syntax::Struct(item) => Some(("type", &item.ident)),
            Syntax::Enum(item) => Some(("type", &item.ident)),
            Syntax::Type(item) => Some(("type", &item.ident)),
            Syntax::Trait(item) => Some(("trait", &item.ident)),
            Syntax::Const(item) => Some(("constant", &item.ident)),
            Syntax::Static(item) => Some(("static", &item.ident)),
            _ => None,
        };
        self.names.extend(name.map(|(what, name)| (what, name.to_string())));
        visit::visit_item(self, item);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.names.push(("variant", variant.ident.to_string()));
        visit::visit_variant(self, variant);
    }
}

impl Reader {
    fn import(&mut self, tree: &UseTree, prefix: &mut Path, visibility: Reach) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix, visibility);
                prefix.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix, visibility);
                }
            }
            UseTree::Glob(_) => {
                self.imports.push(Import { name: "*".to_owned(), path: prefix.clone(), visibility })
            }
            UseTree::Name(last) => self.import_one(&last.ident, &last.ident, prefix, visibility),
            UseTree::Rename(last) => self.import_one(&last.ident, &last.rename, prefix, visibility),
        }
    }

    fn import_one(&mut self, last: &syn::Ident, name: &syn::Ident, prefix: &Path, to: Reach) {
        let (last, name) = (last.to_string(), name.to_string());
        let mut path = prefix.clone();
        if last != "self" || path.is_empty() {
            path.push(last);
        }
        let is_self = name == "self";
        let name = if is_self { path.last().cloned().unwrap_or_default() } else { name };
        self.imports.push(Import { name, path, visibility: to });
    }

    /// Paths among tokens that nobody has parsed; `in_strings` too, as serde's attributes have them.
    fn scan(&mut self, tokens: TokenStream, in_strings: bool) {
        let mut path: Path = Vec::new();
        let (mut colons, mut after_dot) = (0, false);
        for token in tokens {
            let is_colon = matches!(&token, TokenTree::Punct(p) if p.as_char() == ':');
            match &token {
                TokenTree::Ident(ident) if !after_dot => {
                    if colons != 2 {
                        self.paths.insert(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                }
                TokenTree::Group(group) => self.scan(group.stream(), in_strings),
                TokenTree::Literal(text) if in_strings => {
                    let text = text.to_string();
                    if let Ok(found) = syn::parse_str::<syn::Path>(text.trim_matches('"')) {
                        self.visit_path(&found);
                    }
                }
                _ => {}
            }
            after_dot = matches!(&token, TokenTree::Punct(p) if p.as_char() == '.');
            colons = if is_colon { colons + 1 } else { 0 };
            if !is_colon && !matches!(token, TokenTree::Ident(_)) {
                self.paths.insert(std::mem::take(&mut path));
            }
        }
        self.paths.insert(path);
        self.paths.remove(&Vec::new());
    }

    fn visit_public(&mut self, fields: &Fields) {
        for field in fields.iter().filter(|field| reach(&field.vis) == Reach::Everybody) {
            self.visit_type(&field.ty);
        }
    }

    /// What users of an `impl` see: public methods, and the associated types of a trait.
    fn visit_face(&mut self, item: &syn::ItemImpl) {
        for item in &item.items {
            match item {
                ImplItem::Fn(method) if reach(&method.vis) == Reach::Everybody => {
                    self.visit_signature(&method.sig);
                }
                ImplItem::Type(associated) => self.visit_type(&associated.ty),
                _ => {}
            }
        }
    }
}

fn signature(visit: impl FnOnce(&mut Reader)) -> BTreeSet<Path> {
    let mut reader = Reader::default();
    visit(&mut reader);
    reader.paths
}

pub(super) fn reach(visibility: &Visibility) -> Reach {
    match visibility {
        Visibility::Public(_) => Reach::Everybody,
        Visibility::Restricted(to) if to.path.is_ident("crate") => Reach::Crate,
        Visibility::Restricted(to) if to.path.is_ident("self") => Reach::Module,
        Visibility::Restricted(_) => Reach::Some,
        Visibility::Inherited => Reach::Module,
    }
}

fn segments(path: &syn::Path) -> Path {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// Is something compiled for tests alone?
pub(super) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|flag| flag.is_ident("test"))
    })
}

/// The file that `#[path = "..."]` names.
pub(super) fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(file), .. }) = &meta.value else {
        return None;
    };
    meta.path.is_ident("path").then(|| file.value())
}
