//! The commands of kubectl and helm that the documents show, for tests that run them.
//!
//! A command is a line of a block that begins with ```` ```sh ````, or a code span of at least two words after the program that
//! does not end in the middle (`kubectl apply -f`). Blocks without a language are not commands for this machine. A block
//! that no test can run follows a line `<!-- not run: REASON -->`.

use std::path::Path;

use anyhow::{Context, ensure};

use crate::world::repository;

/// Languages of blocks with commands.
const SHELL: [&str; 4] = ["sh", "bash", "shell", "console"];
/// The mark before a block that is not run.
const NOT_RUN: &str = "<!-- not run:";

/// A command of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The document, relative to the repository.
    pub document: String,
    /// Its line, from 1.
    pub line: usize,
    /// The command, with what follows it in the line.
    pub text: String,
}

/// The kubectl commands of README.md, then of all other documents by name.
pub fn kubectl_commands() -> anyhow::Result<Vec<Command>> {
    commands("kubectl")
}

/// The helm commands of README.md, then of all other documents by name.
pub fn helm_commands() -> anyhow::Result<Vec<Command>> {
    commands("helm")
}

/// The commands of a program in the documents of the repository's root, of docs/ and of charts/.
fn commands(program: &str) -> anyhow::Result<Vec<Command>> {
    let root = repository();
    let mut documents = Vec::new();
    collect(&root, &root, false, &mut documents)?;
    for folder in ["docs", "charts"] {
        collect(&root, &root.join(folder), true, &mut documents)?;
    }
    // The first load balancer, which the other documents speak of.
    documents.sort_by_key(|path| (path != "README.md", path.clone()));
    let mut commands = Vec::new();
    for document in documents {
        let text = std::fs::read_to_string(root.join(&document))?;
        let found = of_document(&text, program).with_context(|| document.clone())?;
        commands.extend(found.into_iter().map(|(line, text)| Command {
            document: document.clone(),
            line,
            text,
        }));
    }
    Ok(commands)
}

/// Adds the documents of a folder.
fn collect(
    root: &Path,
    folder: &Path,
    is_deep: bool,
    documents: &mut Vec<String>,
) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && is_deep {
            collect(root, &path, is_deep, documents)?;
        } else if path.extension().is_some_and(|e| e == "md") {
            let path = path.strip_prefix(root)?;
            documents.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// The commands of a program in a text, each with its line.
fn of_document(text: &str, program: &str) -> anyhow::Result<Vec<(usize, String)>> {
    let mut found = Vec::new();
    let mut block: Option<Block<'_>> = None;
    let mut before = "";
    let mut paragraph: Vec<(usize, &str)> = Vec::new();
    for (number, line) in text.lines().map(str::trim).enumerate() {
        let number = number + 1;
        if let Some(language) = line.strip_prefix("```") {
            found.extend(spans(&std::mem::take(&mut paragraph), program));
            match block.take() {
                Some(block) => found.extend(block.commands(program)?),
                None => {
                    block = Some(Block {
                        is_shell: SHELL.contains(&language),
                        reason: before.strip_prefix(NOT_RUN),
                        lines: Vec::new(),
                    });
                }
            }
        } else if let Some(block) = &mut block {
            block.lines.push((number, line));
        } else if line.is_empty() || line.starts_with('|') {
            found.extend(spans(&std::mem::take(&mut paragraph), program));
            found.extend(spans(&[(number, line)], program));
        } else {
            paragraph.push((number, line));
        }
        if !line.is_empty() {
            before = line;
        }
    }
    found.extend(spans(&paragraph, program));
    Ok(found)
}

/// A fenced block.
struct Block<'a> {
    is_shell: bool,
    /// Why it is not run, up to the end of the mark.
    reason: Option<&'a str>,
    /// Its lines, each with its number.
    lines: Vec<(usize, &'a str)>,
}

impl Block<'_> {
    /// Its commands of a program; a line that ends with a backslash, or within single quotes, continues on the next one.
    fn commands(&self, program: &str) -> anyhow::Result<Vec<(usize, String)>> {
        if let Some(reason) = self.reason {
            let reason = reason.trim_end_matches("-->").trim();
            ensure!(!reason.is_empty(), "a block is not run, without a reason");
            return Ok(Vec::new());
        }
        let mut commands: Vec<(usize, String)> = Vec::new();
        let mut is_continued = false;
        for (number, line) in &self.lines {
            let text = line.trim_end_matches('\\').trim();
            match commands.last_mut().filter(|_| is_continued) {
                Some((_, command)) => {
                    command.push(' ');
                    command.push_str(text);
                }
                None => commands.push((*number, text.to_owned())),
            }
            let command = commands.last().map_or("", |(_, command)| command.as_str());
            is_continued = line.ends_with('\\') || is_quote_open(command);
        }
        commands.retain(|(_, text)| !text.starts_with('#') && runs(text, program));
        for (number, text) in &commands {
            ensure!(
                self.is_shell,
                "line {number}: `{text}` is in a block without the language sh"
            );
            ensure!(
                text.starts_with(&format!("{program} ")),
                "line {number}: `{text}` does not begin with {program}, so no test would run it"
            );
            ensure!(
                !is_quote_open(text),
                "line {number}: `{text}` has a quote that is not closed"
            );
        }
        Ok(commands)
    }
}

/// Whether a command ends within single quotes. Those of a comment are apostrophes.
fn is_quote_open(command: &str) -> bool {
    let mut is_open = false;
    let mut before = ' ';
    for c in command.chars() {
        match c {
            '\'' => is_open = !is_open,
            '#' if !is_open && before.is_whitespace() => break,
            _ => {}
        }
        before = c;
    }
    is_open
}

/// Whether a line runs a program.
fn runs(line: &str, program: &str) -> bool {
    let mut words = line.split(|c: char| c.is_whitespace() || matches!(c, '(' | '`' | ';'));
    words.any(|word| word == program)
}

/// The complete commands among the code spans of a paragraph, which may continue on the next line.
fn spans(paragraph: &[(usize, &str)], program: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut span: Option<(usize, String)> = None;
    for (number, line) in paragraph {
        let line = line.replace("\\|", "|");
        let mut parts = line.split('`').peekable();
        while let Some(part) = parts.next() {
            if let Some((_, text)) = &mut span {
                text.push_str(part);
            }
            if parts.peek().is_some() {
                span = match span.take() {
                    Some(done) => {
                        found.push(done);
                        None
                    }
                    None => Some((*number, String::new())),
                };
            } else if let Some((_, text)) = &mut span {
                text.push(' ');
            }
        }
    }
    found.retain(|(_, text)| {
        let mut words = text.split_whitespace();
        words.next() == Some(program) && words.count() > 1 && !text.ends_with("-f")
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<(usize, String)> {
        of_document(text, "kubectl").unwrap()
    }

    #[test]
    fn commands_of_blocks() {
        let text = "```sh\n# kubectl a comment\nkubectl get lb  # all\nmake demo\n```\n\n  ```sh\n  kubectl patch lb x \\\n    -p '{}'\n  ```\n";
        assert_eq!(
            commands(text),
            [
                (3, "kubectl get lb  # all".to_owned()),
                (8, "kubectl patch lb x -p '{}'".to_owned())
            ]
        );
    }

    #[test]
    fn a_command_in_quotes_has_several_lines() {
        let text = "```sh\nkubectl patch x -p '{\"a\":\n  1}'  # it's set\nkubectl get lb\n# isn't run\nkubectl get x\n```\n";
        assert_eq!(
            commands(text),
            [
                (2, "kubectl patch x -p '{\"a\": 1}'  # it's set".to_owned()),
                (4, "kubectl get lb".to_owned()),
                (6, "kubectl get x".to_owned()),
            ]
        );
        assert!(of_document("```sh\nkubectl patch x -p '{\n```\n", "kubectl").is_err());
    }

    #[test]
    fn commands_of_spans() {
        let text = "See `kubectl get` or `kubectl get lb`, `kubectl\nget pools`.\n\n| `kubectl apply -f` | `kubectl get a \\| b` |\n";
        assert_eq!(
            commands(text),
            [
                (1, "kubectl get lb".to_owned()),
                (1, "kubectl get pools".to_owned()),
                (4, "kubectl get a | b".to_owned())
            ]
        );
    }

    #[test]
    fn blocks_that_are_not_run_have_a_reason() {
        let block = "```sh\nkubectl drain node1\n```\n";
        assert!(commands(&format!("<!-- not run: no kubelet -->\n{block}")).is_empty());
        assert!(of_document(&format!("<!-- not run: -->\n{block}"), "kubectl").is_err());
        assert_eq!(commands(block).len(), 1);
    }

    #[test]
    fn a_command_that_would_not_be_run_is_an_error() {
        for text in [
            "```sh\nwatch kubectl get lb\n```\n",
            "```\nkubectl get lb\n```\n",
        ] {
            assert!(of_document(text, "kubectl").is_err(), "{text}");
            assert!(of_document(text, "helm").unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn the_documents_have_commands() {
        let all = kubectl_commands().unwrap();
        assert!(all.len() >= 30, "{all:#?}");
        assert_eq!(all[0].document, "README.md");
        let all = helm_commands().unwrap();
        assert!(all.len() >= 8, "{all:#?}");
    }
}
