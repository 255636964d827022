//! Other processes that work for a command.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onnxforge::cancel::checkpoint;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// How often a process that runs is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Another program of ours: the one that lies beside the program that runs, or the first in the search path.
pub fn find(name: &str, running: &[OsString]) -> Option<PathBuf> {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let beside = running.first().and_then(|program| Path::new(program).parent());
    let searched = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.map(Path::to_owned).into_iter().chain(std::env::split_paths(&searched));
    // What a relative path leads to depends on where somebody stands, and may be anybody's.
    folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(&file)).find(|path| path.is_file())
}

/// Becomes another program, or where the system has no such thing runs it and ends as it ends. Returns only if it cannot be started.
pub fn replace_with(command: &mut Command) -> io::Error {
    #[cfg(unix)]
    return std::os::unix::process::CommandExt::exec(command);
    #[cfg(not(unix))]
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(crate::failure::FAILED.into())),
        Err(error) => error,
    }
}

/// What a process may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory of its own; only Linux limits that.
    pub memory: Option<u64>,
    /// How long it may take.
    pub time: Option<Duration>,
}

impl Limits {
    /// Whether these leave more room than others.
    pub fn exceed(&self, others: &Self) -> bool {
        let more = |limit: Option<f64>, other: Option<f64>| {
            limit.unwrap_or(f64::INFINITY) > other.unwrap_or(f64::INFINITY)
        };
        more(self.memory.map(|bytes| bytes as f64), others.memory.map(|bytes| bytes as f64))
            || more(self.time.map(|time| time.as_secs_f64()), others.time.map(|time| time.as_secs_f64()))
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code, negative for a signal; nothing if its time was up.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub out: Vec<u8>,
    /// What it said on standard error.
    pub said: String,
}

/// A process that ends with whoever waits for it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already needs nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What watching needs, in bytes.
#[cfg(unix)]
const WATCHER_STACK: usize = 64 << 10;

/// Names the process that started one of ours.
#[cfg(unix)]
const STARTED_BY: &str = "ONNXFORGE_STARTED_BY";

/// Ends this process once the one of ours that started it is gone: whoever is killed cannot end those that work for it.
#[cfg(unix)]
pub fn end_with_starter() {
    use std::os::unix::process::parent_id;
    let starter = std::env::var(STARTED_BY).ok().and_then(|id| id.parse::<u32>().ok());
    if let Some(starter) = starter.filter(|&starter| starter == parent_id()) {
        let watch = move || {
            while parent_id() == starter {
                std::thread::sleep(LOOK);
            }
            std::process::exit(crate::failure::FAILED.into());
        };
        // Where the system has no room for one more thread, nobody watches, and the work goes on to its end.
        let _ = std::thread::Builder::new().stack_size(WATCHER_STACK).spawn(watch);
    }
}

/// Ends this process once the one of ours that started it is gone; not on this system.
#[cfg(not(unix))]
pub fn end_with_starter() {}

/// Runs a command until it ends, its time is up, or nobody waits for it any more.
pub fn run(command: &mut Command, limits: Limits) -> Result<Ended, Failure> {
    let folder = tempfile::tempdir()?;
    let [out, err] = ["out", "err"].map(|name| folder.path().join(name));
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    #[cfg(unix)]
    command.env(STARTED_BY, std::process::id().to_string());
    if limits.memory.is_some() {
        // A trace of where memory ran out needs memory: the process would wait for itself instead of ending.
        command.env("RUST_BACKTRACE", "0");
    }
    let mut running = Running(command.spawn()?);
    limit_memory(&running.0, limits.memory);
    let start = Instant::now();
    let code = loop {
        if let Some(status) = running.0.try_wait()? {
            #[cfg(unix)]
            let signal = std::os::unix::process::ExitStatusExt::signal(&status);
            #[cfg(not(unix))]
            let signal: Option<i32> = None;
            break Some(status.code().unwrap_or_else(|| -signal.unwrap_or(1)));
        }
        if limits.time.is_some_and(|time| start.elapsed() > time) {
            break None;
        }
        checkpoint();
        std::thread::sleep(LOOK);
    };
    drop(running);
    let said = String::from_utf8_lossy(&std::fs::read(&err)?).into_owned();
    Ok(Ended { code, out: std::fs::read(&out)?, said })
}

#[cfg(target_os = "linux")]
fn limit_memory(child: &Child, memory: Option<u64>) {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    if let (Some(memory), Ok(id)) = (memory, i32::try_from(child.id())) {
        // A process that has ended already needs no limit.
        let _ = prlimit(
            Pid::from_raw(id),
            Resource::Data,
            Rlimit { current: Some(memory), maximum: Some(memory) },
        );
    }
}

#[cfg(not(target_os = "linux"))]
fn limit_memory(_: &Child, _: Option<u64>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_beside_the_one_that_runs() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join(format!("onnxforge-other{}", std::env::consts::EXE_SUFFIX));
        let running = [folder.path().join("onnxforge").into_os_string()];
        assert_eq!(find("onnxforge-other", &running), None);
        std::fs::write(&other, "").unwrap();
        assert_eq!(find("onnxforge-other", &running), Some(other));
        assert_eq!(find("onnxforge-other", &["onnxforge".into()]), None);
        assert_eq!(find("onnxforge-other", &[]), None);
    }
}
