//! Owns the mutation of inputs: everything is derived from a seed.

use std::ops::Range;

use fastrand::Rng;

/// Inputs kept for further mutation, besides the seeds.
const KEPT: usize = 200;
/// Longest input; the same limit as libFuzzer's.
const LONGEST: usize = 4_096;

/// Texts at boundaries.
const ODD: [&str; 16] = [
    "0",
    "-1",
    "1",
    "32",
    "33",
    "128",
    "255",
    "65535",
    "65536",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "1e400",
    "",
    "null",
    "::ffff:10.0.0.1",
];

/// Generates inputs.
pub(crate) struct Mutations {
    rng: Rng,
    seeds: Vec<Vec<u8>>,
    kept: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Mutations {
    pub(crate) fn new(seed: u64, seeds: Vec<Vec<u8>>, words: Vec<Vec<u8>>) -> Self {
        let mut words = words;
        words.extend(ODD.map(|word| word.as_bytes().to_vec()));
        Self {
            rng: Rng::with_seed(seed),
            seeds,
            kept: Vec::new(),
            words,
        }
    }

    /// The next input: a seed or a kept input, with one to eight changes.
    pub(crate) fn input(&mut self) -> Vec<u8> {
        let mut input = self.any();
        let mut changes = 1;
        while changes < 8 && self.rng.bool() {
            changes += 1;
        }
        for _ in 0..changes {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    /// Keeps an input that got past the decoder.
    pub(crate) fn keep(&mut self, input: Vec<u8>) {
        if self.kept.len() < KEPT {
            self.kept.push(input);
        } else {
            let at = self.rng.usize(..KEPT);
            self.kept[at] = input;
        }
    }

    fn any(&mut self) -> Vec<u8> {
        let at = self.rng.usize(..self.seeds.len() + self.kept.len());
        let kept = at.checked_sub(self.seeds.len());
        kept.map_or_else(|| self.seeds[at].clone(), |at| self.kept[at].clone())
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let rng = &mut self.rng;
        if input.is_empty() {
            input.push(rng.u8(..));
        }
        let at = rng.usize(..input.len());
        match rng.u8(..16) {
            0 => input[at] ^= 1 << rng.u8(..8),
            1 => input[at] = rng.u8(..),
            2 => input.insert(at, rng.u8(..)),
            3 => drop(input.drain(piece(rng, input.len()))),
            4 | 5 => {
                let copy = input[piece(rng, input.len())].to_vec();
                input.splice(at..at, copy);
            }
            6 => {
                // The beginning of this one and the end of another.
                let other = self.any();
                let from = self.rng.usize(..=other.len());
                input.splice(at.., other[from..].iter().copied());
            }
            7 | 8 => {
                let digits: Vec<usize> = (0..input.len())
                    .filter(|n| input[*n].is_ascii_digit())
                    .collect();
                if let Some(at) = rng.choice(digits) {
                    input[at] = rng.u8(b'0'..=b'9');
                }
            }
            // Replaces a word between quotes or dots: most results get past a decoder.
            9..=11 => {
                let word = rng.choice(&self.words).cloned().unwrap_or_default();
                input.splice(word_at(input, at), word);
            }
            _ => {
                let other = self.any();
                let from = self.rng.usize(..other.len().max(1));
                let word = other[word_at(&other, from)].to_vec();
                input.splice(word_at(input, at), word);
            }
        }
    }
}

/// A range of at most 64 bytes of an input of that length.
fn piece(rng: &mut Rng, length: usize) -> Range<usize> {
    let start = rng.usize(..length);
    start..(start + rng.usize(1..=64)).min(length)
}

/// The word around a position.
fn word_at(input: &[u8], at: usize) -> Range<usize> {
    let of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_/".contains(byte);
    let before = input[..at].iter().rev().take_while(|b| of_word(b)).count();
    let after = input[at..].iter().take_while(|b| of_word(b)).count();
    at - before..at + after
}

/// Words of a libFuzzer dictionary: a quoted word per line, with `\"`, `\\` and `\xNN` in it.
pub(crate) fn words(text: &str) -> Vec<Vec<u8>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (_, quoted) = line.split_once('"')?;
            let (word, _) = quoted.rsplit_once('"')?;
            let mut bytes = Vec::new();
            let mut rest = word.bytes();
            while let Some(byte) = rest.next() {
                bytes.push(match byte {
                    b'\\' => match rest.next()? {
                        b'x' => {
                            let hex = [rest.next()?, rest.next()?];
                            u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?
                        }
                        other => other,
                    },
                    other => other,
                });
            }
            Some(bytes)
        })
        .collect()
}

#[test]
fn words_of_a_dictionary() {
    let text = "# words\n\"name\"\nkey=\"a\\\"b\\\\c\\x41\"\n\n";
    assert_eq!(words(text), [b"name".to_vec(), b"a\"b\\cA".to_vec()]);
}

#[test]
fn the_same_seed_makes_the_same_inputs() {
    let inputs = |seed| {
        let mut mutations = Mutations::new(seed, vec![b"{\"a\":10}".to_vec()], Vec::new());
        (0..50).map(|_| mutations.input()).collect::<Vec<_>>()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
}
