//! docs/configuration.md has a row for each flag of each command, with its environment variable and its default; and each
//! command that a document shows exists, with the flags that it is shown with. The flags are read from the sources: the
//! fields with an `arg` attribute of the structs and the subcommands that clap derives a parser for.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use syn::{Attribute, Expr, ExprLit, Field, Fields, Item, Lit, Meta, Type};

use crate::markdown;
use crate::repository::{Faults, files, read};

/// The programs, and the module with the flags of each; its submodules belong to it.
const PROGRAMS: [(&str, &str); 1] = [("harvester-load-balancer", "crates/operator/src/args")];
/// The document with the tables. The heading above a table names its command: `program` or `program subcommand`.
const DOCUMENT: &str = "docs/configuration.md";
/// Flags that clap adds to every program.
const ADDED: [&str; 2] = ["help", "version"];

/// A flag.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Flag {
    /// Its environment variable.
    variable: Option<String>,
    /// Its default, as on the command line.
    default: Option<String>,
    /// Whether the subcommands have it too.
    is_global: bool,
}

/// The flags of one command by name, without dashes.
type Flags = BTreeMap<String, Flag>;

/// The flags by command: `program` or `program subcommand`.
type Commands = BTreeMap<String, Flags>;

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut commands = Commands::new();
    for (program, module) in PROGRAMS {
        let mut sources = vec![read(root, &format!("{module}.rs"))?];
        if root.join(module).is_dir() {
            for path in files(root, module, &[".rs"])? {
                sources.push(read(root, &path)?);
            }
        }
        commands.extend(of_sources(program, &sources).with_context(|| module.to_owned())?);
    }
    let mut faults = compare(&commands, &of_document(&read(root, DOCUMENT)?));
    for path in files(root, ".", &[".md"])? {
        for code in markdown::code(&read(root, &path)?) {
            if let Some(fault) = unknown(&commands, &code) {
                faults.push(format!("{path} shows `{code}`: {fault}"));
            }
        }
    }
    Ok(faults)
}

/// Compares the flags of the sources with the rows of the document.
fn compare(commands: &Commands, documented: &BTreeMap<(String, String), Flag>) -> Faults {
    let mut faults = Vec::new();
    for (command, flags) in commands {
        for (name, flag) in flags {
            match documented.get(&(command.clone(), name.clone())) {
                None => faults.push(format!(
                    "{DOCUMENT} has no row for --{name} below the heading `{command}`"
                )),
                Some(row) if (&row.variable, &row.default) != (&flag.variable, &flag.default) => {
                    faults.push(format!(
                        "{DOCUMENT}: --{name} of `{command}` has the variable {:?} and the default {:?}",
                        flag.variable.as_deref().unwrap_or_default(),
                        flag.default.as_deref().unwrap_or_default()
                    ));
                }
                Some(_) => {}
            }
        }
    }
    for (command, name) in documented.keys() {
        let known = commands.get(command);
        if known.is_none_or(|flags| !flags.contains_key(name)) {
            faults.push(format!(
                "{DOCUMENT} has a row for --{name} of `{command}`, which does not exist"
            ));
        }
    }
    faults
}

/// The rows of the document: flag, variable, default, then what people read.
fn of_document(text: &str) -> BTreeMap<(String, String), Flag> {
    let mut found = BTreeMap::new();
    let only = |cell: Option<&String>| -> Option<String> {
        let text = markdown::spans(cell?).first().copied()?;
        Some(text.to_owned())
    };
    for row in markdown::rows(text) {
        let Some(command) = markdown::spans(&row.section).first().copied() else {
            continue;
        };
        let names = row.subjects();
        let Some(name) = names.iter().find_map(|name| name.strip_prefix("--")) else {
            continue;
        };
        let flag = Flag {
            variable: only(row.cells.get(1)),
            default: only(row.cells.get(2)),
            is_global: false,
        };
        found.insert((command.to_owned(), name.to_owned()), flag);
    }
    found
}

/// What is wrong with a piece of code if it runs one of the programs.
fn unknown(commands: &Commands, code: &str) -> Option<String> {
    let (program, words) = command_line(commands, code)?;
    let mut words = words.iter().peekable();
    let mut command = program.clone();
    if let Some(word) = words.peek().filter(|word| is_name(word)) {
        command = format!("{program} {word}");
        if !commands.contains_key(&command) {
            return Some(format!("there is no subcommand {word}"));
        }
        words.next();
    }
    let of = |command: &str| commands.get(command).into_iter().flatten();
    for flag in words.filter_map(|word| word.strip_prefix("--")) {
        let name = flag.split(['=', ']']).next().unwrap_or_default();
        let is_known = of(&command).any(|(known, _)| known == name)
            || of(&program).any(|(known, flag)| known == name && flag.is_global)
            || ADDED.contains(&name);
        if !is_known && !name.is_empty() {
            return Some(format!("`{command}` has no flag --{name}"));
        }
    }
    None
}

/// The program that a line runs and the words after it, up to the end of the command: the first word apart from
/// variables, or the one after `--` as in `kubectl exec`. A line that begins with a subcommand and has a flag of ours
/// is short for it.
fn command_line(commands: &Commands, code: &str) -> Option<(String, Vec<String>)> {
    let words: Vec<&str> = code
        .split_whitespace()
        .map(|word| word.trim_matches(['[', ']', '\'', '"']))
        .collect();
    let programs = || PROGRAMS.iter().map(|(name, _)| *name);
    let name_of = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let first = words.iter().position(|word| !word.contains('='))?;
    let at = words.iter().enumerate().position(|(at, word)| {
        let begins = at == first || (at > 0 && words[at - 1] == "--");
        begins && programs().any(|program| program == name_of(word))
    });
    let rest = |from: usize| {
        let ends = |word: &&&str| !matches!(**word, "|" | "||" | "&&" | ";" | "\\" | "#" | ">");
        let rest = words[from..].iter().take_while(ends);
        rest.map(|word| (*word).to_owned()).collect()
    };
    if let Some(at) = at {
        return Some((name_of(words[at]), rest(at + 1)));
    }
    let short = programs().find(|program| {
        words.len() > 1
            && words[1].starts_with("--")
            && commands.contains_key(&format!("{program} {}", words[0]))
    })?;
    Some((short.to_owned(), rest(0)))
}

/// Whether a word can be a subcommand.
fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
        && !word.starts_with('-')
}

/// The commands of a program, from the sources of its arguments.
fn of_sources(program: &str, sources: &[String]) -> anyhow::Result<Commands> {
    let mut items = Vec::new();
    for source in sources {
        items.extend(syn::parse_file(source)?.items);
    }
    let source = Source::new(&items);
    let (_, fields) = source
        .structs
        .iter()
        .find(|(_, fields)| fields.iter().any(|field| has(field, "subcommand")))
        .or_else(|| source.structs.iter().find(|(name, _)| **name == "Args"))
        .context("no struct with arguments")?;
    let mut commands = Commands::from([(program.to_owned(), source.flags(fields)?)]);
    let Some(chosen) = fields.iter().find(|field| has(field, "subcommand")) else {
        return Ok(commands);
    };
    let name = last_type(&chosen.ty).context("the type of the subcommand")?;
    let variants = source.enums.get(&name).context("no subcommands")?;
    for (variant, fields) in variants {
        let flags = match fields {
            Fields::Unit => Flags::new(),
            Fields::Named(named) => source.flags(&named.named.iter().collect::<Vec<&Field>>())?,
            Fields::Unnamed(types) => {
                let field = types.unnamed.first().context("no type")?;
                source.of_type(&field.ty)?
            }
        };
        commands.insert(format!("{program} {}", kebab(variant)), flags);
    }
    Ok(commands)
}

/// The items of a program's sources by name.
struct Source<'a> {
    structs: BTreeMap<String, Vec<&'a Field>>,
    enums: BTreeMap<String, Vec<(String, &'a Fields)>>,
    constants: BTreeMap<String, &'a Expr>,
}

impl<'a> Source<'a> {
    fn new(items: &'a [Item]) -> Self {
        let mut source = Self {
            structs: BTreeMap::new(),
            enums: BTreeMap::new(),
            constants: BTreeMap::new(),
        };
        for item in items {
            match item {
                Item::Struct(item) => {
                    let fields = item.fields.iter().collect();
                    source.structs.insert(item.ident.to_string(), fields);
                }
                Item::Enum(item) => {
                    let variants = item.variants.iter();
                    let variants = variants.map(|v| (v.ident.to_string(), &v.fields));
                    source
                        .enums
                        .insert(item.ident.to_string(), variants.collect());
                }
                Item::Const(item) => {
                    source.constants.insert(item.ident.to_string(), &item.expr);
                }
                _ => {}
            }
        }
        source
    }

    /// The flags of a type of these sources.
    fn of_type(&self, of: &Type) -> anyhow::Result<Flags> {
        let name = last_type(of).context("a type without a name")?;
        let fields = self.structs.get(&name);
        self.flags(fields.with_context(|| format!("{name} is in another source"))?)
    }

    /// The flags among the fields, without those that are hidden.
    fn flags(&self, fields: &[&Field]) -> anyhow::Result<Flags> {
        let mut flags = Flags::new();
        for field in fields {
            if has(field, "flatten") {
                flags.append(&mut self.of_type(&field.ty)?);
                continue;
            }
            let name = field.ident.as_ref().context("no name")?.to_string();
            let Some(attribute) = attribute(field, "arg") else {
                continue;
            };
            let words = words(attribute).with_context(|| format!("the flag {name}"))?;
            if words.contains_key("hide") || !words.contains_key("long") {
                continue;
            }
            let long = self.text(&words, "long")?;
            let default = match self.text(&words, "default_value")? {
                None => self.text(&words, "default_value_t")?,
                given => given,
            };
            let flag = Flag {
                variable: self.text(&words, "env")?,
                default,
                is_global: words.contains_key("global"),
            };
            flags.insert(long.unwrap_or_else(|| kebab(&name)), flag);
        }
        Ok(flags)
    }

    /// The value of a word of an attribute, if it has one.
    fn text(
        &self,
        words: &BTreeMap<String, Option<Expr>>,
        word: &str,
    ) -> anyhow::Result<Option<String>> {
        let Some(Some(value)) = words.get(word) else {
            return Ok(None);
        };
        self.value(value).map(Some)
    }

    /// A literal, a constant of these sources, or a value of an enum as clap writes it.
    fn value(&self, value: &Expr) -> anyhow::Result<String> {
        match value {
            Expr::Lit(ExprLit { lit, .. }) => match lit {
                Lit::Str(text) => Ok(text.value()),
                Lit::Int(number) => Ok(number.base10_digits().to_owned()),
                Lit::Bool(value) => Ok(value.value.to_string()),
                _ => bail!("a literal of this kind is not understood"),
            },
            Expr::Path(path) => {
                let last = path.path.segments.last().context("an empty path")?;
                let name = last.ident.to_string();
                match self.constants.get(&name) {
                    Some(constant) => self.value(constant),
                    None => Ok(kebab(&name)),
                }
            }
            _ => bail!("a value of this kind is not understood"),
        }
    }
}

/// The attribute of this name.
fn attribute<'a>(field: &'a Field, name: &str) -> Option<&'a Attribute> {
    field.attrs.iter().find(|it| it.path().is_ident(name))
}

/// Whether the attribute `command` of a field has this word.
fn has(field: &Field, word: &str) -> bool {
    attribute(field, "command")
        .and_then(|it| words(it).ok())
        .is_some_and(|words| words.contains_key(word))
}

/// The words of an attribute, each with its value if it has one. An attribute without a list has none.
fn words(attribute: &Attribute) -> anyhow::Result<BTreeMap<String, Option<Expr>>> {
    let mut words = BTreeMap::new();
    if !matches!(attribute.meta, Meta::List(_)) {
        return Ok(words);
    }
    attribute.parse_nested_meta(|meta| {
        let name = meta.path.segments.last();
        let name = name.map(|s| s.ident.to_string()).unwrap_or_default();
        let value = if meta.input.peek(syn::Token![=]) {
            Some(meta.value()?.parse()?)
        } else {
            None
        };
        words.insert(name, value);
        Ok(())
    })?;
    Ok(words)
}

/// The name of a type, or of the type inside of an `Option`.
fn last_type(of: &Type) -> Option<String> {
    let Type::Path(path) = of else {
        return None;
    };
    let last = path.path.segments.last()?;
    if let syn::PathArguments::AngleBracketed(inside) = &last.arguments
        && let Some(syn::GenericArgument::Type(inner)) = inside.args.first()
    {
        return last_type(inner);
    }
    Some(last.ident.to_string())
}

/// A name of a field or of a value as clap writes it.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(if c == '_' {
            '-'
        } else {
            c.to_ascii_lowercase()
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        const LEAST: usize = 16;
        pub struct Args {
            #[command(subcommand)]
            pub command: Option<Command>,
            #[arg(long, env = "LOGLEVEL", default_value = "info", global = true)]
            pub loglevel: String,
            #[arg(long, env = "WORKERS", default_value_t = LEAST)]
            pub workers: usize,
            #[arg(long, value_enum, default_value_t = Mode::KubeVip)]
            pub dhcp_mode: Mode,
            #[cfg(debug_assertions)]
            #[arg(long, hide = true, value_parser = Timings::parse)]
            pub timings: Option<Timings>,
        }
        pub enum Command {
            Check(other::CheckArgs),
            Crd,
            Export { #[arg(long)] allow_incomplete: bool },
        }
    "#;
    const OTHER: &str = r"
        //! A submodule.
        pub struct CheckArgs {
            #[command(flatten)]
            pub common: Common,
        }
        pub struct Common {
            #[arg(long, short, default_value_t = Output::Text)]
            pub output: Output,
        }
    ";
    const PAGE: &str = "## `harvester-load-balancer`\n| flag | variable | default | |\n|---|---|---|---|\n\
        | `--loglevel` | `LOGLEVEL` | `info` | |\n| `--workers` | `WORKERS` | `16` | |\n\
        | `--dhcp-mode` | | `kube-vip` | |\n| | `KUBECONFIG` | | |\n\
        ## `harvester-load-balancer check`\n| `-o`, `--output` | | `text` | |\n\
        ## `harvester-load-balancer export`\n| `--allow-incomplete` | | | |\n";

    fn commands() -> Commands {
        let sources = [SOURCE, OTHER].map(str::to_owned);
        of_sources("harvester-load-balancer", &sources).unwrap()
    }

    #[test]
    fn the_page_matches_the_source() {
        let commands = commands();
        let names: Vec<&str> = commands.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "harvester-load-balancer",
                "harvester-load-balancer check",
                "harvester-load-balancer crd",
                "harvester-load-balancer export"
            ]
        );
        assert_eq!(compare(&commands, &of_document(PAGE)), Faults::new());
    }

    #[test]
    fn differences_between_page_and_source() {
        for (text, other) in [
            ("`info`", "`debug`"),
            ("`WORKERS`", "`THREADS`"),
            ("`--dhcp-mode`", "`--mode`"),
            ("| `--allow-incomplete` | | | |\n", ""),
            ("balancer check", "balancer chek"),
        ] {
            assert!(PAGE.contains(text), "{text}");
            let page = PAGE.replace(text, other);
            assert_ne!(
                compare(&commands(), &of_document(&page)),
                Faults::new(),
                "{text}"
            );
        }
    }

    #[test]
    fn commands_in_code() {
        let commands = commands();
        for fine in [
            "harvester-load-balancer",
            "harvester-load-balancer check --output json --loglevel=debug",
            "KUBECONFIG=/a/b target/release/harvester-load-balancer --workers 20 | less --no-such",
            "harvester-load-balancer check # --comment",
            "export [--allow-incomplete]",
            "kubectl exec deploy/x -- harvester-load-balancer export --allow-incomplete",
            "kubectl get lease harvester-load-balancer --no-such",
            "cargo test -p harvester-load-balancer --test schedules",
            "harvester-load-balancer.replicaCount",
            "--no-such",
            "check --help",
        ] {
            assert_eq!(unknown(&commands, fine), None, "{fine}");
        }
        for wrong in [
            "harvester-load-balancer chek",
            "harvester-load-balancer --output json",
            "harvester-load-balancer check --workers 20",
            "export --allow-nothing",
            "kubectl exec deploy/x -- harvester-load-balancer explain",
        ] {
            assert!(unknown(&commands, wrong).is_some(), "{wrong}");
        }
    }
}
