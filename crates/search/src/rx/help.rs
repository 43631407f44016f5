//! The HELP subcommands of the containers of group `regex`.

use strand_commands::call::Call;
use strand_commands::introspect;

/// `RX.INDEX HELP`. Reply: lines of text.
pub(crate) fn index(call: &mut Call<'_, '_>) {
    introspect::help(call.reply, "RX.INDEX", INDEX);
}

/// `RX.STREAM HELP`. Reply: lines of text.
pub(crate) fn stream(call: &mut Call<'_, '_>) {
    introspect::help(call.reply, "RX.STREAM", STREAM);
}

const INDEX: &[&str] = &[
    "CREATE <name> PREFIX <prefix> [FIELD <field>]",
    "    Index the trigrams of the values under a prefix, or of one field of its hashes, for RX.GREP.",
    "DROP <name>",
    "    Remove an index.",
    "INFO <name>",
    "    Describe an index, and the progress of the indexing.",
    "LIST",
    "    List the names of the indexes.",
];

const STREAM: &[&str] = &[
    "CLOSE <stream>",
    "    End a stream; replies the matches that end at the end of its text.",
    "FEED <stream> <text>",
    "    Scan the next piece of a text; replies the matches that end in this piece.",
    "OPEN <name>",
    "    Open a stream, which scans a text in pieces with the patterns of a set; replies the stream's number.",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::TABLE;

    #[test]
    fn help_names_every_subcommand() {
        for (container, help) in [("rx.index", INDEX), ("rx.stream", STREAM)] {
            let spec = TABLE.lookup(container.as_bytes()).expect("in the table");
            for sub in spec.subcommands.iter().filter(|sub| sub.name != "help") {
                let begins = |line: &&str| line.starts_with(&sub.name.to_ascii_uppercase());
                assert!(help.iter().any(begins), "{container} {}: {help:?}", sub.name);
            }
        }
    }
}
