//! Stopping work that nobody waits for any more.
//!
//! Long work passes [`checkpoint`]s. Under [`Token::watch`] they end it, once the token is cancelled, by unwinding to where it began: no
//! error type has to know of it, and what the work owned is dropped on the way, staged files included.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static WATCHED: RefCell<Option<Token>> = const { RefCell::new(None) };
}

/// The work was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// Cancels work from another thread.
#[derive(Clone, Debug, Default)]
pub struct Token(Arc<AtomicBool>);

impl Token {
    /// The work ends at its next checkpoint.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Does work that ends early when this token is cancelled. The work must own what it changes: it may end at any checkpoint.
    pub fn watch<T>(&self, work: impl FnOnce() -> T) -> Result<T, Cancelled> {
        let outer = WATCHED.replace(Some(self.clone()));
        let done = catch_unwind(AssertUnwindSafe(work));
        WATCHED.set(outer);
        done.map_err(|reason| match reason.downcast::<Cancelled>() {
            Ok(cancelled) => *cancelled,
            Err(panic) => resume_unwind(panic),
        })
    }
}

/// Where work on this thread may end because its token was cancelled; without one, nothing happens.
pub fn checkpoint() {
    let is_cancelled = WATCHED.with_borrow(|token| {
        token.as_ref().is_some_and(|Token(cancelled)| cancelled.load(Ordering::Relaxed))
    });
    if is_cancelled && !std::thread::panicking() {
        resume_unwind(Box::new(Cancelled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_at_the_next_checkpoint_and_only_when_it_is_watched() {
        let token = Token::default();
        assert_eq!(
            token.watch(|| {
                checkpoint();
                1
            }),
            Ok(1)
        );
        token.cancel();
        checkpoint();
        assert_eq!(token.watch(checkpoint), Err(Cancelled));
        assert_eq!(Token::default().watch(|| token.watch(checkpoint)), Ok(Err(Cancelled)));
        checkpoint();
    }

    #[test]
    fn other_panics_go_on() {
        let panicked = catch_unwind(|| Token::default().watch(|| panic!("of another kind")));
        assert!(panicked.is_err());
    }
}
