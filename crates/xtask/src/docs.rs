//! Links in documents lead to files that exist, and YAML shown in a document is the text of a file. Such a block
//! follows a line `<!-- docs/examples/NAME.yaml -->`; tests apply the files.

use std::path::Path;

use crate::repository::{Faults, files, read};

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut faults = Vec::new();
    let mut shown = Vec::new();
    for path in files(root, ".", &[".md"])? {
        let text = read(root, &path)?;
        let folder = root.join(&path);
        let folder = folder.parent().unwrap_or(root);
        for link in links(&text) {
            if !folder.join(&link).exists() {
                faults.push(format!("{path} links to {link}, which does not exist"));
            }
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

/// Targets of links to files of the repository, without anchors.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut code = false;
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        if code {
            continue;
        }
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") && !file.starts_with("mailto:") {
                found.push(file.to_owned());
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

    #[test]
    fn links_to_files() {
        let text = "See [a](docs/a.md#top), [b](https://example.org/b), [c](#here), ![d](d.svg).\n```\n[x](y)\n```\n";
        assert_eq!(links(text), ["docs/a.md", "d.svg"]);
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
