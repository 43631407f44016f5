//! HELP of the containers of group `regex`, whose other subcommands are search's.

use crate::call::Call;
use crate::introspect;

/// `RX.INDEX HELP`. Reply: lines of text.
pub(crate) fn index(call: &mut Call<'_, '_>) {
    introspect::help(
        call.reply,
        "RX.INDEX",
        &[
            "CREATE <name> PREFIX <prefix> [FIELD <field>]",
            "    Index the trigrams of the values under a prefix, or of one field of its hashes, for RX.GREP.",
            "DROP <name>",
            "    Remove an index.",
            "INFO <name>",
            "    Describe an index and how far it has come.",
            "LIST",
            "    The names of the indexes.",
        ],
    );
}

/// `RX.STREAM HELP`. Reply: lines of text.
pub(crate) fn stream(call: &mut Call<'_, '_>) {
    introspect::help(
        call.reply,
        "RX.STREAM",
        &[
            "CLOSE <stream>",
            "    End a stream; replies the matches that end where its text does.",
            "FEED <stream> <text>",
            "    The next piece of a text; replies the matches that end in it.",
            "OPEN <name>",
            "    Begin a text that comes in pieces, for the patterns of a set; replies the stream's number.",
        ],
    );
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    #[test]
    fn help_names_every_subcommand() {
        let mut f = Fixture::new();
        for container in ["rx.index", "rx.stream"] {
            let help = f.run(&format!("{container} HELP"));
            let spec =
                crate::table::COMMANDS.iter().find(|spec| spec.name == container).expect("in the table");
            for sub in spec.subcommands {
                assert!(help.contains(&sub.name.to_ascii_uppercase()), "{container} {}: {help}", sub.name);
            }
        }
    }
}
