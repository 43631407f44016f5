//! The first line of a script or library: `#!lua flags=no-writes` and `#!lua name=library`.

use strand_wire::reply::ErrorText;

/// The flags of a script, from its first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags {
    /// True when the script has no shebang line. Each of its commands is then checked by itself.
    pub compatible: bool,
    /// The flag `no-writes`
    pub no_writes: bool,
    /// The flag `allow-oom`
    pub allow_oom: bool,
    /// The flag `allow-stale`
    pub allow_stale: bool,
    /// The flag `no-cluster`
    pub no_cluster: bool,
    /// The flag `allow-cross-slot-keys`
    pub allow_cross_slot_keys: bool,
}

impl ScriptFlags {
    /// Sets a flag by its name in small letters. Returns false when the name is unknown.
    pub(crate) fn set(&mut self, name: &[u8]) -> bool {
        let flag = match name {
            b"no-writes" => &mut self.no_writes,
            b"allow-oom" => &mut self.allow_oom,
            b"allow-stale" => &mut self.allow_stale,
            b"no-cluster" => &mut self.no_cluster,
            b"allow-cross-slot-keys" => &mut self.allow_cross_slot_keys,
            _ => return false,
        };
        *flag = true;
        true
    }
    /// The names of the set flags, as FUNCTION LIST shows them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (self.no_writes, "no-writes"),
            (self.allow_oom, "allow-oom"),
            (self.allow_stale, "allow-stale"),
            (self.no_cluster, "no-cluster"),
            (self.allow_cross_slot_keys, "allow-cross-slot-keys"),
        ]
        .into_iter()
        .filter_map(|(set, name)| set.then_some(name))
    }
}

/// The words of a line. `None` when a quote is not closed.
type Words = Option<Vec<Vec<u8>>>;

/// Splits the first line of a text that starts with `#!` into words. Also returns the text from the end of the line
/// on, with the line feed, so that lines keep their numbers. As in redis-server, a zero byte ends the text, so a line with
/// one has no end.
fn first_line(body: &[u8]) -> Option<(Words, &[u8])> {
    let end = memchr::memchr2(b'\n', 0, body).filter(|at| body[*at] == b'\n')?;
    Some((words(&body[..end]), &body[end..]))
}

/// Splits a line into words with quotes, as redis-server does. `None` when a quote is not closed.
fn words(line: &[u8]) -> Words {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        let mut quote = None;
        let mut at = 0;
        while at < rest.len() {
            let c = rest[at];
            match quote {
                None if c.is_ascii_whitespace() => break,
                None if matches!(c, b'"' | b'\'') => quote = Some(c),
                Some(q) if c == q => {
                    quote = None;
                    if rest.get(at + 1).is_some_and(|next| !next.is_ascii_whitespace()) {
                        return None;
                    }
                }
                _ => word.push(c),
            }
            at += 1;
        }
        if quote.is_some() {
            return None;
        }
        words.push(word);
        rest = &rest[at..];
    }
}

/// The flags of a script, and its text without the first line.
///
/// # Errors
/// redis-server's text about the error in that line.
pub(crate) fn script(body: &[u8]) -> Result<(ScriptFlags, &[u8]), ErrorText> {
    if !body.starts_with(b"#!") {
        return Ok((ScriptFlags { compatible: true, ..ScriptFlags::default() }, body));
    }
    let Some((words, text)) = first_line(body) else { return Err(b"Invalid script shebang".to_vec()) };
    let Some((engine, options)) = words.as_ref().and_then(|words| words.split_first()) else {
        return Err(b"Invalid engine in script shebang".to_vec());
    };
    if engine != b"#!lua" {
        return Err([b"Unexpected engine in script shebang: ", &engine[..]].concat());
    }
    let mut flags = ScriptFlags::default();
    for option in options {
        let Some(names) = option.strip_prefix(b"flags=") else {
            return Err([b"Unknown lua shebang option: ", &option[..]].concat());
        };
        for name in names.split(|c| *c == b',').filter(|_| !names.is_empty()) {
            if !flags.set(name) {
                return Err([b"Unexpected flag in script shebang: ", name].concat());
            }
        }
    }
    Ok((flags, text))
}

/// The name of a library, and its text without the first line.
///
/// # Errors
/// redis-server's text about the error in that line.
pub(crate) fn library(code: &[u8]) -> Result<(Vec<u8>, &[u8]), ErrorText> {
    if !code.starts_with(b"#!") {
        return Err(b"Missing library metadata".to_vec());
    }
    let Some((words, text)) = first_line(code) else { return Err(b"Invalid library metadata".to_vec()) };
    let Some((engine, options)) = words.as_ref().and_then(|words| words.split_first()) else {
        return Err(b"Invalid library metadata".to_vec());
    };
    let mut name: Option<&[u8]> = None;
    for option in options {
        let Some((_, given)) =
            option.split_at_checked(5).filter(|(key, _)| key.eq_ignore_ascii_case(b"name="))
        else {
            return Err([b"Invalid metadata value given: ", &option[..]].concat());
        };
        if name.replace(given).is_some() {
            return Err(b"Invalid metadata value, name argument was given multiple times".to_vec());
        }
    }
    let Some(name) = name else { return Err(b"Library name was not given".to_vec()) };
    if !is_name(name) {
        return Err(BAD_NAME.as_bytes().to_vec());
    }
    let engine = &engine[2..];
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err([b"Engine '", engine, b"' not found"].concat());
    }
    Ok((name.to_vec(), text))
}

/// The name of a library, from the first line of its text.
///
/// # Errors
/// redis-server's text about the error in that line.
pub fn library_name(code: &[u8]) -> Result<Vec<u8>, ErrorText> {
    library(code).map(|(name, _)| name)
}

/// redis-server's text for an invalid name.
pub(crate) const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and must be at least \
                                   one character long";

/// True for a valid name of a library or a function.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_lines_keep_their_numbers() {
        let (flags, text) = script(b"#!lua flags=no-writes,allow-oom\nreturn 1").expect("fine");
        assert!(flags.no_writes && flags.allow_oom && !flags.compatible && !flags.no_cluster);
        assert_eq!(text, b"\nreturn 1");
        assert!(script(b"return 1").expect("fine").0.compatible);
        assert_eq!(script(b"#!lua flags=x\n"), Err(b"Unexpected flag in script shebang: x".to_vec()));
        assert_eq!(script(b"#! \"lua\n"), Err(b"Invalid engine in script shebang".to_vec()));
        assert_eq!(script(b"#!lua"), Err(b"Invalid script shebang".to_vec()));
        assert_eq!(script(b"#!lua\0\n"), Err(b"Invalid script shebang".to_vec()));
        assert_eq!(script(b"#!lua\n\0").expect("fine").1, b"\n\0");
    }

    #[test]
    fn libraries_have_names() {
        assert_eq!(library(b"#!lua name=a_1\nx").expect("fine"), (b"a_1".to_vec(), &b"\nx"[..]));
        assert_eq!(library(b"#!lua\nx"), Err(b"Library name was not given".to_vec()));
        assert_eq!(library(b"#!lua name=a-b\nx"), Err(BAD_NAME.as_bytes().to_vec()));
        assert_eq!(library(b"#!js name=a\nx"), Err(b"Engine 'js' not found".to_vec()));
    }
}
