//! Stopping work that nobody waits for any more.
//!
//! Long work passes [`checkpoint`]s. Under [`Token::watch`] they end it, once the token is cancelled, by unwinding to where it began: no
//! error type has to know of it, and what the work owned is dropped on the way, staged files included.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

thread_local! {
    static WATCHED: RefCell<Option<Token>> = const { RefCell::new(None) };
}

/// The work was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// Cancels work from another thread.
#[derive(Clone, Default)]
pub struct Token(Arc<State>);

#[derive(Default)]
struct State {
    is_cancelled: AtomicBool,
    /// What ends work that passes no checkpoints.
    stops: Mutex<BTreeMap<usize, Box<dyn Fn() + Send>>>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.0.is_cancelled).finish()
    }
}

impl Token {
    /// The work ends at its next checkpoint.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::SeqCst);
        if let Ok(stops) = self.0.stops.lock() {
            stops.values().for_each(|stop| stop());
        }
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
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
    let is_cancelled = WATCHED.with_borrow(|token| token.as_ref().is_some_and(Token::is_cancelled));
    if is_cancelled && !std::thread::panicking() {
        resume_unwind(Box::new(Cancelled));
    }
}

/// The token that watches this thread, for threads that work for it.
pub fn watched() -> Option<Token> {
    WATCHED.with_borrow(Clone::clone)
}

/// For work on this thread that passes no checkpoints: `stop` is called, from another thread, when it is cancelled while the answer is held.
pub fn on_cancel(stop: impl Fn() + Send + 'static) -> OnCancel {
    let token = watched();
    let mut place = 0;
    if let Some(Ok(mut stops)) = token.as_ref().map(|token| token.0.stops.lock()) {
        place = stops.last_key_value().map_or(0, |(last, _)| last + 1);
        stops.insert(place, Box::new(stop));
    }
    let held = OnCancel { token, place };
    // Whoever cancelled before that has not called it.
    checkpoint();
    held
}

/// See [`on_cancel`].
#[derive(Debug)]
pub struct OnCancel {
    token: Option<Token>,
    place: usize,
}

impl Drop for OnCancel {
    fn drop(&mut self) {
        if let Some(Ok(mut stops)) = self.token.as_ref().map(|token| token.0.stops.lock()) {
            stops.remove(&self.place);
        }
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
    fn what_passes_no_checkpoints_is_stopped() {
        let (token, (sender, stopped)) = (Token::default(), std::sync::mpsc::channel());
        let work = || {
            let again = sender.clone();
            let held = on_cancel(move || again.send(()).unwrap());
            drop(on_cancel(|| panic!("not held any more")));
            token.cancel();
            stopped.recv().unwrap();
            drop(held);
            token.cancel();
            assert!(stopped.try_recv().is_err());
            checkpoint();
        };
        assert_eq!(token.watch(work), Err(Cancelled));
        assert!(matches!(token.watch(|| on_cancel(|| {})), Err(Cancelled)));
        drop(on_cancel(|| panic!("nobody watches")));
    }

    #[test]
    fn other_panics_go_on() {
        let panicked = catch_unwind(|| Token::default().watch(|| panic!("of another kind")));
        assert!(panicked.is_err());
    }
}
