//! The arguments of a command in redis-cli's notation.

use super::{Arg, CommandSpec};

impl CommandSpec {
    /// The arguments, each as one text: `key`, `[NX|XX]`.
    pub fn syntax(&self) -> Vec<String> {
        self.args.iter().map(piece).collect()
    }
}

/// A part of a block. Alternatives are in `<>`, because a neighbour would seem to belong to one of them.
fn part(arg: &Arg) -> String {
    let own = piece(arg);
    let is_choice = arg.kind == "oneof" && arg.args.len() > 1 && arg.token.is_none() && !arg.optional;
    if is_choice { format!("<{own}>") } else { own }
}

/// One argument in redis-cli's notation.
fn piece(arg: &Arg) -> String {
    let mut own = match arg.kind {
        "oneof" => arg.args.iter().map(piece).collect::<Vec<_>>().join("|"),
        "block" => arg.args.iter().map(part).collect::<Vec<_>>().join(" "),
        "pure-token" => String::new(),
        _ => arg.name.to_string(),
    };
    let with_token = |text: &str| match arg.token {
        Some("") => "\"\"".to_string(),
        Some(token) if text.is_empty() => token.to_string(),
        Some(token) => format!("{token} {text}"),
        None => text.to_string(),
    };
    own = match (arg.multiple, arg.multiple_token) {
        (true, true) => {
            let one = with_token(&own);
            format!("{one} [{one} ...]")
        }
        (true, false) => with_token(&format!("{own} [{own} ...]")),
        _ => with_token(&own),
    };
    if arg.optional { format!("[{own}]") } else { own }
}
