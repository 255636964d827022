//! How much memory runs may take.

/// What runs may take where nothing is known of the machine.
const UNKNOWN: u64 = 4 << 30;

/// Bytes that the values of a run may take unless told otherwise: a quarter of what is free.
pub fn allowed() -> u64 {
    free().map_or(UNKNOWN, |free| free / 4)
}

/// Bytes that a process can still get, as far as the system tells.
#[cfg(target_os = "linux")]
fn free() -> Option<u64> {
    let field = |file: &str, name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
    };
    let free = field("/proc/meminfo", "MemAvailable:")?;
    // `ulimit -v` leaves less.
    let limits = std::fs::read_to_string("/proc/self/limits").ok();
    let line =
        limits.as_deref().and_then(|text| text.lines().find(|line| line.starts_with("Max address space")));
    let limit = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    let taken = field("/proc/self/status", "VmSize:").unwrap_or(0);
    Some(limit.map_or(free, |limit| free.min(limit.saturating_sub(taken))))
}

/// Bytes that a process can still get, as far as the system tells.
#[cfg(not(target_os = "linux"))]
fn free() -> Option<u64> {
    None
}
