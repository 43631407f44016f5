//! [`Options`]: command-line options shared by `versus` and `durable`.

use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;

/// The error describes the wrong command line.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The options, see the module. A new value holds the defaults.
#[derive(Debug)]
pub struct Options {
    /// The path of the binary that is measured.
    pub strand: PathBuf,
    /// Number of keys in the server.
    pub keys: u64,
    /// Duration of one round.
    pub seconds: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Name of the only row to measure.
    pub only: Option<String>,
    /// Whether to print the report as JSON.
    pub json: bool,
}

/// The values that follow the options on the command line.
#[derive(Debug)]
pub struct Values<A> {
    args: A,
    usage: &'static str,
}

impl<A: Iterator<Item = String>> Values<A> {
    /// The value of `option`.
    ///
    /// # Errors
    /// When the value is missing or malformed.
    pub fn of<T: FromStr>(&mut self, option: &str) -> Result<T> {
        let value = self.args.next().ok_or_else(|| format!("{option} wants a value; {}", self.usage))?;
        value.parse().map_err(|_| format!("{option} {value} is malformed; {}", self.usage).into())
    }
}

impl Options {
    /// Reads a command line. `own` handles the options of one program, and returns whether it knows the option.
    ///
    /// # Errors
    /// A description of the error, and the usage.
    pub fn read<A: Iterator<Item = String>>(
        mut self,
        args: A,
        usage: &'static str,
        mut own: impl FnMut(&str, &mut Values<A>) -> Result<bool>,
    ) -> Result<Options> {
        let mut values = Values { args, usage };
        while let Some(option) = values.args.next() {
            match option.as_str() {
                "--strand" => self.strand = values.of(&option)?,
                "--keys" => self.keys = values.of(&option)?,
                "--seconds" => self.seconds = values.of(&option)?,
                "--rounds" => self.rounds = values.of(&option)?,
                "--only" => self.only = Some(values.of(&option)?),
                "--json" => self.json = true,
                _ if own(&option, &mut values)? => {}
                _ => return Err(format!("unknown argument {option}; {usage}").into()),
            }
        }
        if self.strand.as_os_str().is_empty() || self.rounds == 0 || self.keys == 0 {
            return Err(usage.into());
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(Options, u32)> {
        let (mut own, words) = (0, line.split(' ').map(String::from).collect::<Vec<_>>());
        let defaults =
            Options { strand: PathBuf::new(), keys: 10, seconds: 0.5, rounds: 3, only: None, json: false };
        let options = defaults.read(words.into_iter(), "usage: so", |option, values| {
            let is_known = option == "--own";
            if is_known {
                own = values.of(option)?;
            }
            Ok(is_known)
        })?;
        Ok((options, own))
    }

    #[test]
    fn options_are_parsed_and_invalid_command_lines_are_errors() {
        let (options, own) = read("--strand x --keys 7 --own 5 --only SET --json").expect("it is right");
        assert_eq!((options.strand.to_str(), options.keys, options.rounds), (Some("x"), 7, 3));
        assert_eq!((options.only.as_deref(), options.json, own), (Some("SET"), true, 5));
        for (line, message) in [
            ("--keys 7", "usage: so"),
            ("--strand x --keys 0", "usage: so"),
            ("--strand x --keys", "--keys wants a value; usage: so"),
            ("--strand x --own -1", "--own -1 is malformed; usage: so"),
            ("--strand x --frob", "unknown argument --frob; usage: so"),
        ] {
            assert_eq!(read(line).expect_err(line).to_string(), message);
        }
    }
}
