//! The arguments of commands, from the command table: for hints, completion and `help`.

use crate::client::write_stdout;
use strand_commands::spec::{Arg, CommandSpec};

/// An entry of the help: a command or subcommand.
#[derive(Clone, Copy)]
pub struct HelpEntry {
    /// The row of the command or subcommand.
    pub spec: &'static CommandSpec,
    /// The row of the container, if this entry is a subcommand.
    pub container: Option<&'static CommandSpec>,
}

impl HelpEntry {
    /// The full name, for example `CONFIG GET`.
    pub fn name(&self) -> String {
        match self.container {
            Some(container) => format!("{} {}", container.name, self.spec.name).to_ascii_uppercase(),
            None => self.spec.name.to_ascii_uppercase(),
        }
    }
    /// Number of words of the full name.
    pub fn words(&self) -> usize {
        1 + usize::from(self.container.is_some())
    }
    /// The command's arguments, each as one string: `key`, `[NX|XX]`.
    pub fn syntax(&self) -> Vec<String> {
        self.spec.syntax()
    }
}

/// True for the words of `help`, which the client answers itself.
pub fn is_help(words: &[Vec<u8>]) -> bool {
    words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"help") || word == b"?")
}

/// The command table of this version of Strand.
#[derive(Clone, Copy, Debug)]
pub struct Rows(pub &'static [CommandSpec]);

impl Rows {
    /// Every command and subcommand.
    pub fn entries(self) -> impl Iterator<Item = HelpEntry> {
        self.0.iter().flat_map(|spec| {
            let own = HelpEntry { spec, container: None };
            std::iter::once(own)
                .chain(spec.subcommands.iter().map(move |sub| HelpEntry { spec: sub, container: Some(spec) }))
        })
    }

    /// The command at the start of `words`. Prefers a subcommand to its container.
    pub fn find(self, words: &[Vec<u8>]) -> Option<HelpEntry> {
        let first = words.first()?;
        let spec = self.0.iter().find(|spec| first.eq_ignore_ascii_case(spec.name.as_bytes()))?;
        let sub = words.get(1).and_then(|word| {
            spec.subcommands.iter().find(|sub| word.eq_ignore_ascii_case(sub.name.as_bytes()))
        });
        Some(match sub {
            Some(sub) => HelpEntry { spec: sub, container: Some(spec) },
            None => HelpEntry { spec, container: None },
        })
    }

    /// Runs `help`, `help COMMAND` or `help @group`.
    pub fn print(self, words: &[Vec<u8>]) {
        let mut text = String::new();
        match words {
            [] => text.push_str(GENERAL),
            [group] if group.starts_with(b"@") => {
                let group = String::from_utf8_lossy(&group[1..]).to_ascii_lowercase();
                for entry in self.entries().filter(|e| e.spec.group == group && e.spec.subcommands.is_empty())
                {
                    one(&mut text, &entry, false);
                }
            }
            words => {
                let mut wanted = words.join(&b' ');
                wanted.make_ascii_uppercase();
                for entry in self.entries().filter(|e| e.name().as_bytes() == wanted) {
                    one(&mut text, &entry, true);
                }
            }
        }
        text.push('\n');
        write_stdout(text.as_bytes());
    }
}

/// The literal words in the arguments of a command.
pub fn tokens(args: &'static [Arg], out: &mut Vec<&'static str>) {
    for arg in args {
        out.extend(arg.token.filter(|token| !token.is_empty()));
        tokens(arg.args, out);
    }
}

fn one(text: &mut String, entry: &HelpEntry, with_group: bool) {
    let (name, syntax, spec) = (entry.name(), entry.syntax().join(" "), entry.spec);
    text.push_str(&format!("\n  \u{1b}[1m{name}\u{1b}[0m \u{1b}[90m{syntax}\u{1b}[0m\n"));
    text.push_str(&format!("  \u{1b}[33msummary:\u{1b}[0m {}\n", spec.summary.trim_end_matches('.')));
    text.push_str(&format!("  \u{1b}[33msince:\u{1b}[0m {}\n", spec.since));
    if with_group {
        text.push_str(&format!("  \u{1b}[33mgroup:\u{1b}[0m {}\n", spec.group));
    }
}

const GENERAL: &str = "To get help about commands type:
      \"help @<group>\" to get a list of commands in <group>
      \"help <command>\" for help on <command>
      \"quit\" to exit

At a terminal Tab completes names and options, and what is still missing is shown in grey.
To set preferences:
      \":set hints\" enable online hints
      \":set nohints\" disable online hints
";

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Rows = Rows(strand_engine::TABLE.rows());

    fn syntax(text: &str) -> String {
        let words: Vec<Vec<u8>> = text.split(' ').map(|w| w.as_bytes().to_vec()).collect();
        ROWS.find(&words).expect("a command").syntax().join(" ")
    }

    #[test]
    fn arguments_are_written_as_in_redis_cli() {
        assert_eq!(syntax("get"), "key");
        assert_eq!(syntax("mset"), "key value [key value ...]");
        assert_eq!(syntax("config get"), "parameter [parameter ...]");
        let set = syntax("SET");
        assert!(
            set.starts_with("key value [NX|XX|IFEQ ifeq-value|") && set.contains("[GET] [EX seconds|"),
            "{set}"
        );
        assert!(ROWS.entries().all(|e| e.syntax().iter().all(|piece| !piece.is_empty())));
    }
}
