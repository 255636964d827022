//! How much memory a thread holds. A test that asks makes [`Counting`] its global allocator.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count for each thread.
pub struct Counting;

thread_local! {
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// Notes a change of the bytes that this thread holds, and the peak.
fn note(change: isize) {
    // Not there while a thread ends; then nobody measures.
    let _ = HELD.try_with(|held| {
        let (now, peak) = held.get();
        held.set((now + change, peak.max(now + change)));
    });
}

// SAFETY: every call is handed to the system allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // At worst the old and the new block exist at the same time.
        note(size as isize);
        note(-(layout.size() as isize));
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The most that `run` held at any moment, over what was held before.
pub fn peak<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let start = HELD.with(|held| {
        let now = held.get().0;
        held.set((now, now));
        now
    });
    let result = run();
    (result, (HELD.with(Cell::get).1 - start) as usize)
}
