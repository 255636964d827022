//! Progress bars on standard error.

use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use onnxforge::progress::{Progress, Unit};

/// A bar that appears when the work takes longer than a moment.
#[derive(Debug, Default)]
pub struct Bar {
    visible: bool,
    bar: Mutex<Option<ProgressBar>>,
}

impl Bar {
    pub fn new(visible: bool) -> Self {
        Self { visible, bar: Mutex::new(None) }
    }

    fn with(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        if let Ok(mut bar) = self.bar.lock() {
            act(&mut bar);
        }
    }
}

impl Progress for Bar {
    fn begin(&self, what: &str, total: u64, unit: Unit) {
        if !self.visible {
            return;
        }
        let bar = ProgressBar::new(total).with_message(what.to_owned());
        let counts = match unit {
            Unit::Bytes => "{bytes}/{total_bytes}".to_owned(),
            other => format!("{{pos}}/{{len}} {}", other.name()),
        };
        if let Ok(style) = ProgressStyle::with_template(&format!("{{msg}} {{bar:40}} {counts} {{eta}}")) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        self.with(|slot| *slot = Some(bar));
    }

    fn advance(&self, units: u64) {
        self.with(|slot| {
            if let Some(bar) = slot {
                bar.inc(units);
            }
        });
    }

    fn end(&self) {
        self.with(|slot| {
            if let Some(bar) = slot.take() {
                bar.finish_and_clear();
            }
        });
    }
}
