//! What commands show: text for people, JSON for programs.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, TableComponent};
use onnxforge::io::External;
use onnxforge::ir::Model;
use onnxforge::progress::Progress;
use serde::Serialize;

use crate::failure::Failure;
use crate::files::{Files, WrittenFile};
use crate::globals::{Globals, JsonTarget};
use crate::progress::Bar;

/// Where a command works: where its files are, and who sees its progress and its result.
pub struct Output {
    /// The way to files.
    pub files: Files,
    audience: Audience,
    progress: Box<dyn Progress + Send + Sync>,
    /// How to start a command of `onnxforge` in another process.
    pub program: Vec<OsString>,
    /// The options of all commands, as they were given.
    pub globals: Globals,
}

/// Who sees the result.
enum Audience {
    /// A person at a terminal, or a program behind a pipe.
    Console,
    /// The program that this one is a part of.
    Caller(Mutex<Shown>),
}

/// What a command shows to the program that called it.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The result as JSON.
    pub json: String,
    /// The result as text for people.
    pub text: String,
}

impl Output {
    /// For the command line.
    pub fn console(globals: Globals, files: Files, program: Vec<OsString>) -> Self {
        let progress = Box::new(Bar::new(!globals.quiet && io::stderr().is_terminal()));
        Self { files, audience: Audience::Console, progress, program, globals }
    }

    /// For a program that calls a command.
    pub fn caller(
        globals: Globals,
        files: Files,
        progress: Box<dyn Progress + Send + Sync>,
        program: Vec<OsString>,
    ) -> Self {
        Self { files, audience: Audience::Caller(Mutex::default()), progress, program, globals }
    }

    /// What was shown to the caller.
    pub fn shown(&self) -> Shown {
        match &self.audience {
            Audience::Console => Shown::default(),
            Audience::Caller(shown) => shown.lock().map(|shown| shown.clone()).unwrap_or_default(),
        }
    }

    /// Shows a result: as JSON where that was asked for, and as text by `show` where a person reads.
    pub fn result<T: Serialize>(
        &self,
        data: &T,
        show: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        if let Audience::Caller(shown) = &self.audience {
            let mut text = Vec::new();
            show(&mut Harmless(&mut text))?;
            if let Ok(mut shown) = shown.lock() {
                shown.json = serde_json::to_string(data)?;
                shown.text.push_str(&String::from_utf8_lossy(&text));
            }
            return Ok(());
        }
        match &self.globals.json {
            Some(JsonTarget::Stdout) => {
                return self.stdout(|out| {
                    serde_json::to_writer_pretty(&mut *out, data)?;
                    writeln!(out)
                });
            }
            Some(JsonTarget::File(path)) => {
                self.files.write(path, |out| Ok(serde_json::to_writer_pretty(out, data)?))?;
            }
            None => {}
        }
        if self.globals.quiet { Ok(()) } else { self.stdout(|out| show(&mut Harmless(out))) }
    }

    /// Writes to standard output. A reader that went away is not an error of ours.
    pub fn stdout(&self, show: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        if let Audience::Caller(shown) = &self.audience {
            let mut text = Vec::new();
            show(&mut text)?;
            if let Ok(mut shown) = shown.lock() {
                shown.text.push_str(&String::from_utf8_lossy(&text));
            }
            return Ok(());
        }
        let mut out = BufWriter::new(io::stdout().lock());
        match show(&mut out).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => {
                other.map_err(|error| Failure::new(format!("standard output: cannot be written: {error}")))
            }
        }
    }

    /// Whether standard output is for JSON.
    pub fn wants_json(&self) -> bool {
        match &self.audience {
            Audience::Console => self.globals.json == Some(JsonTarget::Stdout),
            Audience::Caller(_) => true,
        }
    }

    /// Whether a program called the command, instead of a person or a shell.
    pub fn is_called(&self) -> bool {
        matches!(self.audience, Audience::Caller(_))
    }

    /// Who hears about long work.
    pub fn progress(&self) -> &dyn Progress {
        &*self.progress
    }

    /// Saves a model.
    pub fn save(
        &self,
        model: &Model,
        path: &Path,
        external: impl Into<External>,
    ) -> Result<Vec<WrittenFile>, Failure> {
        self.files.save(model, path, external, self.progress())
    }
}

/// Text for people, without what a terminal would obey: names in a model may hold anything.
struct Harmless<'o>(&'o mut dyn Write);

impl Write for Harmless<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        // Single bytes below the space, and the two bytes of characters that do the same as an escape.
        let obeyed = |at: usize| match text[at] {
            b'\n' | b'\t' => false,
            0x80..=0x9f => at > 0 && text[at - 1] == 0xc2,
            byte => byte < b' ' || byte == 0x7f,
        };
        if !(0..text.len()).any(obeyed) {
            self.0.write_all(text)?;
            return Ok(text.len());
        }
        for at in 0..text.len() {
            match obeyed(at) {
                // The second of two bytes: both become a space that does not break.
                true if text[at] >= 0x80 => self.0.write_all(&[0xa0])?,
                true => self.0.write_all("\u{fffd}".as_bytes())?,
                false => self.0.write_all(&text[at..=at])?,
            }
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Refuses to write a result over what it was made from.
pub fn forbid_inputs(output: &Path, inputs: &[PathBuf]) -> Result<(), Failure> {
    let same =
        |input: &PathBuf| matches!((input.canonicalize(), output.canonicalize()), (Ok(a), Ok(b)) if a == b);
    match inputs.iter().find(|input| same(input)) {
        Some(_) => Err(Failure::at(output, "this would overwrite the input; choose another -o")),
        None => Ok(()),
    }
}

/// A table with a heading, numbers to the right.
pub fn table(heading: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.remove_style(TableComponent::HorizontalLines).remove_style(TableComponent::MiddleIntersections);
    table.set_header(heading);
    table
}

/// A cell with a number.
pub fn number(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

/// A number with commas between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in a readable unit.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A bar of up to `width` characters for `part` of `whole`.
pub fn bar(part: u64, whole: u64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths =
        if whole == 0 { 0 } else { (part as f64 / whole as f64 * width as f64 * 8.0).round() as usize };
    let mut text: String = std::iter::repeat_n('█', eighths / 8).collect();
    if eighths % 8 > 0 {
        text.push(EIGHTHS[eighths % 8]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1234567), "1,234,567");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1500), "1.5 kB");
        assert_eq!(bytes(437_592_064), "437.6 MB");
        assert_eq!(bytes(4_400_000_000), "4.4 GB");
        assert_eq!(bar(1, 2, 4), "██");
        assert_eq!(bar(0, 0, 4), "");
    }

    #[test]
    fn terminals_obey_no_name() {
        let mut shown = Vec::new();
        write!(Harmless(&mut shown), "a\u{1b}[31mb\u{9b}2J\n\tä\u{7f}").unwrap();
        assert_eq!(String::from_utf8(shown).unwrap(), "a\u{fffd}[31mb\u{a0}2J\n\tä\u{fffd}");
    }
}
