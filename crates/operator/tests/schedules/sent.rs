//! Digest of the operator's requests in a schedule, without messages and times: two versions of the operator with the same
//! behaviour have the same digest.

use std::fmt;

use harvester_lb_controller_kit::events::QueuedEvent;
use serde_json::Value;

/// Fields with messages for users.
const WORDS: [&str; 2] = ["message", "note"];
/// The placeholder of a time.
const TIME: &str = "TIME";

/// Requests and Events in the order in which the operator sent them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    digest: Digest,
    requests: u64,
    events: u64,
    /// One line for each, if lines are requested.
    lines: Option<Vec<String>>,
}

impl Sent {
    /// An empty digest. Keeps the lines if requested.
    pub(crate) fn new(lines: bool) -> Self {
        Self {
            lines: lines.then(Vec::new),
            ..Self::default()
        }
    }

    /// A new empty digest with the same setting.
    pub(crate) fn cleared(&self) -> Self {
        Self::new(self.lines.is_some())
    }

    /// A request.
    pub(crate) fn request(&mut self, method: &str, path: &str, body: &[u8]) {
        let mut body = serde_json::from_slice(body).unwrap_or(Value::Null);
        strip(&mut body);
        self.requests += 1;
        self.line(format!("{method} {path} {body}"));
    }

    /// An Event.
    pub(crate) fn event(&mut self, note: &QueuedEvent) {
        let object = &note.regarding;
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        self.events += 1;
        self.line(format!(
            "Event {:?} {} {} {} {}/{}",
            note.severity,
            note.reason,
            note.action,
            part(&object.kind),
            part(&object.namespace),
            part(&object.name),
        ));
    }

    /// Appends the digest of the schedule of a seed.
    pub(crate) fn add(&mut self, seed: u64, more: &Self) {
        self.requests += more.requests;
        self.events += more.events;
        self.digest.add(&seed.to_le_bytes());
        self.digest.add(&more.digest.0.to_le_bytes());
    }

    /// Each request and Event in a line.
    pub(crate) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    fn line(&mut self, line: String) {
        self.digest.add(line.as_bytes());
        self.digest.add(b"\n");
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:016x}: {} requests, {} Events",
            self.digest.0, self.requests, self.events
        )
    }
}

/// FNV-1a: enough to tell two versions apart, and the same with every compiler.
#[derive(Clone, Copy, Debug)]
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Removes messages and times from a body; from a JSON patch too, which names its fields by paths.
fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|field, _| !WORDS.contains(&field.as_str()));
            let path = fields.get("path").and_then(Value::as_str);
            let field = path.and_then(|path| path.rsplit('/').next());
            if field.is_some_and(|field| WORDS.contains(&field)) {
                fields.remove("value");
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::String(text) if is_time(text) => TIME.clone_into(text),
        _ => {}
    }
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && bytes[10] == b'T' && text.parse::<jiff::Timestamp>().is_ok()
}

#[test]
fn words_and_times_are_not_compared_and_all_else_is() {
    let sent = |path: &str, body: Value| {
        let mut sent = Sent::new(true);
        sent.request("PATCH", path, body.to_string().as_bytes());
        sent
    };
    let status = |message: &str, time: &str, reason: &str| {
        serde_json::json!({"status": {"conditions": [
            {"type": "Ready", "message": message, "lastUpdateTime": time, "reason": reason},
        ]}})
    };
    let one = sent("/x", status("a", "2026-01-01T00:00:00Z", "Ready"));
    let same = sent("/x", status("b", "2026-01-02T03:04:05.123456Z", "Ready"));
    assert_eq!(one.lines(), same.lines());
    assert_eq!(one.to_string(), same.to_string());
    for other in [
        sent("/y", status("a", "2026-01-01T00:00:00Z", "Ready")),
        sent("/x", status("a", "2026-01-01T00:00:00Z", "PoolNotFound")),
        sent("/x", status("a", "soon", "Ready")),
    ] {
        assert_ne!(one.to_string(), other.to_string());
    }
    let patch = |path: &str, value: &str| serde_json::json!([{"op": "replace", "path": path, "value": value}]);
    let path = "/status/conditions/0/message";
    assert_eq!(
        sent("/x", patch(path, "a")).to_string(),
        sent("/x", patch(path, "b")).to_string()
    );
    assert_ne!(
        sent("/x", patch("/status/address", "a")).to_string(),
        sent("/x", patch("/status/address", "b")).to_string()
    );
    // Order counts, among requests and among schedules.
    let mut sums = [[1, 2], [2, 1]].map(|seeds| {
        let mut sum = Sent::default();
        for seed in seeds {
            sum.add(seed, &one);
        }
        sum.to_string()
    });
    sums.sort();
    assert_ne!(sums[0], sums[1]);
}
