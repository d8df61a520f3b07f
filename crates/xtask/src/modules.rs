//! The modules of a crate as its sources declare them: the file of each, and the paths that it names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Ident, Item, ItemMod, Lit, Meta, UseTree};

/// A module; inline modules share the file of their parent.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its file, relative to the root of the repository.
    pub(crate) file: String,
    /// The module that declares it.
    pub(crate) parent: Option<usize>,
    /// Modules declared in it, by name.
    pub(crate) children: BTreeMap<String, usize>,
    /// Names that its `use` declarations import, and the path of each.
    pub(crate) imports: BTreeMap<String, Vec<String>>,
    /// Paths that it names, including those of its private `use` declarations: a name that is only re-exported is not
    /// used.
    pub(crate) paths: Vec<Vec<String>>,
}

/// The modules of one crate; the first is its root.
#[derive(Debug, Default)]
pub(crate) struct Modules(pub(crate) Vec<Module>);

impl Modules {
    /// Reads a crate from its root file.
    pub(crate) fn read(root: &Path, file: &str) -> anyhow::Result<Self> {
        let mut modules = Self::default();
        let folder = Path::new(file).parent().unwrap_or_else(|| Path::new(""));
        modules.read_file(root, file, folder, None)?;
        Ok(modules)
    }

    /// Reads a file; its modules without a `path` attribute are in `folder`.
    fn read_file(
        &mut self,
        root: &Path,
        file: &str,
        folder: &Path,
        parent: Option<usize>,
    ) -> anyhow::Result<usize> {
        let text = crate::repository::read(root, file)?;
        let parsed = syn::parse_file(&text).with_context(|| format!("{file} does not parse"))?;
        let module = self.add(file, parent);
        self.read_items(root, module, folder, &parsed.items)?;
        Ok(module)
    }

    fn add(&mut self, file: &str, parent: Option<usize>) -> usize {
        self.0.push(Module {
            file: file.to_owned(),
            parent,
            children: BTreeMap::new(),
            imports: BTreeMap::new(),
            paths: Vec::new(),
        });
        self.0.len() - 1
    }

    fn read_items(
        &mut self,
        root: &Path,
        module: usize,
        folder: &Path,
        items: &[Item],
    ) -> anyhow::Result<()> {
        for item in items {
            if let Item::Mod(declared) = item {
                let child = self.read_module(root, module, folder, declared)?;
                self.0[module]
                    .children
                    .insert(declared.ident.to_string(), child);
            } else {
                let mut names = Names::default();
                names.visit_item(item);
                self.0[module].imports.append(&mut names.imports);
                self.0[module].paths.append(&mut names.paths);
            }
        }
        Ok(())
    }

    fn read_module(
        &mut self,
        root: &Path,
        parent: usize,
        folder: &Path,
        declared: &ItemMod,
    ) -> anyhow::Result<usize> {
        let name = declared.ident.to_string();
        let file = self.0[parent].file.clone();
        if let Some((_, items)) = &declared.content {
            let module = self.add(&file, Some(parent));
            self.read_items(root, module, &folder.join(&name), items)?;
            return Ok(module);
        }
        if let Some(given) = path_attribute(&declared.attrs) {
            // Relative to a file, not to an inline module: no source here has that.
            let beside = Path::new(&file).parent().unwrap_or_else(|| Path::new(""));
            let path = normal(&beside.join(given));
            let folder = Path::new(&path).parent().map(Path::to_path_buf);
            return self.read_file(root, &path, &folder.unwrap_or_default(), Some(parent));
        }
        let (plain, inner) = (format!("{name}.rs"), folder.join(&name));
        let path = [folder.join(plain), inner.join("mod.rs")]
            .into_iter()
            .find(|path| root.join(path).is_file())
            .with_context(|| format!("{file} declares mod {name}, which has no file"))?;
        self.read_file(root, &normal(&path), &inner, Some(parent))
    }
}

/// A path without `..`, as text.
fn normal(path: &Path) -> String {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                normal.pop();
            }
            std::path::Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal.to_string_lossy().into_owned()
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(text),
                    ..
                }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        })
}

/// The names in an item.
#[derive(Default)]
struct Names {
    imports: BTreeMap<String, Vec<String>>,
    paths: Vec<Vec<String>>,
    /// Whether the current declaration re-exports its names.
    hands_on: bool,
}

impl Names {
    fn import(&mut self, prefix: &[String], tree: &UseTree) {
        let with = |ident: &Ident| [prefix, &[ident.to_string()]].concat();
        let mut bind = |name: String, path: Vec<String>| {
            if !self.hands_on {
                self.paths.push(path.clone());
            }
            self.imports.insert(name, path);
        };
        match tree {
            UseTree::Path(path) => self.import(&with(&path.ident), &path.tree),
            // `use a::b::{self}` is `use a::b`.
            UseTree::Name(name) if name.ident == "self" => {
                bind(prefix.last().cloned().unwrap_or_default(), prefix.to_vec());
            }
            UseTree::Name(name) => bind(name.ident.to_string(), with(&name.ident)),
            UseTree::Rename(rename) if rename.ident == "self" => {
                bind(rename.rename.to_string(), prefix.to_vec());
            }
            UseTree::Rename(rename) => bind(rename.rename.to_string(), with(&rename.ident)),
            UseTree::Glob(_) => self.paths.push([prefix, &["*".to_owned()]].concat()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(prefix, tree);
                }
            }
        }
    }

    /// Paths in the tokens of a macro call: identifiers, or several joined by `::`.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut done = |path: &mut Vec<String>| {
            let path = std::mem::take(path);
            if !path.is_empty() {
                self.paths.push(path);
            }
        };
        let mut groups = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        done(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    done(&mut path);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        groups.push(group.stream());
                    }
                }
            }
        }
        done(&mut path);
        for group in groups {
            self.tokens(group);
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.hands_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        self.paths
            .push(segments.map(|s| s.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(in a::b)` and `pub(super)` do not use what they name.
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Names {
        let mut names = Names::default();
        for item in &syn::parse_file(text).unwrap().items {
            names.visit_item(item);
        }
        names
    }

    #[test]
    fn what_a_use_declaration_brings_in() {
        let names = names("use crate::a::{self, b::C, d as e, f::*};");
        let of = |name: &str| names.imports.get(name).map(|path| path.join("::"));
        assert_eq!(of("a").as_deref(), Some("crate::a"));
        assert_eq!(of("C").as_deref(), Some("crate::a::b::C"));
        assert_eq!(of("e").as_deref(), Some("crate::a::d"));
        assert_eq!(of("d"), None);
        assert!(names.paths.iter().any(|p| p.join("::") == "crate::a::f::*"));
    }

    #[test]
    fn a_name_that_is_handed_on_is_used_only_if_code_names_it() {
        let paths = |text: &str| {
            names(text)
                .paths
                .iter()
                .map(|p| p.join("::"))
                .collect::<Vec<_>>()
        };
        assert_eq!(paths("pub use a::B;"), Vec::<String>::new());
        assert_eq!(paths("pub use a::B; struct C(B);"), ["B"]);
        assert_eq!(paths("use a::B;"), ["a::B"]);
    }

    #[test]
    fn paths_in_code_and_in_macros() {
        let names = names(
            "fn f(x: super::T) -> crate::U { vec![one::two(three::FOUR)]; self::g::<h::I>(); y }",
        );
        let paths: Vec<String> = names.paths.iter().map(|p| p.join("::")).collect();
        for path in [
            "super::T",
            "crate::U",
            "one::two",
            "three::FOUR",
            "self::g",
            "h::I",
        ] {
            assert!(paths.iter().any(|p| p == path), "{path}: {paths:?}");
        }
    }
}
