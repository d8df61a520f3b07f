//! Passes mutated objects of a kind, as a watch decodes them, to a check, and bounds time and memory.

use std::time::{Duration, Instant};

use harvester_lb_api::meta::Decoded;
use harvester_lb_controller_kit::decode_guard::decode;
use harvester_lb_hostile::{Generator, Kind, Mutant, Source, amount, seed};
use harvester_lb_object::Key;
use serde::de::DeserializeOwned;

use crate::scene::{LOUD, Scene, targets};

/// Objects of each kind in a test run.
pub(crate) const OBJECTS: usize = 1_000;
/// The same in the soak.
pub(crate) const SOAK: usize = 400_000;
/// Number of objects after which the bystanders' state is reset, so that one object's effect does not hide another's.
const WORLD: usize = 250;
/// Time limit of one object. Generous, because it detects endless loops on a busy machine.
const LONG: Duration = Duration::from_secs(20);
/// Limit of the peak memory of all kinds together.
const MEMORY_MIB: u64 = 1_024;

/// Results of a kind's objects.
#[derive(Default)]
struct Tally {
    decoded: usize,
    refused: usize,
    rejected_by_decoder: usize,
    bytes: usize,
    longest: Duration,
}

/// Prints the object if the test panics while it is processed.
struct Culprit<'a>(&'a Mutant, u64, usize);

impl Drop for Culprit<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(mutant, seed, number) = self;
            let text: String = mutant.text.chars().take(3_000).collect();
            eprintln!(
                "HLB_SEED={seed}: {:?} {number}, {:?}: {text}",
                mutant.kind, mutant.what
            );
        }
    }
}

/// Decodes mutated objects of a kind as a watch does, and passes each to `work`.
pub(crate) fn flood<K: DeserializeOwned>(
    kind: Kind,
    name: impl Fn(usize) -> String,
    mut work: impl FnMut(&mut Scene, &Key, u64, Decoded<K>),
) {
    let seed = seed();
    let count = amount(OBJECTS, SOAK);
    let mut targets = targets();
    if kind == Kind::IpAllocation {
        // A writer of an IPAllocation decides on its owner's address, like the operator itself.
        targets.names.retain(|name| name == "holds" || name == "a");
    }
    let mut generator = Generator::new(seed, kind, Source::FromWatch, targets);
    let mut tally = Tally::default();
    let mut scene = Scene::new();
    let namespace = if kind.is_cluster_scoped() { "" } else { LOUD };
    for number in 0..count {
        if number % WORLD == 0 {
            scene = Scene::new();
        }
        let key = Key::new(namespace, name(number));
        let mutant = generator.mutant(&key.namespace, &key.name);
        let culprit = Culprit(&mutant, seed, number);
        tally.bytes += mutant.text.len();
        let started = Instant::now();
        match decode::<K>(&mutant.text) {
            // No API server sends this.
            Err(error) => {
                assert!(mutant.rejected_by_decoder, "{error}");
                tally.rejected_by_decoder += 1;
                continue;
            }
            Ok(decoded) => {
                match &decoded {
                    Ok(_) => tally.decoded += 1,
                    Err(invalid) => {
                        tally.refused += 1;
                        assert!(invalid.error.len() <= 514, "{}", invalid.error);
                        assert_eq!(invalid.metadata.name.as_deref(), Some(&*key.name));
                    }
                }
                work(&mut scene, &key, 10 + number as u64, decoded);
            }
        }
        scene.nobody_is_harmed();
        let took = started.elapsed();
        assert!(took < LONG, "it took {took:?}");
        tally.longest = tally.longest.max(took);
        drop(culprit);
    }
    let memory = peak_mib();
    eprintln!(
        "HLB_SEED={seed}: {kind:?}: {count} objects, {} MiB: {} decoded, {} not, {} that no API server sends; longest {:?}; peak of all kinds {memory} MiB",
        tally.bytes >> 20,
        tally.decoded,
        tally.refused,
        tally.rejected_by_decoder,
        tally.longest,
    );
    assert!(tally.decoded > count / 10);
    assert!(memory < MEMORY_MIB);
}

/// The peak memory of this process.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1_024
}
