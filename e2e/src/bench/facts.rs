//! Machine, time and software of the measurement.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use harvester_lb_e2e::world::repository;

/// See the module.
#[derive(Debug)]
pub(crate) struct Facts {
    date: String,
    cpu: String,
    cores: usize,
    memory_gib: u64,
    kernel: String,
    operator: String,
    commit: String,
    apiserver: Option<String>,
    load_before: String,
    load_after: Option<String>,
    started: Instant,
    seconds: u64,
}

impl Facts {
    /// The facts of this machine now, and of an operator binary.
    pub(crate) fn collect(operator: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = field(&read("/proc/cpuinfo"), "model name");
        let memory: u64 = field(&read("/proc/meminfo"), "MemTotal")
            .trim_end_matches(" kB")
            .parse()
            .unwrap_or_default();
        Self {
            date: jiff::Timestamp::now()
                .strftime("%Y-%m-%d %H:%M UTC")
                .to_string(),
            cpu,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: memory / (1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            operator: output(Command::new(operator).arg("--version")),
            commit: output(
                Command::new("git")
                    .args(["describe", "--always", "--dirty"])
                    .current_dir(repository()),
            ),
            apiserver: None,
            load_before: load(),
            load_after: None,
            started: Instant::now(),
            seconds: 0,
        }
    }

    /// The API server's version, once there is one.
    pub(crate) fn apiserver(&mut self, version: String) {
        self.apiserver = Some(version);
    }

    /// The run has ended.
    pub(crate) fn end(&mut self) {
        self.load_after = Some(load());
        self.seconds = self.started.elapsed().as_secs();
    }

    /// All facts in a sentence.
    pub(crate) fn sentence(&self) -> String {
        let apiserver = self.apiserver.as_deref().map_or_else(String::new, |v| {
            format!(", API server {v} and etcd without fsync on the same machine")
        });
        let end = self.load_after.as_deref().map_or_else(String::new, |after| {
            format!(
                "; the run took {} s, load of the machine (1 minute) {} before and {after} after it",
                self.seconds, self.load_before
            )
        });
        format!(
            "{}: {} cores of {}, {} GiB, kernel {}{apiserver}; {} (commit {}), release build{end}.",
            self.date,
            self.cores,
            self.cpu,
            self.memory_gib,
            self.kernel,
            self.operator,
            self.commit
        )
    }

    /// All facts as JSON.
    pub(crate) fn json(&self) -> Value {
        json!({
            "date": self.date, "cpu": self.cpu, "cores": self.cores, "memory_gib": self.memory_gib,
            "kernel": self.kernel, "operator": self.operator, "commit": self.commit,
            "apiserver": self.apiserver, "load_before": self.load_before, "load_after": self.load_after,
            "seconds": self.seconds, "seed": "none: nothing is drawn by chance",
        })
    }
}

/// The first `name : value` of a kernel file.
fn field(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_else(|| "unknown".to_owned())
}

/// The output of a program; "unknown" if it cannot be run.
fn output(command: &mut Command) -> String {
    command
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_kernels_files() {
        let text = "processor\t: 0\nmodel name\t: Fast One\nmodel name\t: Fast Two\n";
        assert_eq!(field(text, "model name"), "Fast One");
        assert_eq!(field("MemTotal:       24 kB\n", "MemTotal"), "24 kB");
        assert_eq!(field("", "MemTotal"), "unknown");
    }
}
