//! JSON that no tree of values can hold. In the tree it is a marked text, which is replaced when the tree is rendered.

use serde_json::Value;

/// Prefix of a marked text. Control characters are escaped in JSON, so no other text begins with it.
const MARK: &str = "\u{1}";
/// The prefix as rendered in JSON.
const WRITTEN: &str = "\"\\u0001";

/// A number with exactly these digits.
pub(crate) fn number(digits: &str) -> Value {
    Value::String(format!("{MARK}n{digits}"))
}

/// Nested lists.
pub(crate) fn lists(levels: usize) -> Value {
    Value::String(format!("{MARK}l{levels}"))
}

/// Nested objects. The key looks like one of a field manager.
pub(crate) fn objects(levels: usize) -> Value {
    Value::String(format!("{MARK}o{levels}"))
}

/// A key that is rendered as `key`, even if that exists already.
pub(crate) fn key_again(key: &str) -> String {
    format!("{MARK}k{key}")
}

/// Whether a text is marked.
pub(crate) fn is_mark(text: &str) -> bool {
    text.starts_with(MARK)
}

/// The JSON of a value, and whether it contains something that the API server's own decoder rejects.
pub(crate) fn render(value: &Value) -> (String, bool) {
    let text = value.to_string();
    let mut parts = text.split(WRITTEN);
    let mut rendered = parts.next().unwrap_or_default().to_owned();
    let mut rejected_by_decoder = false;
    for part in parts {
        // None of the replacements contains a quotation mark.
        let (inner, rest) = part.split_once('"').unwrap_or((part, ""));
        let levels = || inner[1..].parse::<usize>().unwrap_or(1);
        match inner.as_bytes().first() {
            Some(b'n') => {
                rendered.push_str(&inner[1..]);
                // A JSON number that Go cannot represent.
                rejected_by_decoder |= inner[1..].parse::<f64>().is_ok_and(f64::is_infinite);
            }
            Some(b'l') => nested(&mut rendered, "[", "]", levels()),
            Some(b'o') => nested(&mut rendered, "{\"f:a\":", "}", levels()),
            Some(b'k') => {
                rendered.push('"');
                rendered.push_str(&inner[1..]);
                rendered.push('"');
                rejected_by_decoder = true;
            }
            _ => {
                rendered.push_str(WRITTEN);
                rendered.push_str(inner);
                rendered.push('"');
            }
        }
        rendered.push_str(rest);
    }
    (rendered, rejected_by_decoder)
}

fn nested(text: &mut String, open: &str, close: &str, levels: usize) {
    text.push_str(&open.repeat(levels));
    text.push('1');
    text.push_str(&close.repeat(levels));
}
