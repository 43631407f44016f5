//! Generated files: complete, cut anywhere, changed anywhere.

use super::*;
use proptest::prelude::*;

/// The commands of a file, and the result at its end.
fn read(bytes: &[u8]) -> (Vec<Vec<Vec<u8>>>, Result<u64, InvalidCommand>) {
    let (mut argv, mut all) = (Argv::new(), Vec::new());
    let mut commands = Commands::new(bytes, &[], 0);
    loop {
        match commands.next(&mut argv) {
            Ok(Item::End) => return (all, Ok(commands.offset())),
            Ok(Item::Command) => all.push(argv.args().iter().map(<[u8]>::to_vec).collect()),
            Ok(_) => {}
            Err(invalid) => return (all, Err(invalid)),
        }
    }
}

fn command(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n", arg.len()).bytes());
        bytes.extend(*arg);
        bytes.extend(b"\r\n");
    }
    bytes
}

#[test]
fn commands_are_read_in_order() {
    let large = vec![b'x'; 3 * LARGE_BYTES_MIN];
    let commands: [&[&[u8]]; 4] =
        [&[b"SET", b"k", b""], &[b"SET", b"k", &large], &[b"PING"], &[b"\0\r\n", b"*"]];
    let file: Vec<u8> = commands.iter().flat_map(|args| command(args)).collect();
    let (read_commands, end) = read(&file);
    assert_eq!(end.expect("whole"), file.len() as u64);
    assert_eq!(read_commands, commands);
    let (mut argv, head) = (Argv::new(), b"#TS:1700000000\r\n# by hand\n\n\n");
    let file = [&head[..], &command(&[b"PING"])].concat();
    // The reader returns the bytes that the caller holds in memory before those of the file.
    let mut commands = Commands::new(&file[5..], &file[..5], 100);
    for (item, offset) in [
        (Item::Timestamp(1_700_000_000), 116),
        (Item::Annotation, 126),
        (Item::Command, 142),
        (Item::End, 142),
    ] {
        assert_eq!(commands.next(&mut argv).expect("whole"), item);
        assert_eq!(commands.offset(), offset);
    }
}

#[test]
fn a_cut_file_yields_its_complete_commands() {
    let parts = [command(&[b"SET", b"key", b"value"]), b"#TS:17\r\n".to_vec(), command(&[b"DEL", b"key"])];
    let file = parts.concat();
    for cut in 0..file.len() {
        let (commands, end) = read(&file[..cut]);
        let first = parts[0].len();
        assert_eq!(commands.len(), usize::from(cut >= first), "cut at {cut}");
        let is_whole = cut == 0 || cut == first || cut == first + parts[1].len();
        match end {
            Ok(offset) => assert!(is_whole && offset == cut as u64, "cut at {cut}"),
            Err(invalid) => assert!(!is_whole && invalid.is_truncated(), "cut at {cut}: {invalid}"),
        }
    }
}

#[test]
fn an_invalid_command_names_its_offset() {
    for (bytes, offset, expected) in [
        (&b"PING\r\n"[..], 0, "*"),
        (b"*0\r\n", 0, "*"),
        (b"*-1\r\n", 0, "*"),
        (b"*99999999999\r\n", 0, "*"),
        (b"*1\n$4", 2, "\\r\\n"),
        (b"*x\r\n", 1, "\\r\\n"),
        (b"*1\r\n+4\r\n", 4, "$"),
        (b"*1\r\n$-1\r\n", 4, "$"),
        (b"*1\r\n$9999999999999999999\r\n", 4, "$"),
        (b"*1\r\n$4\r\nPINGxx", 12, "\\r\\n"),
        (b"\0\0\0\0", 0, "*"),
    ] {
        let invalid = read(bytes).1.expect_err("no commands");
        assert_eq!(invalid.offset, offset, "{bytes:?}: {invalid}");
        let ReadProblem::Unexpected { expected: said, .. } = &invalid.problem else { panic!("{invalid}") };
        assert!(said.contains(expected), "{bytes:?}: {invalid}");
    }
    let long = [&b"#"[..], &[b'x'; 2 * ANNOTATION_BYTES_MAX]].concat();
    assert!(!read(&long).1.expect_err("no line").is_truncated());
    // A length beyond the end of the file takes no memory.
    assert!(read(b"*2147483647\r\n$1099511627776\r\nabc").1.expect_err("too short").is_truncated());
}

#[test]
fn a_failing_source_is_an_error_not_an_end() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(ErrorKind::Other.into())
        }
    }
    let file = command(&[b"PING"]);
    let mut commands = Commands::new(file.chain(Failing), &[], 0);
    let mut argv = Argv::new();
    assert_eq!(commands.next(&mut argv).expect("whole"), Item::Command);
    let invalid = commands.next(&mut argv).expect_err("it fails");
    assert!(matches!(invalid.problem, ReadProblem::Io(_)) && !invalid.is_truncated());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// A file with a few changed bytes is read until its end or an error, and the reader returns no more
    /// commands than the file contains.
    #[test]
    fn a_changed_file_is_read_to_some_end(
        args in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..20),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut file: Vec<u8> = args.chunks(3).flat_map(|args| {
            command(&args.iter().map(Vec::as_slice).collect::<Vec<_>>())
        }).collect();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        let (commands, end) = read(&file);
        let bytes: usize = commands.iter().flatten().map(Vec::len).sum();
        prop_assert!(bytes <= file.len());
        prop_assert!(end.unwrap_or_else(|invalid| invalid.offset) <= file.len() as u64);
    }
}
