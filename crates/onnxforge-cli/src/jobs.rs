//! Work on many things at a time.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use onnxforge::cancel::{self, checkpoint};
use onnxforge::progress::Progress;

/// How often the one who waits asks whether anybody still wants the answers.
const LOOK: Duration = Duration::from_millis(50);

/// Models may nest deeper than the stack of a common thread.
const STACK: usize = 16 << 20;

/// As many jobs as the machine has threads.
pub fn as_many_as_fit() -> NonZero<usize> {
    thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// Works on items, so many at a time, and gives the answers in the order of the items. Whoever cancels the work around this cancels all of them;
/// what they log goes where the work around this logs.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    jobs: NonZero<usize>,
    progress: &dyn Progress,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    if jobs.get() == 1 || items.len() < 2 {
        let answer = |item| {
            let answer = work(item);
            progress.advance(1);
            answer
        };
        return items.iter().map(answer).collect();
    }
    let (token, listener) = (cancel::watched(), tracing::dispatcher::get_default(Clone::clone));
    let next = AtomicUsize::new(0);
    let mut answers: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let (sender, received) = channel();
    let worker = |sender: Sender<(usize, R)>| {
        let (token, listener, next, work) = (&token, &listener, &next, &work);
        move || {
            tracing::dispatcher::with_default(listener, || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(place) else { break };
                    let answer = match token {
                        Some(token) => token.watch(|| work(item)).ok(),
                        None => Some(work(item)),
                    };
                    if answer.is_none_or(|answer| sender.send((place, answer)).is_err()) {
                        break;
                    }
                }
            });
        }
    };
    thread::scope(|threads| {
        let start = |_: &usize| {
            let thread = thread::Builder::new().stack_size(STACK);
            thread.spawn_scoped(threads, worker(sender.clone())).is_ok()
        };
        // Where the system starts no more threads, those that it has started do the work, or this one.
        if (0..jobs.get().min(items.len())).filter(start).count() == 0 {
            worker(sender.clone())();
        }
        drop(sender);
        loop {
            match received.recv_timeout(LOOK) {
                Ok((place, answer)) => {
                    answers[place] = Some(answer);
                    progress.advance(1);
                }
                Err(RecvTimeoutError::Timeout) => checkpoint(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        checkpoint();
    });
    answers.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnxforge::cancel::{Cancelled, Token};
    use onnxforge::progress::Silent;

    const FOUR: NonZero<usize> = NonZero::new(4).unwrap();

    #[test]
    fn answers_have_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        let work = |item: &u64| {
            thread::sleep(Duration::from_millis(5 - item % 5));
            item * 2
        };
        let expected: Vec<u64> = items.iter().map(|item| item * 2).collect();
        assert_eq!(each(&items, FOUR, &Silent, work), expected);
        assert_eq!(each(&items, NonZero::<usize>::MIN, &Silent, |item| item * 2), expected);
        assert_eq!(each(&[], FOUR, &Silent, work), [0u64; 0]);
    }

    #[test]
    fn who_cancels_the_work_cancels_every_job() {
        let token = Token::default();
        let work = |item: &usize| {
            if *item == 3 {
                token.cancel();
            }
            loop {
                checkpoint();
                thread::sleep(Duration::from_millis(1));
            }
        };
        assert!(matches!(
            token.watch(|| each(&[0, 1, 2, 3, 4, 5], FOUR, &Silent, work)),
            Err::<Vec<()>, _>(Cancelled)
        ));
    }
}
