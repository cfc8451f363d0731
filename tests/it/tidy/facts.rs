//! What users of an item see, one fact a line: its kind and generics, its public fields, variants,
//! methods and traits.

use proc_macro2::{Group, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Fields, ImplItem, Item as Syntax, Meta, TraitItem};

use super::reader::reach;
use super::source::{Path, Reach};

/// The facts of an item of a module, each with the path of the item that it describes.
pub(super) fn facts(item: &Syntax) -> Vec<(Path, String)> {
    let name = |name: &syn::Ident| vec![name.to_string()];
    match item {
        Syntax::Const(it) => {
            let (ident, ty) = (&it.ident, &it.ty);
            vec![(name(ident), text(quote!(const #ident: #ty)))]
        }
        Syntax::Fn(it) => vec![(name(&it.sig.ident), text(it.sig.to_token_stream()))],
        Syntax::Type(it) => {
            let (ident, generics, ty) = (&it.ident, &it.generics, &it.ty);
            vec![(name(ident), text(quote!(type #ident #generics = #ty)))]
        }
        Syntax::Trait(it) => {
            let (ident, generics, above) = (&it.ident, &it.generics, &it.supertraits);
            let items = it.items.iter().filter_map(|item| match item {
                TraitItem::Fn(method) => Some(method.sig.to_token_stream()),
                TraitItem::Type(ty) => Some(ty.to_token_stream()),
                TraitItem::Const(it) => Some(it.to_token_stream()),
                _ => None,
            });
            let all = std::iter::once(quote!(trait #ident #generics: #above)).chain(items);
            all.map(|fact| (name(ident), text(fact))).collect()
        }
        Syntax::Enum(it) => {
            let (ident, generics) = (&it.ident, &it.generics);
            let variants = it.variants.iter().map(|variant| {
                let (name, fields) = (&variant.ident, &variant.fields);
                quote!(#name #fields)
            });
            let all = std::iter::once(quote!(enum #ident #generics)).chain(variants);
            let facts = all.chain(markers(&it.attrs));
            facts.map(|fact| (name(ident), text(fact))).collect()
        }
        Syntax::Struct(it) => {
            let (ident, generics) = (&it.ident, &it.generics);
            let whole = std::iter::once(quote!(struct #ident #generics));
            let facts = whole.chain(public(&it.fields)).chain(markers(&it.attrs));
            facts.map(|fact| (name(ident), text(fact))).collect()
        }
        Syntax::Impl(it) => {
            let syn::Type::Path(ty) = &*it.self_ty else { return Vec::new() };
            let of: Path = ty.path.segments.iter().map(|part| part.ident.to_string()).collect();
            let (generics, own) = (&it.generics, &it.self_ty);
            if let Some((implemented, _)) = &it.trait_ {
                return vec![(of, text(quote!(impl #generics #implemented for #own)))];
            }
            let methods = it.items.iter().filter_map(|item| match item {
                ImplItem::Fn(it) if reach(&it.vis) == Reach::Everybody => {
                    Some(it.sig.to_token_stream())
                }
                ImplItem::Const(it) if reach(&it.vis) == Reach::Everybody => {
                    let (ident, ty) = (&it.ident, &it.ty);
                    Some(quote!(const #ident: #ty))
                }
                _ => None,
            });
            methods.map(|fact| (of.clone(), text(fact))).collect()
        }
        _ => Vec::new(),
    }
}

/// The public fields; that there are others, which keeps users from writing a literal.
fn public(fields: &Fields) -> impl Iterator<Item = TokenStream> {
    let is_public = |field: &&syn::Field| reach(&field.vis) == Reach::Everybody;
    let is_closed = fields.iter().any(|field| !is_public(&field));
    let shown = fields.iter().enumerate().filter(move |(_, field)| is_public(field));
    let shown = shown.map(|(number, field)| {
        let ty = &field.ty;
        match &field.ident {
            Some(ident) => quote!(#ident: #ty),
            None => {
                let number = syn::Index::from(number);
                quote!(#number: #ty)
            }
        }
    });
    let open = (!is_closed).then(|| quote!(every field is public));
    shown.chain(open)
}

/// The derived traits, and whether users must expect more fields or variants.
fn markers(attributes: &[syn::Attribute]) -> impl Iterator<Item = TokenStream> {
    attributes.iter().flat_map(|attribute| {
        let path = attribute.path();
        match &attribute.meta {
            Meta::List(list) if path.is_ident("derive") => {
                let traits = list.parse_args_with(
                    syn::punctuated::Punctuated::<syn::Path, syn::Token![,]>::parse_terminated,
                );
                let traits = traits.into_iter().flatten();
                traits.map(|derived| quote!(derive #derived)).collect()
            }
            _ if path.is_ident("non_exhaustive") => vec![quote!(non_exhaustive)],
            _ => Vec::new(),
        }
    })
}

/// Tokens as people write them, without attributes.
fn text(tokens: TokenStream) -> String {
    let text = without_attributes(tokens).to_string();
    let tight = [
        (" :: ", "::"),
        (":: ", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        ("& ", "&"),
        (" :", ":"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" ;", ";"),
        ("' ", "'"),
        ("->", " ->"),
    ];
    let text = tight.iter().fold(text, |text, (from, to)| text.replace(from, to));
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace(",)", ")")
}

fn without_attributes(tokens: TokenStream) -> TokenStream {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(hash) if hash.as_char() == '#' => {
                tokens.next_if(|next| matches!(next, TokenTree::Group(_)));
            }
            TokenTree::Group(group) => {
                let inner = without_attributes(group.stream());
                kept.push(Group::new(group.delimiter(), inner).into());
            }
            other => kept.push(other),
        }
    }
    kept.into_iter().collect()
}
