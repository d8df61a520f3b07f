//! The figures of this operator in README.md are those of docs/performance.md: each number in the column of the table that
//! compares it with the Go operator begins a figure there.

use std::path::Path;

use crate::markdown;
use crate::repository::{Faults, read};

const DOCUMENT: &str = "README.md";
const MEASURED: &str = "docs/performance.md";
/// The heading of the column.
const COLUMN: &str = "this operator";
/// The sections with the measured figures, whose second column has them.
const SECTIONS: [&str; 2] = ["Beside the Go operator", "The last run"];

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    Ok(judge(&read(root, DOCUMENT)?, &read(root, MEASURED)?))
}

fn judge(document: &str, measured: &str) -> Faults {
    let measured: Vec<String> = markdown::rows(measured)
        .into_iter()
        .filter(|row| SECTIONS.contains(&&*row.section))
        .filter_map(|row| row.cells.into_iter().nth(1))
        .collect();
    let mut faults = Vec::new();
    let mut column: Option<(String, usize)> = None;
    let mut seen = 0;
    for row in markdown::rows(document) {
        if let Some(at) = row.cells.iter().position(|cell| cell == COLUMN) {
            column = Some((row.section, at));
            continue;
        }
        // The rows of that table are those of its section.
        let of_table = column
            .as_ref()
            .filter(|(section, _)| *section == row.section);
        let Some(cell) = of_table.and_then(|(_, at)| row.cells.get(*at)) else {
            continue;
        };
        seen += 1;
        // `6.61 [6.43, 10.7] s` is written as `6.61 s`.
        let number = cell.split(' ').next().unwrap_or_default();
        let is_measured = measured
            .iter()
            .any(|figure| figure.split(' ').next() == Some(number));
        if !is_measured {
            faults.push(format!(
                "{DOCUMENT} says {cell:?} of {:?}; no figure of {MEASURED} begins with {number}",
                row.cells[0]
            ));
        }
    }
    if seen == 0 {
        faults.push(format!(
            "{DOCUMENT} has no table with the column {COLUMN:?}"
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: &str = "## The last run\n| row | figure | limit |\n|---|---|---|\n| a | 6.61 [6.43, 10.7] s | 8 |\n| b | 0 | |\n";

    #[test]
    fn figures_that_were_measured() {
        let page = "| | Go | this operator |\n|---|---|---|\n| x | 871 s | 6.61 s |\n| y | 9 | 0 |\n## Other\n| a | b | c |\n|---|---|---|\n| c | d | e |\n";
        assert_eq!(judge(page, MEASURED), Faults::new());
        for (old, new) in [
            ("6.61", "6.6"),
            ("| 0 |", "| 1 |"),
            ("this operator", "ours"),
        ] {
            let page = page.replace(old, new);
            assert_eq!(judge(&page, MEASURED).len(), 1, "{page}");
        }
    }
}
