//! Checks a file: reads all of it and keeps only counts. `strand check aof` prints the result.

use crate::reader::{Commands, InvalidCommand, Item};
use std::io::Read;
use strand_rdb::check::{Report as RdbReport, check_start};
use strand_wire::args::Argv;

/// The contents of a file, as far as it was read.
#[derive(Debug, Default)]
pub struct Report {
    /// The RDB before the commands, or the RDB alone.
    pub rdb: Option<RdbReport>,
    /// Number of commands, including SELECT, MULTI and EXEC.
    pub commands: u64,
    /// The first and the last timestamp of the file, in unix seconds.
    pub times: Option<(i64, i64)>,
    /// The longest valid start of the file that ends outside a transaction, in bytes.
    pub good_bytes: u64,
    /// Truncating the file to this length keeps exactly the commands before the requested time.
    pub until_time: Option<u64>,
    /// The reason why the file is not valid to its end.
    pub problem: Option<CheckProblem>,
}

/// The reason why a file is not valid to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckProblem {
    /// The RDB at the start of the file is damaged.
    #[error("offset {offset}, in the RDB that the file begins with: {why}")]
    Rdb {
        /// Offset at which the damage was noticed.
        offset: u64,
        /// The error that the RDB reader returned.
        why: strand_rdb::Error,
    },
    /// A command is damaged or incomplete.
    #[error(transparent)]
    Command(#[from] InvalidCommand),
    /// The file has MULTI inside a transaction. Holds the offset of this MULTI.
    #[error("offset {0}: MULTI inside a transaction, which cannot be nested")]
    NestedMulti(u64),
    /// The file has EXEC outside of a transaction. Holds the offset of this EXEC.
    #[error("offset {0}: EXEC without MULTI before it")]
    ExecWithoutMulti(u64),
    /// The file ends after MULTI and before EXEC.
    #[error("offset {0}: the file ends inside a transaction: MULTI without EXEC")]
    Unfinished(u64),
}

/// Reads a whole file. With `until_s`, also finds where the commands after this unix second start.
pub fn check<R: Read>(mut reader: R, until_s: Option<i64>) -> Report {
    let mut report = Report::default();
    // Find out from the first bytes whether the file starts with an RDB.
    let mut head = Vec::new();
    if let Err(e) = reader.by_ref().take(MAGIC_BYTES_MAX).read_to_end(&mut head) {
        report.problem = Some(InvalidCommand { offset: 0, problem: e.into() }.into());
        return report;
    }
    if !starts_as_rdb(&head) {
        let commands = Commands::new(reader, &head, 0);
        read_commands(commands, until_s, &mut report);
        return report;
    }
    let (rdb, rest) = check_start(head.as_slice().chain(reader));
    let offset = rdb.bytes;
    report.rdb = Some(rdb);
    match rest {
        Ok((reader, read_ahead)) => {
            read_commands(Commands::new(reader, &read_ahead, offset), until_s, &mut report)
        }
        Err(why) => report.problem = Some(CheckProblem::Rdb { offset, why }),
    }
    report
}

const MAGICS: [&[u8]; 2] = [b"REDIS", b"VALKEY"];
const MAGIC_BYTES_MAX: u64 = 6;

/// True when a file with these first bytes starts with an RDB.
pub fn starts_as_rdb(head: &[u8]) -> bool {
    MAGICS.iter().any(|magic| head.starts_with(magic))
}

fn read_commands<R: Read>(mut commands: Commands<R>, until_s: Option<i64>, report: &mut Report) {
    let (mut argv, mut in_multi) = (Argv::new(), false);
    loop {
        let offset = commands.offset();
        if !in_multi {
            report.good_bytes = offset;
        }
        match commands.next(&mut argv) {
            Ok(Item::Command) => {}
            Ok(Item::Timestamp(at_s)) => {
                let (first, last) = report.times.unwrap_or((at_s, at_s));
                report.times = Some((first, last.max(at_s)));
                if until_s.is_some_and(|until_s| at_s > until_s) {
                    report.until_time.get_or_insert(offset);
                }
                continue;
            }
            Ok(Item::Annotation) => continue,
            Ok(Item::End) if in_multi => {
                report.problem = Some(CheckProblem::Unfinished(offset));
                return;
            }
            Ok(Item::End) => return,
            Err(invalid) => {
                report.problem = Some(invalid.into());
                return;
            }
        }
        report.commands += 1;
        let args = argv.args();
        let (is_multi, is_exec) = (args.is(0, "MULTI"), args.is(0, "EXEC"));
        if is_multi && in_multi {
            report.problem = Some(CheckProblem::NestedMulti(offset));
            return;
        }
        if is_exec && !in_multi {
            report.problem = Some(CheckProblem::ExecWithoutMulti(offset));
            return;
        }
        in_multi = (in_multi || is_multi) && !is_exec;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let args = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), args.collect::<String>())
    }
    fn of(lines: &[&str], tail: &str) -> (String, Report) {
        let file = lines.iter().map(|line| command(line)).collect::<String>() + tail;
        let report = check(file.as_bytes(), None);
        (file, report)
    }

    #[test]
    fn a_file_is_valid_up_to_its_last_complete_transaction() {
        let (file, report) = of(&["SELECT 0", "MULTI", "SET a 1", "EXEC"], "");
        assert!(report.problem.is_none());
        assert_eq!((report.commands, report.good_bytes), (4, file.len() as u64));
        let before = command("SET a 1").len() as u64;
        let (_, report) = of(&["SET a 1", "MULTI", "SET a 1"], "");
        assert!(matches!(report.problem, Some(CheckProblem::Unfinished(_))), "{report:?}");
        assert_eq!(report.good_bytes, before);
        let (_, report) = of(&["SET a 1", "MULTI", "SET a 1"], "*1\r\n$4\r\nEX");
        assert!(
            matches!(&report.problem, Some(CheckProblem::Command(invalid)) if invalid.is_truncated()),
            "{report:?}"
        );
        assert_eq!(report.good_bytes, before);
        for (lines, name) in [(&["SET a 1", "EXEC"][..], "EXEC"), (&["SET a 1", "MULTI", "MULTI"], "MULTI")] {
            let (_, report) = of(lines, "");
            let problem = report.problem.expect("a problem").to_string();
            assert!(problem.contains(name), "{problem}");
            assert_eq!(report.good_bytes, before);
        }
        assert_eq!(check(&b""[..], None).good_bytes, 0);
    }

    #[test]
    fn an_rdb_may_come_first() {
        let rdb = b"REDIS0010\xff\0\0\0\0\0\0\0\0";
        let file = [&rdb[..], command("SET a 1").as_bytes()].concat();
        let report = check(&file[..], None);
        assert!(report.problem.is_none() && report.rdb.is_some());
        assert_eq!((report.commands, report.good_bytes), (1, file.len() as u64));
        let report = check(&file[..5], None);
        assert!(matches!(report.problem, Some(CheckProblem::Rdb { .. })), "{report:?}");
    }

    #[test]
    fn times_are_found() {
        let file = ["#TS:10\r\n", &command("SET a 1"), "#TS:20\r\n", &command("SET a 2")].concat();
        let report = check(file.as_bytes(), Some(10));
        assert_eq!(report.times, Some((10, 20)));
        assert_eq!(report.until_time, Some(8 + command("SET a 1").len() as u64));
        assert_eq!(check(file.as_bytes(), Some(20)).until_time, None);
        assert_eq!(check(file.as_bytes(), Some(5)).until_time, Some(0));
    }
}
