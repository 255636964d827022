//! Time and memory of other programs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// How often memory is looked at.
const INTERVAL: Duration = Duration::from_millis(2);

/// What a program used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub seconds: f64,
    /// The most memory of its own, which is not a part of any file; 0 where the system does not tell.
    pub anonymous: u64,
    /// The most memory of all kinds, mapped files included.
    pub resident: u64,
}

/// Runs `command` to its end while watching it.
pub fn watch(command: &mut Command) -> Result<Usage> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().with_context(|| format!("{command:?}"))?;
    let status = format!("/proc/{}/status", child.id());
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let watcher = std::thread::spawn(move || {
        let (mut anonymous, mut resident) = (0, 0);
        loop {
            if let Ok(text) = std::fs::read_to_string(&status) {
                anonymous = anonymous.max(field(&text, "RssAnon:"));
                resident = resident.max(field(&text, "VmHWM:"));
            }
            match stopped.recv_timeout(INTERVAL) {
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                _ => return (anonymous, resident),
            }
        }
    });
    let ended = child.wait()?;
    let seconds = start.elapsed().as_secs_f64();
    drop(stop);
    let (anonymous, resident) = watcher.join().unwrap_or_default();
    ensure!(ended.success(), "{command:?} failed ({ended})");
    Ok(Usage { seconds, anonymous, resident })
}

/// A field of `/proc/PID/status` in bytes.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The value in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.get(values.len() / 2)) {
        (_, None) => f64::NAN,
        (count, Some(&upper)) if count % 2 == 0 => {
            (values.get(count / 2 - 1).copied().unwrap_or(upper) + upper) / 2.0
        }
        (_, Some(&middle)) => middle,
    }
}

/// Brings everything that is waiting to the disk, so that it does not count against what comes next.
pub fn settle() -> Result<()> {
    let done = Command::new("sync").status().context("cannot run sync")?;
    ensure!(done.success(), "sync failed");
    Ok(())
}

/// Brings every file in `folder`, and the folder, to the disk.
pub fn sync_all(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        std::fs::File::open(entry?.path())?.sync_all()?;
    }
    std::fs::File::open(folder)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_values() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn fields_are_in_kilobytes() {
        let status = "Name:\tx\nVmHWM:\t  12 kB\nRssAnon:\t     345 kB\n";
        assert_eq!(field(status, "RssAnon:"), 345 * 1024);
        assert_eq!(field(status, "VmHWM:"), 12 * 1024);
        assert_eq!(field(status, "Nothing:"), 0);
    }
}
