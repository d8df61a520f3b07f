//! The parts of a Markdown document that checks read: headings with their anchors, rows of tables, code.

use std::collections::BTreeMap;

/// A heading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heading {
    /// Its text, with backticks.
    pub(crate) text: String,
    /// What a link to it has after `#`.
    pub(crate) anchor: String,
}

/// A row of a table; rows of dashes are left out, header rows are not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Text of the last heading above the table; empty without one.
    pub(crate) section: String,
    /// Its cells, trimmed; `\|` is `|`.
    pub(crate) cells: Vec<String>,
}

impl Row {
    /// The code spans of the first cell: what the row is about.
    pub(crate) fn subjects(&self) -> Vec<&str> {
        self.cells
            .first()
            .map(|cell| spans(cell))
            .unwrap_or_default()
    }
}

/// A line, and whether it belongs to a fenced block; the fences do.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut inside = false;
    text.lines().map(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        (line, inside || is_fence)
    })
}

/// The headings, in order. Anchors are those of GitHub.
pub(crate) fn headings(text: &str) -> Vec<Heading> {
    let mut found = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (line, _) in lines(text).filter(|(_, is_code)| !is_code) {
        let Some(heading) = heading(line) else {
            continue;
        };
        let plain = anchor(heading);
        let earlier = seen.entry(plain.clone()).or_default();
        let anchor = match *earlier {
            0 => plain,
            number => format!("{plain}-{number}"),
        };
        *earlier += 1;
        found.push(Heading {
            text: heading.to_owned(),
            anchor,
        });
    }
    found
}

/// The text of a line that is a heading.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim())
}

/// Lower case, blanks as dashes, of other characters only letters, digits, dashes and underscores; of a link its text.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The rows of all tables.
pub(crate) fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut section = String::new();
    for (line, _) in lines(text).filter(|(_, is_code)| !is_code) {
        if let Some(heading) = heading(line) {
            heading.clone_into(&mut section);
        }
        let line = line.trim();
        let Some(inner) = line.strip_prefix('|') else {
            continue;
        };
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        if inner.chars().all(|c| matches!(c, '|' | '-' | ':' | ' ')) && inner.contains('-') {
            continue;
        }
        let cells = inner
            .replace("\\|", "\0")
            .split('|')
            .map(|cell| cell.trim().replace('\0', "|"))
            .collect();
        rows.push(Row {
            section: section.clone(),
            cells,
        });
    }
    rows
}

/// The code spans in a text without fenced blocks, without their backticks.
pub(crate) fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// All code: the code spans of each paragraph, and the lines of fenced blocks without their fences.
pub(crate) fn code(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut paragraph = String::new();
    for (line, is_code) in lines(text) {
        if is_code || line.trim().is_empty() || line.starts_with('|') {
            found.append(&mut joined_spans(&paragraph));
            paragraph.clear();
        }
        if !is_code {
            paragraph.push_str(&line.replace("\\|", "|"));
            paragraph.push('\n');
        } else if !line.trim_start().starts_with("```") {
            found.push(line.trim().to_owned());
        }
    }
    found.append(&mut joined_spans(&paragraph));
    found
}

/// The code spans of a paragraph; one may continue on the next line.
fn joined_spans(paragraph: &str) -> Vec<String> {
    let words = |span: &str| span.split_whitespace().collect::<Vec<_>>().join(" ");
    spans(paragraph).into_iter().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_of_headings() {
        let text = "# Some `code`: and more\n## This host's\n```sh\n# a comment\n```\n## [Link](a.md) here\n\
                    ### Twice\n### Twice\n#no heading\n";
        let found = headings(text);
        let anchors: Vec<&str> = found.iter().map(|h| h.anchor.as_str()).collect();
        assert_eq!(
            anchors,
            [
                "some-code-and-more",
                "this-hosts",
                "link-here",
                "twice",
                "twice-1"
            ]
        );
        assert_eq!(found[0].text, "Some `code`: and more");
    }

    #[test]
    fn rows_of_tables() {
        let text = "## A\n| a | b |\n|---|:--|\n| `x`, `y` | `p \\| q` |\n```\n| no | row |\n```\n";
        let rows = rows(text);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].section, "A");
        assert_eq!(rows[1].cells, ["`x`, `y`", "`p | q`"]);
        assert_eq!(rows[1].subjects(), ["x", "y"]);
        assert!(rows[0].subjects().is_empty());
    }

    #[test]
    fn code_of_a_document() {
        let text = "A `b\nc` d\n\n| `e \\| f` | |\n```sh\ng h  # i\n```\n`j`\n";
        assert_eq!(code(text), ["b c", "e | f", "g h  # i", "j"]);
    }
}
