//! `docs/commands.md` lists every command with its options, as the parser defines them: this writes that list, and fails when it is out of date.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, Command};

use crate::Cli;
use crate::commands::GROUPS;

/// What comes before the list is written by hand.
const MARK: &str = "<!-- commands -->\n";

/// Commands of one group after another, each with its description, its usage and a table of its options.
fn reference() -> String {
    let mut definition = Cli::definition();
    definition.build();
    let mut text = String::from("\n## Options of all commands\n\n");
    text += &table(definition.get_arguments().filter(|arg| arg.is_global_set()));
    for (group, names) in GROUPS {
        write!(text, "\n## {group}\n").unwrap();
        for name in *names {
            let command = definition.find_subcommand_mut(name).unwrap();
            let usage = command.render_usage().to_string();
            write!(text, "\n### {name}\n\n{}\n\n", sentences(&description(command))).unwrap();
            writeln!(text, "```text\n{}\n```", usage.trim_start_matches("Usage: ")).unwrap();
            let own = command.get_arguments().filter(|arg| !arg.is_global_set());
            let rows = table(own);
            if !rows.is_empty() {
                write!(text, "\n{rows}").unwrap();
            }
            for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
                write!(text, "\n#### {name} {}\n\n{}\n", inner.get_name(), sentences(&description(inner)))
                    .unwrap();
                write!(text, "\n{}", table(inner.get_arguments().filter(|arg| !arg.is_global_set())))
                    .unwrap();
            }
        }
    }
    text
}

fn description(command: &Command) -> String {
    command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default()
}

/// Paragraphs, of which the last ends with a full stop.
fn sentences(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?', ':', '`']) { text.to_owned() } else { format!("{text}.") }
}

fn table<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let shown =
        arguments.filter(|arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str()));
    let rows: String = shown.map(|arg| format!("| {} | {} |\n", name(arg), meaning(arg))).collect();
    if rows.is_empty() { rows } else { format!("| option | meaning |\n|---|---|\n{rows}") }
}

/// Its short form, and its long one with the name of its value.
fn name(arg: &Arg) -> String {
    let short = arg.get_short().filter(|_| arg.get_long().is_some()).map(|short| format!("`-{short}`, "));
    format!("{}`{}`", short.unwrap_or_default(), arg.to_string().replace('|', "\\|"))
}

/// Its description, its possible values and its default, on one line.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = help.split("\n\n").map(sentences).collect::<Vec<_>>().join(" ");
    let values = arg.get_possible_values();
    let shown: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).collect();
    if arg.get_action().takes_values() && !shown.is_empty() {
        for value in shown {
            match value.get_help() {
                Some(help) => {
                    write!(text, "<br>`{}`: {}", value.get_name(), sentences(&help.to_string())).unwrap();
                }
                None => write!(text, "<br>`{}`", value.get_name()).unwrap(),
            }
        }
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        write!(text, " Default: `{}`.", defaults.join(",")).unwrap();
    }
    text.replace('\n', " ").replace('|', "\\|")
}

#[test]
fn the_list_of_commands_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (preface, listed) = text.split_once(MARK).unwrap();
    let current = reference();
    if std::env::var_os("ONNXFORGE_BLESS").is_some() {
        std::fs::write(&path, format!("{preface}{MARK}{current}")).unwrap();
    } else {
        assert_eq!(listed, current, "ONNXFORGE_BLESS=1 writes it");
    }
}
