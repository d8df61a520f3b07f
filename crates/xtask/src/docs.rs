//! Links in documents lead to files and headings that exist, YAML shown in a document is the text of a file, and no text is
//! still to be filled in. A block of YAML follows a line `<!-- docs/examples/NAME.yaml -->`; tests apply the files.

use std::path::{Path, PathBuf};

use crate::markdown;
use crate::repository::{Faults, files, read};

/// A link to a file of the repository.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    /// The file, relative to the document; empty for the document itself.
    file: String,
    /// What follows `#`; empty for the whole file.
    anchor: String,
}

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut faults = Vec::new();
    let mut shown = Vec::new();
    for path in files(root, ".", &[".md"])? {
        let text = read(root, &path)?;
        let document = root.join(&path);
        for link in links(&text) {
            if let Some(fault) = broken(&document, &text, &link) {
                faults.push(format!("{path} links to {fault}"));
            }
        }
        for line in unfinished(&text) {
            faults.push(format!(
                "{path}, line {line}: something is still to be filled in"
            ));
        }
        for (file, block) in blocks(&text) {
            match read(root, &file) {
                Ok(text) if text == block => shown.push(file),
                Ok(_) => faults.push(format!("{path} shows {file} differently from what it is")),
                Err(error) => faults.push(format!("{path}: {error:#}")),
            }
        }
        if text.lines().any(|l| l.trim_start().starts_with("```yaml"))
            && blocks(&text).len() < yaml_blocks(&text)
        {
            faults.push(format!(
                "{path} shows YAML that is no file: put <!-- path --> on the line before"
            ));
        }
    }
    for example in files(root, "docs/examples", &[".yaml"])? {
        if !shown.contains(&example) {
            let name = example.rsplit('/').next().unwrap_or_default();
            let linked = files(root, ".", &[".md"])?
                .iter()
                .any(|path| read(root, path).is_ok_and(|text| text.contains(name)));
            if !linked {
                faults.push(format!("no document speaks of {example}"));
            }
        }
    }
    Ok(faults)
}

/// What is wrong with a link in a document of this path and text.
fn broken(document: &Path, text: &str, link: &Link) -> Option<String> {
    let target: PathBuf = match link.file.as_str() {
        "" => document.to_owned(),
        file => document.parent().unwrap_or(document).join(file),
    };
    if !target.exists() {
        return Some(format!("{}, which does not exist", link.file));
    }
    // An anchor in a source or an image is no heading.
    if link.anchor.is_empty() || target.extension().is_none_or(|e| e != "md") {
        return None;
    }
    let other;
    let text = if link.file.is_empty() {
        text
    } else {
        other = std::fs::read_to_string(&target).unwrap_or_default();
        other.as_str()
    };
    let is_there = markdown::headings(text)
        .iter()
        .any(|heading| heading.anchor == link.anchor);
    (!is_there).then(|| {
        format!(
            "{}#{}, but there is no such heading",
            link.file, link.anchor
        )
    })
}

/// The lines, from 1, that are or end with a word in capitals in the place of a text, such as `MEASURED`.
fn unfinished(text: &str) -> Vec<usize> {
    let is_placeholder = |line: &str| {
        let end = line.rsplit(": ").next().unwrap_or_default();
        let word = end.trim().trim_end_matches('.');
        word.len() >= 4 && word.chars().all(|c| c.is_ascii_uppercase())
    };
    let lines = (1..).zip(markdown::lines(text));
    let found = lines.filter(|(_, (line, is_code))| !is_code && is_placeholder(line));
    found.map(|(number, _)| number).collect()
}

/// Links to files of the repository and to headings of the document.
fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, _) in markdown::lines(text).filter(|(_, is_code)| !is_code) {
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if !file.is_empty() || !anchor.is_empty() {
                found.push(Link {
                    file: file.to_owned(),
                    anchor: anchor.to_owned(),
                });
            }
        }
    }
    found
}

fn yaml_blocks(text: &str) -> usize {
    text.lines()
        .filter(|l| l.trim_start().starts_with("```yaml"))
        .count()
}

/// Blocks that must be the text of a file.
fn blocks(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, pair) in lines.windows(2).enumerate() {
        let file = pair[0]
            .trim()
            .strip_prefix("<!-- ")
            .and_then(|l| l.strip_suffix(" -->"));
        if let Some(file) = file
            && pair[1] == "```yaml"
        {
            let block: String = lines[at + 2..]
                .iter()
                .take_while(|l| **l != "```")
                .flat_map(|l| [*l, "\n"])
                .collect();
            found.push((file.to_owned(), block));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(file: &str, anchor: &str) -> Link {
        Link {
            file: file.to_owned(),
            anchor: anchor.to_owned(),
        }
    }

    #[test]
    fn links_to_files_and_headings() {
        let text = "See [a](docs/a.md#top), [b](https://example.org/b#c), [c](#here), ![d](d.svg).\n```\n[x](y)\n```\n";
        let expected = [
            link("docs/a.md", "top"),
            link("", "here"),
            link("d.svg", ""),
        ];
        assert_eq!(links(text), expected);
    }

    #[test]
    fn links_that_lead_nowhere() {
        let folder = std::env::temp_dir().join(format!("hlb-links-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("b.md"), "# There\n").unwrap();
        let document = folder.join("a.md");
        let broken = |file: &str, anchor: &str| {
            super::broken(&document, "## Here\n", &link(file, anchor)).is_some()
        };
        std::fs::write(&document, "").unwrap();
        let found = [
            broken("b.md", "there"),
            broken("", "here"),
            broken("b.md", "here"),
            broken("", "there"),
            broken("c.md", ""),
        ];
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [false, false, true, true, true]);
    }

    #[test]
    fn texts_that_are_to_be_filled_in() {
        let text = "FIGURES\n\nIt took: MEASURED.\nBy TCP or DHCP.\n- a: TCP\n```\nDELETE\n```\n| a | NAME |\n";
        assert_eq!(unfinished(text), [1, 3]);
    }

    #[test]
    fn blocks_of_files() {
        let text =
            "<!-- docs/examples/a.yaml -->\n```yaml\na: 1\nb: 2\n```\n\n```yaml\nc: 3\n```\n";
        assert_eq!(
            blocks(text),
            [("docs/examples/a.yaml".to_owned(), "a: 1\nb: 2\n".to_owned())]
        );
        assert_eq!(yaml_blocks(text), 2);
    }
}
