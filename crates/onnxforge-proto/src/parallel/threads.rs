//! The threads of rayon.

/// How many threads work.
pub fn thread_count() -> usize {
    rayon::current_num_threads()
}

/// Does both, on two threads if one is free.
pub fn both(a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
    rayon::join(a, b);
}

/// Calls `job` on every thread that is free, and on at least one; back when all calls are.
pub(super) fn on_all(job: &(dyn Fn() + Sync)) {
    rayon::scope(|scope| {
        for _ in 1..thread_count() {
            scope.spawn(|_| job());
        }
        job();
    });
}
