//! Large buffers that are used again.
//!
//! Memory that comes from the system comes page by page, each with a fault, which may take longer than the operator.
//! While something runs, buffers that nobody holds any more stay here for the next results of about their size, as long as all
//! together take a quarter more at most than the values that were there at one time.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Buffers from this many bytes on count.
const LARGE: usize = 1 << 18;

/// What is kept: nearly all large values are of 32-bit floats.
#[derive(Default)]
struct Spare {
    buffers: Vec<Vec<f32>>,
    /// Bytes of these.
    kept: usize,
    /// Bytes of the buffers that somebody holds, and how many there have been at one time.
    held: usize,
    most: usize,
    /// How many runs there are that may use what is kept.
    runs: usize,
}

static SPARE: Mutex<Spare> = Mutex::new(Spare { buffers: Vec::new(), kept: 0, held: 0, most: 0, runs: 0 });

fn spare() -> MutexGuard<'static, Spare> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Spare {
    /// Takes what is kept beyond the limit, the smallest buffers first, for somebody to drop.
    fn surplus(&mut self) -> Vec<Vec<f32>> {
        let limit = if self.runs > 0 { self.most + self.most / 4 } else { 0 };
        self.buffers.sort_unstable_by_key(|buffer| std::cmp::Reverse(buffer.capacity()));
        let mut surplus = Vec::new();
        while self.held + self.kept > limit
            && let Some(buffer) = self.buffers.pop()
        {
            self.kept -= bytes(&buffer);
            surplus.push(buffer);
        }
        surplus
    }
}

fn bytes<T>(elements: &Vec<T>) -> usize {
    elements.capacity().saturating_mul(size_of::<T>())
}

/// Buffers are kept while one of these is there.
pub struct Reuse(());

impl Reuse {
    /// For the time of a run.
    pub fn begin() -> Self {
        let mut spare = spare();
        if spare.runs == 0 {
            spare.most = spare.held;
        }
        spare.runs += 1;
        Self(())
    }
}

impl Drop for Reuse {
    fn drop(&mut self) {
        let mut spare = spare();
        spare.runs -= 1;
        let surplus = if spare.runs == 0 { spare.surplus() } else { Vec::new() };
        drop((spare, surplus));
    }
}

/// Elements that somebody holds. When they are dropped, their memory may be used again.
pub struct Held<T: 'static>(Vec<T>);

impl<T: 'static> Held<T> {
    pub fn new(elements: Vec<T>) -> Self {
        if bytes(&elements) >= LARGE {
            let mut spare = spare();
            spare.held += bytes(&elements);
            spare.most = spare.most.max(spare.held);
            let surplus = spare.surplus();
            drop((spare, surplus));
        }
        Self(elements)
    }

    pub fn elements(&self) -> &Vec<T> {
        &self.0
    }

    /// The elements, which nobody is said to hold any more.
    pub fn into_elements(mut self) -> Vec<T> {
        let elements = std::mem::take(&mut self.0);
        if bytes(&elements) >= LARGE {
            spare().held -= bytes(&elements);
        }
        elements
    }
}

impl<T: 'static> Drop for Held<T> {
    fn drop(&mut self) {
        let size = bytes(&self.0);
        if size < LARGE {
            return;
        }
        let mut elements = Some(std::mem::take(&mut self.0));
        let mut spare = spare();
        spare.held -= size;
        let floats = (&mut elements as &mut dyn Any).downcast_mut::<Option<Vec<f32>>>();
        if let Some(floats) = floats.and_then(Option::take) {
            spare.kept += size;
            spare.buffers.push(floats);
        }
        let surplus = spare.surplus();
        drop((spare, surplus));
    }
}

/// So many elements with any value, for whoever writes them all.
pub fn unset<T: Clone + Default + 'static>(count: usize) -> Vec<T> {
    taken(count).unwrap_or_else(|| vec![T::default(); count])
}

/// The smallest buffer that is long enough, unless a part of it would lie idle.
fn taken<T: 'static>(count: usize) -> Option<Vec<T>> {
    let mut found: Option<Vec<f32>> = None;
    if count.saturating_mul(size_of::<T>()) < LARGE || !(&found as &dyn Any).is::<Option<Vec<T>>>() {
        return None;
    }
    let mut spare = spare();
    let fits = |buffer: &Vec<f32>| buffer.len() >= count && buffer.capacity() <= count + count / 4;
    let places = spare.buffers.iter().enumerate().filter(|(_, buffer)| fits(buffer));
    let (place, _) = places.min_by_key(|(_, buffer)| buffer.capacity())?;
    let mut buffer = spare.buffers.swap_remove(place);
    spare.kept -= bytes(&buffer);
    buffer.truncate(count);
    found = Some(buffer);
    (&mut found as &mut dyn Any).downcast_mut::<Option<Vec<T>>>().and_then(Option::take)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_below_the_limit() {
        let buffer = |count: usize| vec![0f32; count];
        let mut spare = Spare { most: 800, held: 200, runs: 1, ..Spare::default() };
        for count in [100, 50, 40] {
            spare.kept += bytes(&buffer(count));
            spare.buffers.push(buffer(count));
        }
        // 200 bytes are held and 760 are kept; 1,000 are allowed.
        assert!(spare.surplus().is_empty());
        spare.held = 500;
        let sizes: Vec<usize> = spare.surplus().iter().map(Vec::len).collect();
        assert_eq!((sizes, spare.kept), (vec![40, 50], 400), "the smallest go first");
        spare.runs = 0;
        assert_eq!((spare.surplus().len(), spare.kept), (1, 0), "nothing is kept when nothing runs");
    }

    #[test]
    fn elements_come_back_as_they_were() {
        let _reuse = Reuse::begin();
        assert_eq!(Held::new(vec![1f32; LARGE]).into_elements(), vec![1.0; LARGE]);
        assert_eq!(unset::<f32>(LARGE + 1).len(), LARGE + 1);
        assert_eq!(unset::<i32>(LARGE), vec![0; LARGE], "buffers of other types are new");
    }
}
