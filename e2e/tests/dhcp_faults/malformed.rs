//! Messages that no client can use, to one that waits for a reply with their transaction id (DHC-1).

use harvester_lb_testkit::GATEWAY;

use crate::wire::{Forged, seconds, server};

/// Option 52: the fields `file` and `sname` hold options as well.
const OVERLOAD: [u8; 3] = [52, 1, 3];
/// Where the options of a [`Forged`] message begin, after the first one, after the server's, and after the lease time.
const ENDS: [usize; 4] = [240, 243, 249, 255];

/// What is malformed about a reply with the options of server and lease time in this order, and why it is ignored.
pub fn malformed(reply: &Forged) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let whole = reply.bytes();
    let cut = |from: usize, to: usize| (from..to).map(|end| whole[..end].to_vec()).collect();
    let byte = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        bytes
    };
    let with = |options: &[Vec<u8>]| reply.with(options).bytes();
    let kind = |kind: u8| Forged {
        kind,
        ..reply.clone()
    };
    // The two fields name each other, and hold nothing else.
    let mut looped = with(&[OVERLOAD.to_vec()]);
    for start in [44, 108] {
        looped[start..start + 3].copy_from_slice(&OVERLOAD);
    }
    let [options, first, second, all] = ENDS;
    vec![
        ("too_short", cut(0, options)),
        ("no_message_type", cut(options, first)),
        ("no_server", cut(first, second)),
        ("no_lease_time", cut(second, all)),
        ("not_reply", vec![byte(0, 1)]),
        ("not_ethernet", vec![byte(1, 6), byte(2, 16)]),
        ("cookie", vec![byte(236, 0), byte(239, 0)]),
        (
            "message_type",
            [0, 1, 3, 4, 7, 8, 255].map(|it| kind(it).bytes()).into(),
        ),
        (
            "overload",
            [0, 4, 255].map(|it| with(&[vec![52, 1, it]])).into(),
        ),
        (
            "option_length",
            vec![
                with(&[vec![54, 3, 192, 168, 100], seconds(3_600)]),
                with(&[server(GATEWAY), vec![51, 0]]),
                // As often as it fits, and one byte each.
                with(&vec![server(GATEWAY); 180]),
                with(&vec![vec![54, 1, 192]; 300]),
                with(&[OVERLOAD.to_vec(), OVERLOAD.to_vec(), server(GATEWAY)]),
            ],
        ),
        (
            "no_server",
            vec![
                looped,
                // Longer than the message.
                with(&[vec![54, 255, 1]]),
                with(&[vec![0; 1_200]]),
            ],
        ),
    ]
}

/// Byte strings of any length, the same ones each time, and options that say nothing, with a header that is right.
pub fn nonsense(reply: &Forged) -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut all: Vec<Vec<u8>> = (0..150)
        .map(|_| (0..random.usize(..1_400)).map(|_| random.u8(..)).collect())
        .collect();
    all.extend((0..100).map(|_| {
        let mut bytes = reply.bytes();
        bytes.truncate(ENDS[0]);
        bytes.extend((0..random.usize(..300)).map(|_| random.u8(..)));
        bytes
    }));
    all
}
