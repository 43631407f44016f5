//! The page docs/commands.md, made from the table. `make pages` writes the page, and a test fails when it is out of
//! date.

use super::TABLE;
use std::fmt::Write;
use strand_commands::spec::CommandSpec;

/// The groups in the order of the page, with their titles.
const GROUPS: &[(&str, &str)] = &[
    ("string", "Strings"),
    ("bitmap", "Bitmaps"),
    ("hash", "Hashes"),
    ("list", "Lists"),
    ("set", "Sets"),
    ("sorted-set", "Sorted sets"),
    ("stream", "Streams"),
    ("hyperloglog", "HyperLogLog"),
    ("geo", "Positions"),
    ("generic", "Keys"),
    ("transactions", "Transactions"),
    ("pubsub", "Publish and subscribe"),
    ("scripting", "Scripts and functions"),
    ("connection", "Connection"),
    ("server", "Server"),
    ("cluster", "Clusters: replies of a server without a cluster"),
    ("diag", "Diagnosis"),
    ("search", "Text search"),
    ("regex", "Regular expressions"),
    ("import", "Import"),
];

/// Commands of Redis 7.2, Redis 8 and Valkey 9 that Strand lacks, and why.
const NOT_THERE: &[(&str, &str)] = &[
    (
        "A cluster",
        "One server uses all cores. `CLUSTER` and similar commands reply as redis-server does outside a cluster.",
    ),
    ("Modules", "`MODULE LOAD` fails; text search and regular expressions are built in."),
    (
        "`COMMANDLOG` (Valkey)",
        "`SLOWLOG` exists. There is no log of large requests and none of large replies.",
    ),
    (
        "`HGETF` and other names from drafts",
        "The released commands exist: `HGETEX`, `HSETEX`, `HGETDEL`, `HEXPIRE` and similar commands.",
    ),
    (
        "`FT.AGGREGATE`, `FT.ALTER`, `FT.ALIASADD`, `FT.SUGADD` and the rest of `FT.*`",
        "Strand has only the RediSearch commands in the table above.",
    ),
    (
        "`JSON.*`, `TS.*`, `BF.*`, `CF.*`, `CMS.*`, `TOPK.*`, `TDIGEST.*`, `V*` (vector sets)",
        "Strand does not have these types yet.",
    ),
];

/// The whole text of docs/commands.md.
pub(super) fn page() -> String {
    let mut page = String::from(
        "# Commands\n\n\
         Made from the command table by `make pages`. Behaviour is that of redis-server 7.0, and of the newer version where *since* \
         says so; each deviation has its line in [differences.md](differences.md). `COMMAND DOCS` returns these facts to a client.\n",
    );
    for (group, title) in GROUPS {
        let rows: Vec<&CommandSpec> = TABLE.rows().iter().filter(|spec| spec.group == *group).collect();
        assert!(!rows.is_empty(), "{group} has no command");
        write!(page, "\n## {title}\n\n| Command | Since | Cost | |\n|---|---|---|---|\n")
            .expect("a string takes all");
        for spec in rows {
            row(&mut page, None, spec);
            spec.subcommands.iter().for_each(|sub| row(&mut page, Some(spec), sub));
        }
    }
    page.push_str("\n## Not there\n\n| Commands | Why |\n|---|---|\n");
    for (names, why) in NOT_THERE {
        writeln!(page, "| {names} | {why} |").expect("a string takes all");
    }
    page
}

fn row(page: &mut String, container: Option<&CommandSpec>, spec: &CommandSpec) {
    let mut words: Vec<String> =
        container.iter().map(|container| container.name.to_ascii_uppercase()).collect();
    words.push(spec.name.to_ascii_uppercase());
    words.extend(spec.syntax());
    let call = words.join(" ").replace('|', "\\|");
    let deprecated = spec.deprecated.map_or(String::new(), |(since, instead)| {
        format!(" Deprecated since {since}: use {}.", instead.trim_end_matches('.'))
    });
    let (summary, since, cost) = (spec.summary, spec.since, spec.complexity.replace('|', "\\|"));
    writeln!(page, "| `{call}` | {since} | {cost} | {summary}{deprecated} |").expect("a string takes all");
}

// This test reads the page from the sources. The engine itself reads no files.
#[allow(clippy::disallowed_methods)]
#[test]
fn the_page_of_commands_is_current() {
    for spec in TABLE.rows() {
        let group = GROUPS.iter().find(|(group, _)| *group == spec.group);
        assert!(group.is_some(), "the page has no group {} for {}", spec.group, spec.name);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
    if std::env::var_os("STRAND_WRITE_PAGES").is_some() {
        std::fs::write(path, page()).expect("docs is there");
    }
    let written = std::fs::read_to_string(path).expect("docs/commands.md is there");
    assert!(written == page(), "docs/commands.md is stale: make pages");
}
