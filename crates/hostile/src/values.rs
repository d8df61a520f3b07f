//! Odd numbers and texts.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::text;

/// Texts that are parsed as addresses, subnets, names, times or numbers somewhere, or that nothing can parse.
const TEXTS: &[&str] = &[
    "",
    " ",
    "\u{0}",
    "\u{7f}",
    "\n",
    "\r\n",
    "\t",
    "/",
    "//",
    "a/",
    "/a",
    "a/b/c",
    "../..",
    "*",
    "**",
    "-",
    ".",
    ":",
    "::ffff:1.2.3.4",
    "::ffff:10.66.0.9",
    "::ffff:10.66.0.0/120",
    "10.0.0.1/33",
    "10.66.0.0/24 ",
    " 10.66.0.0/24",
    "10.66.0.0/ 24",
    "010.66.0.1",
    "10.66.0.256",
    "10.66.0",
    "10.66.0.0.0",
    "0x0a.66.0.1",
    "1.1",
    "4294967295",
    "fe80::1%eth0",
    "fe80::1",
    "::/0",
    "0.0.0.0/0",
    "::",
    "::1",
    "0.0.0.0",
    "127.0.0.1",
    "169.254.1.1",
    "224.0.0.1",
    "255.255.255.255",
    "255.255.255.255/32",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "fd00::/8",
    "2001:db8::/127",
    "2001:db8::/128",
    "10.66.0.0/31",
    "10.66.0.0/32",
    "10.66.0.0/",
    "10.66.0.0/-1",
    "10.66.0.0/+24",
    "10.66.0.0/024",
    "10.66.0.0/99999999999999999999",
    "10.66.0.0/24/24",
    "9999-12-31T23:59:59.999999Z",
    "-9999-01-01T00:00:00Z",
    "0000-00-00T00:00:00Z",
    "2026-13-45T99:99:99Z",
    "1969-12-31T23:59:59Z",
    "2026-06-30T23:59:60Z",
    "yesterday",
    "2026-01-01T00:00:00+99:99",
    "true",
    "null",
    "None",
    "-0",
    "1e309",
    "0x10",
    "NaN",
    "%s%n%x",
    "{{.}}",
    "$(id)",
    "'; --",
    "<b>",
    "\u{202e}dab",
    "e\u{301}",
    "日本語",
    "💥",
    "\u{feff}",
    "TCP",
    "tcp",
    "UDP",
    "SCTP",
    "Bound",
    "Released",
    "bound",
    "True",
    "False",
    "Unknown",
    "Ready",
    "vm",
    "cluster",
    "pool",
    "dhcp",
    "VM",
    "calm",
    "default",
    "kube-system",
    "9999999999999999999",
    "00000000-0000-0000-0000-000000000000",
    "dummy347-546a-4642-9da6-5608endpoint",
    "10.52.0.255",
    "0000-0000-0000-0000-0000-0000-0000-0001",
];

const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "-1",
    "1",
    "2",
    "80",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "0.5",
    "-0.0",
    "1.0",
    "1e2",
    "1e18",
    "1e300",
    "1e-400",
    "1e309",
    "-1e309",
];

/// One of the texts; empty if there are none.
pub(crate) fn pick(rng: &mut Rng, of: &[String]) -> String {
    rng.choice(of.iter()).cloned().unwrap_or_default()
}

/// A text.
pub(crate) fn text(rng: &mut Rng) -> String {
    let one = TEXTS[rng.usize(..TEXTS.len())];
    match rng.u8(..12) {
        0 => one.repeat(rng.usize(1..2_000)),
        1 => format!("{one}{}", TEXTS[rng.usize(..TEXTS.len())]),
        2 => (0..rng.usize(1..40)).map(|_| rng.char(..)).collect(),
        3 => address(rng),
        4 => format!("{}/{}", address(rng), rng.u8(..140)),
        _ => one.to_owned(),
    }
}

/// A valid address.
pub(crate) fn address(rng: &mut Rng) -> String {
    match rng.u8(..4) {
        0 => std::net::Ipv6Addr::from_bits(rng.u128(..)).to_string(),
        1 => std::net::Ipv4Addr::from_bits(rng.u32(..)).to_string(),
        _ => format!("10.66.0.{}", rng.u8(..)),
    }
}

/// A number.
pub(crate) fn number(rng: &mut Rng) -> Value {
    if rng.u8(..4) == 0 {
        return json!(rng.i64(-70_000..70_000));
    }
    let digits = NUMBERS[rng.usize(..NUMBERS.len())];
    // Numbers that Go rejects are rare, because they do not get past the API server.
    if digits.ends_with("e309") && rng.u8(..8) > 0 {
        return json!(i64::MAX);
    }
    text::number(digits)
}

/// Depth of nesting: below and above the limits of the decoders of both sides.
pub(crate) fn levels(rng: &mut Rng) -> usize {
    [3, 60, 126, 127, 128, 129, 200, 1_000, 5_000][rng.usize(..9)]
}

/// Any value.
pub(crate) fn any(rng: &mut Rng) -> Value {
    match rng.u8(..13) {
        0..=3 => Value::String(text(rng)),
        4..=6 => number(rng),
        7 => Value::Null,
        8 => Value::Bool(rng.bool()),
        9 => json!([]),
        10 => json!({}),
        11 => {
            let levels = levels(rng);
            if rng.bool() {
                text::lists(levels)
            } else {
                text::objects(levels)
            }
        }
        _ => {
            let items: Vec<Value> = (0..rng.usize(1..4)).map(|_| any(rng)).collect();
            if rng.bool() {
                Value::Array(items)
            } else {
                items
                    .into_iter()
                    .map(|v| (text(rng), v))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
        }
    }
}

/// A text of up to a mebibyte.
pub(crate) fn large(rng: &mut Rng) -> String {
    let unit = ["a", "é", "💥", "\\", "\"", "10.66.0.1,", "\u{0}"][rng.usize(..7)];
    let bytes = [4_096, 65_536, 262_144, 1_048_576][rng.usize(..4)];
    unit.repeat(bytes / unit.len())
}
