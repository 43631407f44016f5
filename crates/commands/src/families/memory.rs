//! MEMORY USAGE and MEMORY HELP.

use crate::call::Call;
use crate::{errors, parse};

/// `MEMORY USAGE key [SAMPLES count]`. Reply: the number of bytes, or null for a missing key.
///
/// The record knows its size, so nothing is sampled. SAMPLES is only checked for errors.
pub(crate) fn usage(call: &mut Call<'_, '_>) {
    let mut at = 3;
    while at < call.args.len() {
        if !call.args.is(at, "SAMPLES") || at + 1 == call.args.len() {
            return call.reply.error(errors::SYNTAX);
        }
        match parse::integer(call.args.at(at + 1)) {
            Err(text) => return call.reply.error(text),
            Ok(count) if count < 0 => return call.reply.error(errors::SYNTAX),
            Ok(_) => at += 2,
        }
    }
    match call.txn.db(call.db).peek(&call.keys[0]) {
        Some(record) => call.reply.int(record.heap_bytes() as i64),
        None => call.reply.null(),
    }
}

/// `MEMORY HELP`. Reply: lines of text.
pub(crate) fn help(call: &mut Call<'_, '_>) {
    crate::introspect::help(
        call.reply,
        "MEMORY",
        &[
            "DOCTOR",
            "    Report problems of memory use.",
            "MALLOC-STATS",
            "    Show the allocator's own report.",
            "PURGE",
            "    Give freed pages back to the system at once.",
            "STATS",
            "    Return what memory is used for.",
            "USAGE <key> [SAMPLES <count>]",
            "    Reply with the bytes that <key>, its value and its bookkeeping take.",
        ],
    );
}

#[cfg(test)]
mod tests {
    use crate::errors;
    use crate::fixture::Fixture;

    #[test]
    fn usage_counts_the_key_and_checks_its_option() {
        let mut f = Fixture::new();
        f.run(&format!("SET big {}", "x".repeat(1000)));
        let reply = f.run("MEMORY USAGE big SAMPLES 5");
        let bytes: i64 = reply.trim_start_matches(':').trim_end_matches('|').parse().expect("an integer");
        assert!((1000..2000).contains(&bytes), "{bytes}");
        f.script(&[("MEMORY USAGE none", "$-1|")]);
        for (line, text) in [
            ("MEMORY USAGE big SAMPLES", errors::SYNTAX),
            ("MEMORY USAGE big SAMPLES -1", errors::SYNTAX),
            ("MEMORY USAGE big SAMPLES x", errors::NOT_AN_INTEGER),
            ("MEMORY USAGE big FOO 1", errors::SYNTAX),
            ("MEMORY USAGE", "ERR wrong number of arguments for 'memory|usage' command"),
            ("MEMORY FOO", "ERR unknown subcommand 'FOO'. Try MEMORY HELP."),
        ] {
            assert_eq!(f.run(line), format!("-{text}|"), "{line}");
        }
    }
}
