//! [`Elements`]: splits a JSON body into commands while it arrives.
//!
//! The scanner reads each byte once and recognises only brackets and strings. The JSON parser then gets one whole
//! command at a time.

use crate::problem::Problem;

/// Maximum length of a command, in bytes of JSON. The parser takes about 5 ns per byte and does not yield inside a
/// command.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Maximum nesting inside a command.
const DEPTH_MAX: usize = 64;

/// The form in which the body has its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The commands are elements of one array.
    Array,
    /// The commands follow one another.
    Lines,
}

/// Splits a body into commands.
#[derive(Debug)]
pub struct Elements {
    buffer: Vec<u8>,
    /// Offset in `buffer` of the first byte that is not consumed.
    from: usize,
    /// Offset in `buffer` of the first byte that is not scanned.
    at: usize,
    /// Number of brackets that are open inside the current command.
    depth: usize,
    in_string: bool,
    escaped: bool,
    form: Option<Form>,
    /// True when the body's first bracket was read. That bracket may open the array or a command.
    opened: bool,
    /// True when the end of the array was read.
    closed: bool,
    /// In an array: true when the last token was a comma or the opening bracket, so a command must follow.
    wants_command: bool,
    taken: u64,
}

impl Default for Elements {
    fn default() -> Elements {
        Elements::new()
    }
}

impl Elements {
    /// A scanner at the start of a body.
    pub fn new() -> Elements {
        Elements {
            buffer: Vec::new(),
            from: 0,
            at: 0,
            depth: 0,
            in_string: false,
            escaped: false,
            form: None,
            opened: false,
            closed: false,
            wants_command: true,
            taken: 0,
        }
    }
    /// Appends bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.from);
        self.at -= self.from;
        self.from = 0;
        self.buffer.extend_from_slice(bytes);
    }
    /// Number of bytes held in the buffer.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }
    /// The form of the body; `Array` while the form is not known.
    pub fn form(&self) -> Form {
        self.form.unwrap_or(Form::Array)
    }
    /// Number of commands returned so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }
    /// The next command, if it has arrived completely.
    ///
    /// # Errors
    /// 400 when the body contains something else, 413 when the command is too long.
    pub fn next_command(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        while self.at < self.buffer.len() {
            let byte = self.buffer[self.at];
            self.at += 1;
            if self.depth > 0 {
                if self.inside(byte)? {
                    let command = self.buffer[self.from..self.at].to_vec();
                    self.from = self.at;
                    self.taken += 1;
                    self.wants_command = false;
                    return Ok(Some(command));
                }
                continue;
            }
            self.between(byte)?;
        }
        if self.buffer.len() - self.from > COMMAND_BYTES_MAX {
            return Err(Problem::too_large(COMMAND_BYTES_MAX as u64)
                .member("hint", "PUT /v1/keys/{key} takes larger values"));
        }
        Ok(None)
    }
    /// Ends the body.
    ///
    /// # Errors
    /// 400 when the body is incomplete.
    pub fn end(&self) -> Result<(), Problem> {
        let whole = match self.form {
            Some(Form::Array) => self.closed,
            Some(Form::Lines) => self.depth == 0,
            None => false,
        };
        match whole {
            true => Ok(()),
            false => Err(Problem::bad_request("the body ends inside the JSON")),
        }
    }

    /// Scans a byte inside a command. Returns true when this byte ends the command.
    fn inside(&mut self, byte: u8) -> Result<bool, Problem> {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return Ok(false);
        }
        match byte {
            b'"' => self.in_string = true,
            b'[' | b'{' if self.depth == DEPTH_MAX => {
                return Err(Problem::bad_request("the JSON is nested too deep"));
            }
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => self.depth -= 1,
            _ => {}
        }
        Ok(self.depth == 0)
    }
    /// Scans a byte between commands. Such a byte is not kept.
    fn between(&mut self, byte: u8) -> Result<(), Problem> {
        let bad = || {
            Err(Problem::bad_request("the body is a JSON array of commands, or commands one after the other"))
        };
        match (self.form, byte) {
            (None, b' ' | b'\t' | b'\r' | b'\n') if self.opened => return Ok(()),
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (None, b'[') if !self.opened => {
                self.opened = true;
                self.from = self.at - 1;
                return Ok(());
            }
            (None, b'[') => {
                self.form = Some(Form::Array);
                return self.begin();
            }
            (None, b']') if self.opened => (self.form, self.closed) = (Some(Form::Array), true),
            // The opening bracket belongs to a command, not to an array of commands.
            (None, byte) if self.opened => {
                self.form = Some(Form::Lines);
                self.depth = 1;
                return self.inside(byte).map(|_| ());
            }
            (Some(Form::Lines), b'[') => return self.begin(),
            (Some(Form::Array), b'[') if self.wants_command && !self.closed => return self.begin(),
            (Some(Form::Array), b',') if !self.wants_command && !self.closed => self.wants_command = true,
            (Some(Form::Array), b']') if !self.wants_command && !self.closed => self.closed = true,
            _ => return bad(),
        }
        self.from = self.at;
        Ok(())
    }
    fn begin(&mut self) -> Result<(), Problem> {
        self.depth = 1;
        self.from = self.at - 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(body: &str, piece: usize) -> Result<(Vec<String>, Form), String> {
        let (mut elements, mut found) = (Elements::new(), Vec::new());
        let why = |p: Problem| p.document()["detail"].to_string();
        for part in body.as_bytes().chunks(piece) {
            elements.push(part);
            while let Some(command) = elements.next_command().map_err(why)? {
                found.push(String::from_utf8(command).expect("text"));
            }
        }
        elements.end().map_err(why)?;
        Ok((found, elements.form()))
    }

    #[test]
    fn both_forms_in_pieces_of_any_size() {
        for (body, commands, form) in [
            (
                r#"[["a","]["],["b\"]",{"x":[1]}]]"#,
                vec![r#"["a","]["]"#, r#"["b\"]",{"x":[1]}]"#],
                Form::Array,
            ),
            (" [ [1] , [2] ] ", vec!["[1]", "[2]"], Form::Array),
            ("[]", vec![], Form::Array),
            ("[\"PING\"]", vec!["[\"PING\"]"], Form::Lines),
            ("[ 1 ]\n[2]\r\n\n[3]", vec!["[ 1 ]", "[2]", "[3]"], Form::Lines),
            ("[1][2]", vec!["[1]", "[2]"], Form::Lines),
        ] {
            for piece in [1, 2, 3, 100] {
                let commands = commands.iter().map(|c| c.to_string()).collect();
                assert_eq!(split(body, piece), Ok((commands, form)), "{body} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn invalid_commands_are_refused() {
        for body in [
            "",
            "{}",
            "x",
            "[[1],]",
            "[[1] [2]]",
            "[[1]",
            "[[1]]x",
            "[[1]][2]",
            "[1], [2]",
            "[\"a",
            "[\"a\"]]",
        ] {
            assert!(split(body, 1).is_err(), "{body}");
            assert!(split(body, 100).is_err(), "{body}");
        }
        assert!(split(&"[".repeat(100), 7).is_err());
    }
}
