//! The list of commands in `onnxforge --help`, in groups; clap knows only one list.

use clap::Command;

/// Columns that every terminal has.
const WIDTH: usize = 80;

/// The same command line, whose help lists commands by groups: each a heading and the names of commands. Summaries are those of the commands.
pub fn grouped(command: Command, groups: &[(&str, &[&str])]) -> Command {
    let styles = command.get_styles();
    let (header, literal) = (*styles.get_header(), *styles.get_literal());
    let longest = groups.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let indent = longest + 4;
    let mut list = String::new();
    for (heading, names) in groups {
        list += &format!("{header}{heading}:{header:#}\n");
        for name in *names {
            let summary = command.find_subcommand(name).and_then(Command::get_about);
            let summary = summary.map(ToString::to_string).unwrap_or_default();
            let lines = wrapped(&summary, WIDTH - indent).join(&format!("\n{:indent$}", ""));
            list += &format!("  {literal}{name}{literal:#}{:1$}{lines}\n", "", indent - 2 - name.len());
        }
        list.push('\n');
    }
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

/// The lines of a text that is broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;
    use crate::commands::GROUPS;

    #[test]
    fn help_lists_every_command_once_with_its_own_summary() {
        let mut definition = Cli::definition();
        let help = definition.render_help().to_string();
        let (_, list) = help.split_once("\n\n").and_then(|(_, usage)| usage.split_once("\n\n")).unwrap();
        let list = list.split("Options:\n").next().unwrap();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let command = Cli::command();
        let visible: Vec<&Command> =
            command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
        for command in &visible {
            let start = format!("\n  {} ", command.get_name());
            let listed: Vec<&str> = list.split(&start).skip(1).collect();
            assert_eq!(listed.len(), 1, "{}", command.get_name());
            let summary = words(&command.get_about().unwrap().to_string());
            assert!(words(listed[0]).starts_with(&summary), "{}: {summary}", command.get_name());
        }
        // And nothing that is no command.
        let names: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(names.len(), visible.len());
        assert!(list.lines().all(|line| line.chars().count() <= WIDTH), "{list}");
        assert!(help.contains("--follow-links") && help.contains("Exit codes"));
    }

    #[test]
    fn groups_have_their_order() {
        let help = Cli::definition().render_long_help().to_string();
        let places: Vec<usize> =
            GROUPS.iter().map(|(name, _)| help.find(&format!("\n{name}:\n")).unwrap()).collect();
        assert!(places.is_sorted());
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::definition().debug_assert();
    }
}
