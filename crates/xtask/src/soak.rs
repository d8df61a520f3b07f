//! `cargo run -p xtask -- soak [--for 20m] [--new] [PART...]`: the long forms of the tests, which take hours, in
//! pieces.
//!
//! Each test of each part has an amount to run, starting from a seed. It runs in pieces of some minutes, and after each
//! piece `target/soak/state.json` stores the progress; the next call continues there. An interrupted piece is run
//! again. A piece that fails ends the call; the failure stays in the state, is reported by every call and makes it
//! fail, until `--new` starts over. The output of the tests is in `target/soak/logs`.
//!
//! | module | owns |
//! |---|---|
//! | [`parts`] | what to run |
//! | [`state`] | the progress and the failures |
//! | [`piece`] | the size of the next piece, its command, and the meaning of its output |

mod parts;
mod piece;
mod state;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::bound;
use crate::cargo::cargo;
use crate::runner::{Built, build, duration, list};
use parts::{FUZZ, PARTS, Part, Unit};
use piece::Piece;
use state::{Failure, State};

/// Command line options.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Parts; all if empty.
    parts: Vec<String>,
    /// Start no piece that would end later than this.
    within: Option<Duration>,
    /// Discard progress and failures.
    start_over: bool,
}

impl Options {
    fn parse<S: AsRef<str>>(arguments: &[S]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter().map(AsRef::as_ref);
        while let Some(argument) = arguments.next() {
            match argument {
                "--for" => {
                    let time = arguments.next().and_then(time);
                    options.within = Some(time.context("--for takes a time such as 90s, 20m, 2h")?);
                }
                "--new" => options.start_over = true,
                part if PARTS.iter().any(|p| p.name == part) => options.parts.push(part.to_owned()),
                other => {
                    let names = PARTS.map(|part| part.name).join(" ");
                    bail!("there is no part {other:?}; there are: {names}");
                }
            }
        }
        Ok(options)
    }

    fn wants(&self, part: &Part) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|name| name == part.name)
    }
}

/// A duration such as `90s`, `20m`, `2h`.
fn time(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        _ => return None,
    };
    Some(Duration::from_secs(number.checked_mul(seconds)?))
}

/// A test with a long form.
#[derive(Debug)]
struct Track {
    /// Its part and its name: `crash/alc_8_...`.
    name: String,
    test: String,
    unit: Unit,
    total: u64,
    /// Its program, the folder to run it in, and its command for display; none for a fuzz target.
    binary: Option<(PathBuf, PathBuf, String)>,
}

/// Runs the next pieces.
pub(crate) fn main(root: &Path, arguments: &[String]) -> ExitCode {
    match Options::parse(arguments).and_then(|options| run(root, &options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs pieces and returns whether no failure is known.
fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let folder = root.join("target/soak");
    let logs = folder.join("logs");
    std::fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    let file = folder.join("state.json");
    let mut state = if options.start_over {
        State::default()
    } else {
        State::load(&file)?
    };
    println!("building the tests");
    let built = build(root)?;
    let mut tracks = Vec::new();
    for part in PARTS.iter().filter(|part| options.wants(part)) {
        tracks.extend(find(root, part, &built)?);
    }
    // Not with their first piece, whose duration is the estimate for the next ones.
    if tracks.iter().any(|track| track.binary.is_none()) {
        build_fuzz_targets(root)?;
    }
    for track in &tracks {
        state.begin(&track.name, track.total, seed_by_chance());
    }
    state.store(&file)?;

    let deadline = options.within.map(|time| Instant::now() + time);
    let mut played = 0;
    'tracks: for track in &tracks {
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let progress = state.of(&track.name).context("the track has no progress")?;
            if progress.left() == 0 {
                break;
            }
            let Some(piece) = Piece::next(progress, track.unit, left) else {
                break 'tracks;
            };
            played += 1;
            if !play(root, &logs, track, piece, &built, &mut state, &file)? {
                break 'tracks;
            }
        }
    }
    println!(
        "\n{}",
        state.summary(
            &tracks
                .iter()
                .map(|t| (t.name.as_str(), t.unit))
                .collect::<Vec<_>>()
        )
    );
    if played == 0
        && tracks
            .iter()
            .any(|t| state.of(&t.name).is_some_and(|p| p.left() > 0))
    {
        println!("No piece fits into the time given; give more.");
    }
    Ok(state.failures.is_empty())
}

fn build_fuzz_targets(root: &Path) -> anyhow::Result<()> {
    let script = root.join("fuzz/run.sh");
    let mut command = bound::command(&script);
    let status = command
        .arg("build")
        .status()
        .with_context(|| script.display().to_string())?;
    ensure!(status.success(), "{} build: {status}", script.display());
    Ok(())
}

/// The tests of a part, in their binaries.
fn find(root: &Path, part: &Part, built: &Built) -> anyhow::Result<Vec<Track>> {
    let mut tracks = Vec::new();
    for tests in part.tests {
        let before = tracks.len();
        if tests.package == FUZZ {
            let folder = root.join("fuzz/seeds");
            let targets =
                std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
            let mut names = Vec::new();
            for target in targets {
                names.push(target?.file_name().to_string_lossy().into_owned());
            }
            names.sort();
            tracks.extend(names.into_iter().map(|test| Track {
                name: format!("{}/{test}", part.name),
                test,
                unit: tests.unit,
                total: tests.total,
                binary: None,
            }));
        } else {
            for binary in built.tests.iter().filter(|b| b.package == tests.package) {
                for test in list(binary, Some(tests.names))? {
                    let place = (binary.path.clone(), binary.folder.clone(), binary.command());
                    // The model's and the operator's binaries may have a test of the same name.
                    tracks.push(Track {
                        name: format!("{}/{}", part.name, test),
                        test,
                        unit: tests.unit,
                        total: tests.total,
                        binary: Some(place),
                    });
                }
            }
        }
        ensure!(
            tracks.len() - before >= tests.least,
            "part {}: {} has {} tests whose names contain {:?}, not {}; crates/xtask/src/soak/parts.rs has the names",
            part.name,
            tests.package,
            tracks.len() - before,
            tests.names,
            tests.least,
        );
    }
    Ok(tracks)
}

/// Runs a piece and stores its result; returns whether it passed.
fn play(
    root: &Path,
    logs: &Path,
    track: &Track,
    piece: Piece,
    built: &Built,
    state: &mut State,
    file: &Path,
) -> anyhow::Result<bool> {
    println!("\n== {}: {}", track.name, piece.words(track.unit));
    let log = logs.join(format!(
        "{}-{}.log",
        track.name.replace('/', "-"),
        piece.seed
    ));
    let output = File::create(&log).with_context(|| log.display().to_string())?;
    let env = piece.env(track.unit);
    let mut command = if let Some((program, folder, _)) = &track.binary {
        let mut command = bound::command(program);
        command
            .args([&track.test, "--exact", "--nocapture"])
            .current_dir(folder)
            .env("CARGO", cargo());
        if let Some(operator) = &built.operator {
            command.env("HLB_OPERATOR", operator);
        }
        command
    } else {
        let mut command = bound::command(&root.join("fuzz/run.sh"));
        command
            .args([piece.count.to_string(), track.test.clone()])
            .current_dir(root);
        command
    };
    let began = Instant::now();
    let status = spawn(&mut command, &env, output)?;
    let took = began.elapsed();
    let written = std::fs::read(&log).unwrap_or_default();
    let written = String::from_utf8_lossy(&written);
    let progress = state
        .of_mut(&track.name)
        .context("the track has no progress")?;
    if status {
        progress.add(piece.count, took);
        state.store(file)?;
        for line in written
            .lines()
            .filter(|line| line.contains("found wrong: 0"))
        {
            println!("   {}", line.trim());
        }
        println!("   nothing wrong in {}", duration(took));
        return Ok(true);
    }
    // The units after the failing seed were not run.
    let reproduction = piece.reproduce(track.unit, &written);
    progress.add(reproduction.played, took);
    let failure = Failure {
        track: track.name.clone(),
        command: command_for_people(track, &piece, &reproduction.env),
        log: log.display().to_string(),
        found: piece::failure_line(&written),
    };
    println!("   WRONG after {}\n{}", duration(took), failure.text());
    state.failures.push(failure);
    state.store(file)?;
    Ok(false)
}

fn spawn(
    command: &mut Command,
    env: &[(&'static str, String)],
    output: File,
) -> anyhow::Result<bool> {
    let status = command
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stderr(output.try_clone()?)
        .stdout(output)
        .status()
        .context("cannot start a process")?;
    Ok(status.success())
}

/// The command that reproduces a failure.
fn command_for_people(track: &Track, piece: &Piece, env: &[(&'static str, String)]) -> String {
    let mut words: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    words.push(match &track.binary {
        Some((.., command)) => format!("{command} --exact {} --nocapture", track.test),
        None => format!("fuzz/run.sh {} {}", piece.count, track.test),
    });
    words.join(" ")
}

/// A random seed; most calls differ.
fn seed_by_chance() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map_or(0, |time| u64::from(time.subsec_nanos()) ^ time.as_secs());
    // Far enough apart that the ranges of two tests do not overlap; short enough to type.
    nanos.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parts_and_a_time() {
        assert_eq!(Options::parse::<&str>(&[]).unwrap(), Options::default());
        let options = Options::parse(&["--for", "20m", "crash", "--new", "model"]).unwrap();
        assert_eq!(options.within, Some(Duration::from_mins(20)));
        assert!(options.start_over);
        let wanted: Vec<&str> = PARTS
            .iter()
            .filter(|p| options.wants(p))
            .map(|p| p.name)
            .collect();
        assert_eq!(wanted, ["model", "crash"]);
        assert!(PARTS.iter().all(|part| Options::default().wants(part)));
        for wrong in [
            &["crush"][..],
            &["--for"],
            &["--for", "20"],
            &["--for", "m"],
        ] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(time("90s"), Some(Duration::from_secs(90)));
        assert_eq!(time("2h"), Some(Duration::from_hours(2)));
        for wrong in ["", "1", "h", "1d", "-1m", "18446744073709551615h"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_failure_has_a_command_that_reproduces_it() {
        let track = Track {
            name: "crash/killed".to_owned(),
            test: "killed".to_owned(),
            unit: Unit::Rounds,
            total: 200,
            binary: Some((
                PathBuf::new(),
                PathBuf::new(),
                "cargo test --test crash --".to_owned(),
            )),
        };
        let piece = Piece { seed: 7, count: 3 };
        assert_eq!(
            command_for_people(&track, &piece, &piece.env(Unit::Rounds)),
            "HLB_SOAK=1 HLB_SEED=7 HLB_ROUNDS=3 cargo test --test crash -- --exact killed --nocapture"
        );
    }
}
