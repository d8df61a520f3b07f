//! The metrics of the process itself, under the names that every Prometheus client library uses: CPU, memory, open files, threads,
//! start. Read from `/proc` at each scrape.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};

/// Clock ticks per second in `/proc`: the kernel reports them in units of 10 ms on every architecture that this program is
/// built for, whatever its own clock.
const TICKS: f64 = 100.0;

/// The metrics without values, for their descriptions.
struct Families {
    cpu: Counter,
    resident: Gauge,
    virtual_: Gauge,
    open_files: Gauge,
    max_files: Gauge,
    threads: Gauge,
    start: Gauge,
}

impl Families {
    fn new() -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| Gauge::new(format!("process_{name}"), help);
        Ok(Self {
            cpu: Counter::new(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            )?,
            resident: gauge("resident_memory_bytes", "Resident memory size in bytes.")?,
            virtual_: gauge("virtual_memory_bytes", "Virtual memory size in bytes.")?,
            open_files: gauge("open_fds", "Number of open file descriptors.")?,
            max_files: gauge("max_fds", "Maximum number of open file descriptors.")?,
            threads: gauge("threads", "Number of OS threads in the process.")?,
            start: gauge(
                "start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
            )?,
        })
    }

    fn collectors(&self) -> [&dyn Collector; 7] {
        [
            &self.cpu,
            &self.resident,
            &self.virtual_,
            &self.open_files,
            &self.max_files,
            &self.threads,
            &self.start,
        ]
    }
}

/// Collector of the metrics of the process.
pub(super) struct ProcessMetrics(Families);

impl ProcessMetrics {
    pub(super) fn new() -> prometheus::Result<Self> {
        Ok(Self(Families::new()?))
    }
}

/// The fields of `/proc/self/stat` that are used.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    /// User and system CPU time in seconds.
    cpu: f64,
    threads: f64,
    /// Seconds after the boot of the machine.
    start: f64,
    virtual_bytes: f64,
}

impl Stat {
    /// Parses the text; see proc_pid_stat(5). The name of the program, in parentheses, may contain anything.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // The first one after the name is field 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu: (field(14)? + field(15)?) / TICKS,
            threads: field(20)?,
            start: field(22)? / TICKS,
            virtual_bytes: field(23)?,
        })
    }
}

/// The number behind a key, in a file of lines of a key and a number, such as `/proc/stat`.
fn number(text: &str, key: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

fn proc(file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{file}")).ok()
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        let all = self.0.collectors().into_iter();
        all.flat_map(Collector::desc).collect()
    }

    /// What cannot be read is left out.
    fn collect(&self) -> Vec<MetricFamily> {
        let mut found = Vec::new();
        let Ok(families) = Families::new() else {
            return found;
        };
        let mut set = |gauge: &Gauge, value: Option<f64>| {
            if let Some(value) = value {
                gauge.set(value);
                found.extend(gauge.collect());
            }
        };
        let stat = proc("self/stat").and_then(|text| Stat::parse(&text));
        set(&families.virtual_, stat.map(|stat| stat.virtual_bytes));
        set(&families.threads, stat.map(|stat| stat.threads));
        let boot = proc("stat").and_then(|text| number(&text, "btime"));
        let start = stat.and_then(|stat| Some(boot? + stat.start));
        set(&families.start, start);
        let resident = proc("self/status").and_then(|text| number(&text, "VmRSS:"));
        set(&families.resident, resident.map(|kib| kib * 1024.0));
        let limit = proc("self/limits").and_then(|text| number(&text, "Max open files"));
        set(&families.max_files, limit);
        let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
        let open = open.and_then(|open| u32::try_from(open).ok());
        set(&families.open_files, open.map(f64::from));
        if let Some(stat) = stat {
            families.cpu.inc_by(stat.cpu);
            found.extend(families.cpu.collect());
        }
        found
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "whole numbers")]
mod tests {
    use super::*;

    #[test]
    fn ops_1_the_name_of_the_program_may_be_anything() {
        let rest = "S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 4 0 1200 8192000 300 1844";
        for name in ["x", "a b", "a) S 9 (b"] {
            let stat = Stat::parse(&format!("17 ({name}) {rest}")).unwrap();
            assert_eq!((stat.cpu, stat.threads), (3.0, 4.0), "{name}");
            assert_eq!((stat.start, stat.virtual_bytes), (12.0, 8_192_000.0));
        }
        assert_eq!(Stat::parse("17 (x) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn ops_1_process_metrics_are_those_of_this_process() {
        let metrics = ProcessMetrics::new().unwrap();
        let families = metrics.collect();
        let value = |name: &str| {
            let family = families.iter().find(|f| f.name() == name).unwrap();
            let metric = &family.get_metric()[0];
            metric.get_gauge().get_value() + metric.get_counter().get_value()
        };
        assert_eq!(families.len(), metrics.desc().len(), "each has a value");
        assert!(value("process_resident_memory_bytes") > 1e5);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_threads") >= 1.0);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        // After 2020, and not in the future.
        let now = jiff::Timestamp::now().as_second();
        let start = value("process_start_time_seconds");
        let now = f64::from(u32::try_from(now).unwrap());
        assert!((1.5e9..=now + 2.0).contains(&start), "{start} {now}");
    }
}
