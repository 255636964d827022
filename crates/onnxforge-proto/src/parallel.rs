//! Work on all cores: on rayon's threads with the feature `parallel`, on the calling thread without it.
//!
//! Threads take items from one iterator, so that what spreads the work is compiled once and not for each kind of items.

#[cfg_attr(not(feature = "parallel"), path = "parallel/one_thread.rs")]
mod threads;

use std::sync::{Mutex, PoisonError};

pub use self::threads::{both, thread_count};

/// Calls `work` with every item. A thread takes `least` items at a time, which should be worth some microseconds; no more than that
/// stay on the calling thread.
pub fn for_each<I: Iterator + Send>(items: I, least: usize, work: impl Fn(I::Item) + Sync) {
    let least = least.max(1);
    if thread_count() == 1 || items.size_hint().1.is_some_and(|count| count <= least) {
        return items.for_each(work);
    }
    let items = Mutex::new(items);
    threads::on_all(&|| {
        loop {
            // Nobody else cares for an iterator whose thread gave up, but all threads should come to an end.
            let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
            let batch: Vec<I::Item> = items.by_ref().take(least).collect();
            drop(items);
            if batch.is_empty() {
                return;
            }
            batch.into_iter().for_each(&work);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_item_has_its_turn_once() {
        for (count, least) in [(0, 1), (1, 0), (7, 7), (1000, 1), (1000, 64)] {
            let mut numbers = vec![0usize; count];
            let calls = AtomicUsize::new(0);
            for_each(numbers.chunks_mut(1).enumerate(), least, |(index, number)| {
                calls.fetch_add(1, Ordering::Relaxed);
                number[0] += index;
            });
            assert_eq!(calls.into_inner(), count);
            assert!(numbers.iter().enumerate().all(|(index, &number)| index == number));
        }
    }

    #[test]
    fn work_inside_of_work_ends() {
        let mut numbers = vec![0u32; 64 * 64];
        for_each(numbers.chunks_mut(64), 1, |row| for_each(row.iter_mut(), 1, |number| *number += 1));
        assert!(numbers.iter().all(|&number| number == 1));
    }
}
