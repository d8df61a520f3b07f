//! Texts that have to fit.

/// At most `limit` bytes of a text, cut between characters.
pub fn truncated(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(truncated("aü", 2), "a");
        assert_eq!(truncated("aü", 3), "aü");
        assert_eq!(truncated("aü", 99), "aü");
        assert_eq!(truncated("", 0), "");
    }
}
