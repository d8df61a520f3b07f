//! Owns the life of one container: started, probed, stopped, started again.

use std::convert::Infallible;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::jiff::Timestamp;
use nix::sys::signal::Signal;
use tokio::time::{Instant, timeout_at};

use super::context::PodContext;
use super::env::{command_line, environment};
use super::fields::Addresses;
use super::image::Image;
use super::inside::{Exec, Mount, START_FAILED, Spec};
use super::launch::{Launched, failure};
use super::network::PodNetwork;
use super::probe::Target;
use super::sources::Sources;
use super::state::ContainerState;
use super::volumes::Volumes;

/// Pause before a program is started again, doubled each time. A kubelet begins with 10 s, tests do not wait that long.
const BACK_OFF: Duration = Duration::from_millis(250);
/// Longest pause; a kubelet's is 5 min.
const BACK_OFF_CAP: Duration = Duration::from_secs(8);
/// A program that ran this long is started again without a pause; with a kubelet 10 min.
const STABLE: Duration = Duration::from_secs(30);
/// Pause after a failed attempt to start, because something is missing.
const RETRY: Duration = Duration::from_secs(1);
/// What a program has at least between SIGTERM and SIGKILL, however long the hook took.
const LEAST: Duration = Duration::from_secs(2);
/// Longest termination message, in bytes.
const MESSAGE: usize = 4096;
/// Of it, if it is the end of the log.
const LOG_TAIL: usize = 2048;

/// What a Pod's containers run in.
pub(crate) struct Prepared {
    pub(crate) network: PodNetwork,
    pub(crate) addresses: Addresses,
    pub(crate) volumes: Volumes,
    pub(crate) sources: Sources,
    /// The files below `/etc` that belong to the Pod.
    pub(crate) etc: Vec<Mount>,
}

/// One container of a Pod.
pub(crate) struct Life<'a> {
    pub(crate) pod: &'a PodContext,
    pub(crate) prepared: &'a Prepared,
    pub(crate) container: &'a Container,
    /// Place in the state, init containers first.
    pub(crate) index: usize,
    /// Runs to its end before all others.
    pub(crate) init: bool,
}

/// How a run ended.
struct End {
    code: i32,
    reason: &'static str,
    /// The Pod is to end, so this was the last run.
    last: bool,
}

impl Life<'_> {
    /// Runs the container until it has ended for good. True if with success.
    pub(crate) async fn run(&self) -> bool {
        if let Some(code) = self.ended() {
            return code == 0;
        }
        let mut pause = BACK_OFF;
        let mut number = 0;
        loop {
            number += 1;
            let began = Instant::now();
            let folder = self.folder(number);
            let end = tokio::select! {
                biased;
                started = self.start(&folder) => match started {
                    Ok(mut process) => self.supervise(&mut process).await,
                    Err(error) => {
                        let message = format!("{error:#}");
                        self.update(|state| state.cannot_start("CreateContainerConfigError", message));
                        if self.pod.pause(RETRY).await {
                            return false;
                        }
                        continue;
                    }
                },
                _ = self.pod.end_asked() => return false,
            };
            self.not_running();
            let message = self.message(&folder, end.code).await;
            let reason = if failure(&folder).is_empty() {
                end.reason
            } else {
                "StartError"
            };
            let again = !end.last && self.is_restarted(end.code);
            self.update(|state| {
                state.ended(end.code, reason, message, Timestamp::now());
                if again {
                    state.waits();
                }
            });
            // An error leaves files in memory until the process ends.
            let _ = std::fs::remove_dir_all(&folder);
            if !again {
                return end.code == 0;
            }
            if began.elapsed() > STABLE {
                pause = BACK_OFF;
            } else if self.pod.pause(pause).await {
                return false;
            } else {
                pause = (pause * 2).min(BACK_OFF_CAP);
            }
        }
    }

    /// Exit code, if it ended for good before its node lost power.
    fn ended(&self) -> Option<i32> {
        let mut state = self.pod.state.borrow().clone();
        state.container(self.index).and_then(|state| state.code())
    }

    fn is_restarted(&self, code: i32) -> bool {
        match self.pod.spec.restart_policy.as_deref() {
            Some("Never") => false,
            Some("OnFailure") => code != 0,
            _ => !self.init || code != 0,
        }
    }

    fn update(&self, change: impl FnOnce(&mut ContainerState)) {
        self.pod.state.send_modify(|state| {
            if let Some(container) = state.container(self.index) {
                change(container);
            }
        });
    }

    /// Folder of one run.
    fn folder(&self, number: u32) -> PathBuf {
        let name = format!("{}.{number}", self.container.name);
        self.pod.scratch.join("containers").join(name)
    }

    fn log(&self) -> PathBuf {
        let (namespace, pod) = &self.pod.key;
        self.pod.host.log(namespace, pod, &self.container.name)
    }

    async fn start(&self, folder: &Path) -> anyhow::Result<Launched> {
        let name = self.container.image.as_deref().unwrap_or_default();
        let image = self.pod.host.images.lock().get(name).cloned();
        let image = image.with_context(|| format!("the Pod runner has no image {name:?}"))?;
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder)?;
        let spec = self.spec(&image, folder).await?;
        let log = self.log();
        std::fs::create_dir_all(log.parent().context("no folder")?)?;
        let process = Launched::start(&self.prepared.network.netns, &spec, &log).await?;
        let command = process.command();
        if let Some(live) = self.pod.host.live.lock().get_mut(&self.pod.key)
            && live.uid == self.pod.uid
        {
            live.running.insert(self.container.name.clone(), command);
        }
        Ok(process)
    }

    fn not_running(&self) {
        if let Some(live) = self.pod.host.live.lock().get_mut(&self.pod.key)
            && live.uid == self.pod.uid
        {
            live.running.remove(&self.container.name);
        }
    }

    async fn spec(&self, image: &Image, folder: &Path) -> anyhow::Result<Spec> {
        let (container, prepared) = (self.container, self.prepared);
        let host_name = self.pod.host_name();
        let env = environment(
            &self.pod.pod,
            container,
            image,
            &host_name,
            prepared.addresses,
            &prepared.sources,
        )
        .await?;
        let args = command_line(container, image, &env);
        let mut mounts = prepared.etc.clone();
        mounts.extend(prepared.volumes.mounts(container, &env)?);
        let message = folder.join("message");
        std::fs::write(&message, "")?;
        let path = container.termination_message_path.as_deref();
        mounts.push(Mount {
            source: message,
            target: path.unwrap_or("/dev/termination-log").into(),
            read_only: false,
        });
        // A folder before what is below it.
        mounts.sort_by(|a, b| a.target.cmp(&b.target));
        let (uid, gid) = self.user(image)?;
        let own = container.security_context.as_ref();
        let added = own.and_then(|s| s.capabilities.as_ref());
        let added = added.is_some_and(|c| c.add.as_ref().is_some_and(|list| !list.is_empty()));
        let work_dir = container.working_dir.as_ref().map(PathBuf::from);
        Ok(Spec {
            image: image.root.clone(),
            folder: folder.to_owned(),
            read_only: own.is_some_and(|s| s.read_only_root_filesystem == Some(true)),
            mounts,
            host_name,
            uid,
            gid,
            privileged: uid == 0 && (added || own.is_some_and(|s| s.privileged == Some(true))),
            no_new_privileges: own.is_some_and(|s| s.allow_privilege_escalation == Some(false)),
            env,
            args,
            work_dir: work_dir
                .or_else(|| image.work_dir.clone())
                .unwrap_or_else(|| "/".into()),
        })
    }

    /// User and group: the container's, else the Pod's, else the image's.
    fn user(&self, image: &Image) -> anyhow::Result<(u32, u32)> {
        let own = self.container.security_context.as_ref();
        let pods = self.pod.spec.security_context.as_ref();
        let uid = own
            .and_then(|s| s.run_as_user)
            .or_else(|| pods?.run_as_user);
        let gid = own
            .and_then(|s| s.run_as_group)
            .or_else(|| pods?.run_as_group);
        let uid = uid.map_or(Ok(image.user.0), u32::try_from)?;
        let gid = gid.map_or(Ok(image.user.1), u32::try_from)?;
        let non_root = own
            .and_then(|s| s.run_as_non_root)
            .or_else(|| pods?.run_as_non_root);
        if non_root == Some(true) && uid == 0 {
            bail!("container has runAsNonRoot and image will run as root");
        }
        Ok((uid, gid))
    }

    /// Probes a running container and waits for its end.
    async fn supervise(&self, process: &mut Launched) -> End {
        self.update(|state| state.runs(Timestamp::now()));
        let command = process.command();
        let command = |args: &[String]| Exec {
            args: args.to_vec(),
            ..command.clone()
        };
        let target = Target {
            container: self.container,
            node: &self.pod.machine.netns,
            netns: &self.prepared.network.netns,
            address: self.prepared.network.address.into(),
            command: &command,
        };
        let grace = tokio::select! {
            biased;
            status = process.wait() => return end_of(status),
            grace = self.pod.end_asked() => Ok(grace),
            failed = self.probe(&target) => Err(failed),
        };
        match grace {
            Ok(grace) => {
                let code = self.stop(process, &target, grace).await;
                End { last: true, ..code }
            }
            Err(grace) => self.stop(process, &target, grace).await,
        }
    }

    /// Runs all probes; returns when the container is to be stopped, with the time that it has for it.
    async fn probe(&self, target: &Target<'_>) -> Duration {
        let container = self.container;
        let seconds =
            |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let pods = self.pod.spec.termination_grace_period_seconds.unwrap_or(30);
        if let Some(probe) = &container.startup_probe
            && target.watch(probe, Some).await.is_err()
        {
            return seconds(probe.termination_grace_period_seconds.unwrap_or(pods));
        }
        self.update(|state| {
            state.started = true;
            state.ready = container.readiness_probe.is_none();
        });
        let readiness = async {
            match &container.readiness_probe {
                None => std::future::pending::<Infallible>().await,
                Some(probe) => {
                    let decide = |verdict: Result<(), String>| {
                        self.update(|state| state.ready = verdict.is_ok());
                        None
                    };
                    target.watch(probe, decide).await
                }
            }
        };
        let liveness = async {
            match &container.liveness_probe {
                None => std::future::pending().await,
                Some(probe) => {
                    target.watch(probe, Result::err).await;
                    seconds(probe.termination_grace_period_seconds.unwrap_or(pods))
                }
            }
        };
        tokio::select! {
            grace = liveness => grace,
            never = readiness => match never {},
        }
    }

    /// The hook, SIGTERM, and SIGKILL when the time is over.
    async fn stop(&self, process: &mut Launched, target: &Target<'_>, grace: Duration) -> End {
        let deadline = Instant::now() + grace;
        let hook = self.container.lifecycle.as_ref();
        if let Some(hook) = hook.and_then(|l| l.pre_stop.as_ref()) {
            tokio::select! {
                status = process.wait() => return end_of(status),
                // A hook that fails does not keep a container alive.
                _ = target.hook(hook, grace) => {}
            }
        }
        process.signal(Signal::SIGTERM);
        let deadline = deadline.max(Instant::now() + LEAST.min(grace));
        if let Ok(status) = timeout_at(deadline, process.wait()).await {
            return end_of(status);
        }
        process.signal(Signal::SIGKILL);
        end_of(process.wait().await)
    }

    /// The termination message: what the program wrote, why it was not started, or the end of its log.
    async fn message(&self, folder: &Path, code: i32) -> String {
        let failure = failure(folder);
        if !failure.is_empty() {
            return failure;
        }
        let written = tokio::fs::read(folder.join("message"))
            .await
            .unwrap_or_default();
        let policy = self.container.termination_message_policy.as_deref();
        if written.is_empty() && code != 0 && policy == Some("FallbackToLogsOnError") {
            let log = tokio::fs::read(self.log()).await.unwrap_or_default();
            return tail(&log, LOG_TAIL);
        }
        tail(&written, MESSAGE)
    }
}

fn tail(bytes: &[u8], length: usize) -> String {
    let from = bytes.len().saturating_sub(length);
    String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned()
}

fn end_of(status: anyhow::Result<ExitStatus>) -> End {
    // An error is one of waiting; there is no process then.
    let code = status.map_or(START_FAILED, |status| {
        let signal = || status.signal().map_or(START_FAILED, |signal| 128 + signal);
        status.code().unwrap_or_else(signal)
    });
    End {
        code,
        reason: if code == 0 { "Completed" } else { "Error" },
        last: false,
    }
}
