//! [`Elements`]: splits a JSON body into commands while it arrives.
//!
//! The scanner reads each byte once and recognises only brackets and strings. The JSON parser then gets one whole
//! command at a time.

use crate::problem::Problem;

/// Maximum length of a command, in bytes of JSON. The scanner takes about 1 ns per byte and does not yield inside a
/// command.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Maximum nesting inside a command.
const DEPTH_MAX: usize = 64;

/// The form in which the body has its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
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
    consumed: usize,
    /// Offset in `buffer` of the first byte that is not scanned.
    scanned: usize,
    /// Number of brackets that are open inside the current command.
    depth: usize,
    in_string: bool,
    escaped: bool,
    form: Option<BodyForm>,
    /// True when the body's first bracket was read. That bracket may open the array or a command.
    has_opened: bool,
    /// True when the end of the array was read.
    has_closed: bool,
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
            consumed: 0,
            scanned: 0,
            depth: 0,
            in_string: false,
            escaped: false,
            form: None,
            has_opened: false,
            has_closed: false,
            wants_command: true,
            taken: 0,
        }
    }
    /// Appends bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.consumed);
        self.scanned -= self.consumed;
        self.consumed = 0;
        self.buffer.extend_from_slice(bytes);
    }
    /// Number of bytes held in the buffer.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }
    /// The form of the body; `Array` while the form is not known.
    pub fn form(&self) -> BodyForm {
        self.form.unwrap_or(BodyForm::Array)
    }
    /// Number of commands returned so far.
    pub fn command_count(&self) -> u64 {
        self.taken
    }
    /// The next command, if it has arrived completely.
    ///
    /// # Errors
    /// 400 when the body contains something else, 413 when the command is too long.
    pub fn next_command(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        while self.scanned < self.buffer.len() {
            let byte = self.buffer[self.scanned];
            self.scanned += 1;
            if self.depth > 0 {
                if self.scan_inside_command(byte)? {
                    let command = self.buffer[self.consumed..self.scanned].to_vec();
                    self.consumed = self.scanned;
                    self.taken += 1;
                    self.wants_command = false;
                    return Ok(Some(command));
                }
                continue;
            }
            self.scan_between_commands(byte)?;
        }
        if self.buffer.len() - self.consumed > COMMAND_BYTES_MAX {
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
            Some(BodyForm::Array) => self.has_closed,
            Some(BodyForm::Lines) => self.depth == 0,
            None => false,
        };
        match whole {
            true => Ok(()),
            false => Err(Problem::bad_request("the body ends inside the JSON")),
        }
    }

    /// Scans a byte inside a command. Returns true when this byte ends the command.
    fn scan_inside_command(&mut self, byte: u8) -> Result<bool, Problem> {
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
                return Err(Problem::bad_request(format!("a command is nested more than {DEPTH_MAX} deep")));
            }
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => self.depth -= 1,
            _ => {}
        }
        Ok(self.depth == 0)
    }
    /// Scans a byte between commands. Such a byte is not kept.
    fn scan_between_commands(&mut self, byte: u8) -> Result<(), Problem> {
        let bad = || {
            Err(Problem::bad_request(
                "malformed body: expected a JSON array of commands, or one command after another",
            ))
        };
        match (self.form, byte) {
            (None, b' ' | b'\t' | b'\r' | b'\n') if self.has_opened => return Ok(()),
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (None, b'[') if !self.has_opened => {
                self.has_opened = true;
                self.consumed = self.scanned - 1;
                return Ok(());
            }
            (None, b'[') => {
                self.form = Some(BodyForm::Array);
                return self.begin();
            }
            (None, b']') if self.has_opened => (self.form, self.has_closed) = (Some(BodyForm::Array), true),
            // The opening bracket belongs to a command, not to an array of commands.
            (None, byte) if self.has_opened => {
                self.form = Some(BodyForm::Lines);
                self.depth = 1;
                return self.scan_inside_command(byte).map(|_| ());
            }
            (Some(BodyForm::Lines), b'[') => return self.begin(),
            (Some(BodyForm::Array), b'[') if self.wants_command && !self.has_closed => return self.begin(),
            (Some(BodyForm::Array), b',') if !self.wants_command && !self.has_closed => {
                self.wants_command = true
            }
            (Some(BodyForm::Array), b']') if !self.wants_command && !self.has_closed => {
                self.has_closed = true
            }
            _ => return bad(),
        }
        self.consumed = self.scanned;
        Ok(())
    }
    fn begin(&mut self) -> Result<(), Problem> {
        self.depth = 1;
        self.consumed = self.scanned - 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(body: &str, piece: usize) -> Result<(Vec<String>, BodyForm), String> {
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
    fn both_forms_are_split_correctly_in_pieces_of_any_size() {
        for (body, commands, form) in [
            (
                r#"[["a","]["],["b\"]",{"x":[1]}]]"#,
                vec![r#"["a","]["]"#, r#"["b\"]",{"x":[1]}]"#],
                BodyForm::Array,
            ),
            (" [ [1] , [2] ] ", vec!["[1]", "[2]"], BodyForm::Array),
            ("[]", vec![], BodyForm::Array),
            ("[\"PING\"]", vec!["[\"PING\"]"], BodyForm::Lines),
            ("[ 1 ]\n[2]\r\n\n[3]", vec!["[ 1 ]", "[2]", "[3]"], BodyForm::Lines),
            ("[1][2]", vec!["[1]", "[2]"], BodyForm::Lines),
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
