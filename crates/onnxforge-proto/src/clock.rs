//! The time, for limits and reports.
//!
//! `wasm32-unknown-unknown` has no clock (asking the standard library for the time panics there): no time passes, so limits of time
//! are never reached, and what is reported to have taken time took none. Limits of memory and of counts hold everywhere.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use std::time::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use stopped::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod stopped {
    use std::ops::{Add, Sub};
    use std::time::Duration;

    /// A moment: how long after the start of the program.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Instant(Duration);

    impl Instant {
        /// The start of the program.
        pub fn now() -> Self {
            Self(Duration::ZERO)
        }

        /// The time that passed since then: none.
        pub fn elapsed(&self) -> Duration {
            Duration::ZERO
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, duration: Duration) -> Self {
            Self(self.0.saturating_add(duration))
        }
    }

    impl Sub for Instant {
        type Output = Duration;

        fn sub(self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }
    }
}
