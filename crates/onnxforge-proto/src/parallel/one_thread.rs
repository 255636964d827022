//! In place of rayon's threads, in a build without them: the calling thread.

/// How many threads work: the calling one.
pub fn thread_count() -> usize {
    1
}

/// Does both, one after the other.
pub fn both(a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
    a();
    b();
}

/// Calls `job`.
pub(super) fn on_all(job: &(dyn Fn() + Sync)) {
    job();
}
