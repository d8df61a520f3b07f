//! Rows that need no control plane: the binary itself, and the examples of the pure crates, which measure their crate
//! and print the result in a last line of JSON.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::report::{Report, Row, median, say};

/// Targets of the prober.
const TARGETS: &str = "100000";
const PERIOD: &str = "5";
/// Duration of the measurement in seconds, after the warm-up.
const SECONDS: &str = "30";
/// Limit of the lag of 99 % of the probes, in milliseconds.
const PROMPT_MS: f64 = 250.0;
/// A twentieth of the targets.
const FEW_DEAD: &str = "5000";
/// Half of the targets: a core that cannot make 20,000 connects a second can make these, which shows whether it is the
/// core that delays the probes.
const HALF: (&str, &str) = ("50000", "2500");
/// Runs of each, alternating with the bare loop: other load on the machine affects both.
const TURNS: usize = 3;
/// Dead targets, beside `BESIDE` healthy ones.
const DEAD: &str = "40000";
const BESIDE: u64 = 1_000;

/// The operator binary: the one that `HLB_OPERATOR` names. `make bench` names that of the image, whose allocator is not that
/// of another build; one that happens to lie beside this program is not measured.
pub(crate) fn operator() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("HLB_OPERATOR");
    let path = PathBuf::from(path.context("HLB_OPERATOR names no program; `make bench` does")?);
    ensure!(path.is_file(), "{} is not there", path.display());
    Ok(path)
}

/// A program in the folder of this one, or below.
fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("this program has no path")?;
    let folder = this.parent().context("this program is in no folder")?;
    let path = folder.join(name);
    ensure!(
        path.is_file(),
        "{} is not there; `make bench` builds it",
        path.display()
    );
    Ok(path)
}

/// Runs an example and reads its last line.
fn example(name: &str, args: &[&str]) -> anyhow::Result<Value> {
    let output = Command::new(beside(&format!("examples/{name}"))?)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("the example {name} cannot be run"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "the example {name} has failed, {}: {text}",
        output.status
    );
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("the example {name} says {last:?}"))
}

/// A number in the output of an example.
fn number(said: &Value, path: &str) -> anyhow::Result<f64> {
    said.pointer(path)
        .and_then(Value::as_f64)
        .with_context(|| format!("no {path} in {said}"))
}

/// Row: size of the binary.
pub(crate) fn size(report: &mut Report) -> anyhow::Result<()> {
    let bytes = std::fs::metadata(operator()?)?.len();
    let megabytes = f64::from(u32::try_from(bytes)?) / 1e6;
    report.row(Row::one("program of the image", "MB", megabytes).at_most(20.0));
    Ok(())
}

/// Rows: the ledger at 65,000 IPAllocations.
pub(crate) fn ledger(report: &mut Report) -> anyhow::Result<()> {
    let said = example("ledger", &["65000", "7"])?;
    let kinds = said["per_second"].as_array().context("no rates")?;
    for kind in kinds {
        let (name, rates) = (kind[0].as_str(), kind[1].as_array());
        let (name, rates) = name.zip(rates).context("no rates of a kind")?;
        let rates = rates.iter().filter_map(Value::as_f64).collect();
        let what = format!("ledger at 65,000 records: {name}");
        report.row(Row::of(&what, "/s", rates).at_least(1e6));
    }
    let name = "ledger at 65,000 records: memory of a record";
    report.row(
        Row::one(name, "B", number(&said, "/bytes_per_record/24")?)
            .at_most(200.0)
            .note(format!(
                "for ids of 24 characters; {} B for 40",
                number(&said, "/bytes_per_record/40")?
            )),
    );
    Ok(())
}

/// Operations whose cost must not grow with unrelated data, and the size of that data.
const SCALES: [(&str, usize, &str); 3] = [
    (
        "edit",
        1_000,
        "one of 1,000 pools with records and claims is edited",
    ),
    (
        "wake",
        10_000,
        "10,000 wait and a large pool appears, for each served",
    ),
    (
        "project",
        60_000,
        "projection of a pool with 60,000 records, for each",
    ),
];

/// Rows: instructions of an operation of the ledger, compared with those at a tenth of the size.
pub(crate) fn ledger_scale(report: &mut Report) -> anyhow::Result<()> {
    for (kind, size, what) in SCALES {
        let (large, small) = (instructions(kind, size)?, instructions(kind, size / 10)?);
        report.row(
            Row::one(&format!("ledger: {what}"), "instructions", large)
                .limits(vec![small])
                .at_most_times(1.3)
                .note("limit: the same at a tenth of the size"),
        );
    }
    Ok(())
}

/// Instructions of an operation at a size: those of the whole program minus those of the setup.
fn instructions(kind: &str, size: usize) -> anyhow::Result<f64> {
    let count = |work: &str| -> anyhow::Result<(f64, f64)> {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(beside("examples/ledger")?)
            .args(["scale", kind, &size.to_string(), work])
            .stdin(Stdio::null())
            .output()
            .context("valgrind, which counts instructions, cannot be run")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "scale {kind} has failed: {said}");
        let collected = said
            .lines()
            .find_map(|line| line.split("Collected : ").nth(1));
        let collected = collected.with_context(|| format!("valgrind says {said}"))?;
        let operations = String::from_utf8_lossy(&output.stdout);
        Ok((collected.trim().parse()?, operations.trim().parse()?))
    };
    let ((all, operations), (without, _)) = (count("1")?, count("0")?);
    Ok((all - without) / operations)
}

/// Rows: reviews of the webhook on one core, without HTTP.
pub(crate) fn admission(report: &mut Report) -> anyhow::Result<()> {
    let said = example("admission", &["1000", "7"])?;
    let kinds = said["per_second"].as_object().context("no rates")?;
    for (name, rates) in kinds {
        let rates = rates.as_array().context("no rates of a kind")?;
        let rates = rates.iter().filter_map(Value::as_f64).collect();
        let what = format!("admission with 1,000 pools: {name}");
        report.row(Row::of(&what, "/s", rates).at_least(5_000.0));
    }
    Ok(())
}

/// Rows: the prober alone.
pub(crate) fn prober(report: &mut Report) -> anyhow::Result<()> {
    let (mut turns, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let load = |what: &str| example("load", &[what, TARGETS, SECONDS, PERIOD, FEW_DEAD]);
        turns.push(load("prober")?);
        bare.push(load("bare")?);
    }
    say("prober alone: 100,000 targets at 5 s, 5 % dead, the listener on the other core");
    let each = |of: &[Value], path: &str| -> anyhow::Result<Vec<f64>> {
        of.iter().map(|said| number(said, path)).collect()
    };
    let some = &turns[0];
    let bare_lags = each(&bare, "/lag_ms/p99")?;
    let lags = Row::of(
        "prober alone: 99 % of probes begin within",
        "ms",
        each(&turns, "/lag_ms/p99")?,
    );
    let note = format!(
        "{:.0} probes/s; the latest {:?} ms; the bare loop within {bare_lags:?} ms",
        number(some, "/per_second")?,
        each(&turns, "/lag_ms/max")?
    );
    // A core that cannot make 20,000 connects a second falls ever further behind, whatever the program.
    report.row(if median(&bare_lags) <= PROMPT_MS {
        lags.at_most(PROMPT_MS).note(note)
    } else {
        lags.note(format!(
            "{note}; no target: this core is too slow for the bare loop"
        ))
    });
    report.row(
        Row::of(
            "prober alone: memory of a target, probes in flight included",
            "B",
            each(&turns, "/peak_bytes_per_target")?,
        )
        .at_most(512.0)
        .note(format!("{} B at rest", number(some, "/bytes_per_target")?)),
    );
    report.row(
        Row::of(
            "prober alone: CPU, limit: a bare epoll loop with the same connects",
            "cores",
            each(&turns, "/cores")?,
        )
        .limits(each(&bare, "/cores")?)
        .at_most_times(1.3)
        .note(format!(
            "{:.0} connects per CPU second, the bare loop {:.0}",
            number(some, "/per_cpu_second")?,
            number(&bare[0], "/per_cpu_second")?
        )),
    );
    report.row(
        Row::of(
            "prober alone: wrong verdicts",
            "",
            each(&turns, "/wrong_verdicts")?,
        )
        .at_most(0.0),
    );

    let half: Vec<Value> = (0..TURNS)
        .map(|_| example("load", &["prober", HALF.0, SECONDS, PERIOD, HALF.1]))
        .collect::<anyhow::Result<_>>()?;
    say("half of the targets");
    report.row(
        Row::of(
            "prober alone, 50,000 targets: 99 % of probes begin within",
            "ms",
            each(&half, "/lag_ms/p99")?,
        )
        .at_most(PROMPT_MS)
        .note(format!("{:?} cores", each(&half, "/cores")?)),
    );

    // One more for the whole run: healthy targets must be probed on time beside dead ones.
    let all = (DEAD.parse::<u64>()? + BESIDE).to_string();
    let dead = example("load", &["prober", &all, SECONDS, PERIOD, DEAD])?;
    say("all 40,000 dead, and 1,000 healthy ones beside them");
    report.row(
        Row::one(
            "all dead: sockets at most",
            "",
            number(&dead, "/most_sockets")?,
        )
        // The limit of connects, and the descriptors that any process has open.
        .at_most(number(&dead, "/bound")? + 64.0),
    );
    report.row(
        Row::one(
            "all dead: memory of a target, probes in flight included",
            "B",
            number(&dead, "/peak_bytes_per_target")?,
        )
        .at_most(2048.0)
        .note(format!(
            "RSS {:.0} MiB",
            number(&dead, "/rss_kib")? / 1024.0
        )),
    );
    report.row(
        Row::one(
            "all dead: 99 % of all probes begin within",
            "ms",
            number(&dead, "/lag_ms/p99")?,
        )
        .note("the lag that the metric shows"),
    );
    report.row(
        Row::one(
            "all dead: longest time between two probes of a healthy one (5 s is the period)",
            "ms",
            number(&dead, "/gap_ms/max")?,
        )
        .note(format!("99 % within {} ms", number(&dead, "/gap_ms/p99")?)),
    );
    report.row(
        Row::one(
            "all dead: wrong verdicts",
            "",
            number(&dead, "/wrong_verdicts")?,
        )
        .at_most(0.0),
    );
    Ok(())
}
