//! [`JsonWriter`]: writes replies as JSON while they arrive.
//!
//! Simple strings and bulk strings become strings ([`text`] defines how bytes are encoded). Integers and finite
//! doubles become numbers; null, true and false keep their value. Arrays, sets and pushes become arrays, maps
//! become objects. The keys of a map become strings, and a key that is an aggregate becomes `"?"`. Big numbers, and
//! doubles that JSON cannot express, become strings. An error inside a reply becomes an object with the single
//! member `error`.

use crate::body::{PIECE_BYTES_MAX, Writer};
use crate::pipe::Holding;
use crate::session_client::{Gone, SessionClient};
use crate::text;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use strand_chain::Chain;
use strand_wire::events::Event;
use tokio::task::yield_now;

/// Number of bytes gathered before they are sent.
const GATHER_BYTES: usize = 16 * 1024;

/// A JSON document that is being sent to a client.
pub struct JsonWriter {
    writer: Writer,
    buffer: Vec<u8>,
    holding: Holding,
    /// Number of bytes that are held before a write waits for the client.
    held_bytes_max: usize,
}

/// An aggregate that is not complete.
struct Open {
    left: usize,
    is_map: bool,
    /// True when the next value is the key of a map.
    at_key: bool,
    first: bool,
}

impl JsonWriter {
    /// Creates a writer that sends a JSON document through `writer`. Held bytes count as the memory of `session`'s
    /// client.
    pub fn new(writer: Writer, session: &SessionClient) -> JsonWriter {
        let holding = session.http_end().holding();
        JsonWriter { writer, buffer: Vec::new(), holding, held_bytes_max: GATHER_BYTES }
    }
    /// Holds up to `bytes` before a write waits for the client.
    pub fn holding(mut self, bytes: usize) -> JsonWriter {
        self.held_bytes_max = bytes;
        self
    }
    /// Sends all gathered bytes, if the client is ready to take them.
    pub fn try_flush(&mut self) {
        if self.writer.is_ready_for_piece() {
            self.writer.put(std::mem::take(&mut self.buffer));
        }
    }
    /// Appends `json` unchanged.
    pub fn raw(&mut self, json: &str) {
        self.buffer.extend_from_slice(json.as_bytes());
    }
    /// Appends `bytes` as a JSON string.
    pub fn string(&mut self, bytes: &[u8]) {
        text::quote(bytes, &mut self.buffer);
    }
    /// Sends all gathered bytes when there are at least `GATHER_BYTES`. While the client is not ready, bytes are
    /// gathered up to the limit of [`JsonWriter::holding`].
    pub async fn flush_if_full(&mut self) {
        if self.buffer.len() >= GATHER_BYTES
            && (self.writer.is_ready_for_piece() || self.buffer.len() >= self.held_bytes_max)
        {
            self.flush().await;
            // Yield, because producing this much JSON takes about 100 us.
            yield_now().await;
        }
        self.holding.set(self.buffer.len());
    }
    /// Sends all gathered bytes.
    pub async fn flush(&mut self) {
        self.writer.send(std::mem::take(&mut self.buffer)).await;
    }
    /// Appends the value that starts with `first`.
    ///
    /// # Errors
    /// When the session is gone.
    pub async fn value(&mut self, session: &SessionClient, first: Event) -> Result<(), Gone> {
        let mut open: Vec<Open> = Vec::new();
        let mut next = Some(first);
        loop {
            let event = match next.take() {
                Some(event) => event,
                None => session.event().await?,
            };
            let at_key = open.last().is_some_and(|o| o.is_map && o.at_key);
            if let Some(top) = open.last_mut() {
                if !std::mem::replace(&mut top.first, false) {
                    self.buffer.push(if top.is_map && !top.at_key { b':' } else { b',' });
                }
                top.at_key = !top.at_key;
            }
            match event {
                Event::Open { values, .. } if at_key => {
                    for _ in 0..values {
                        session.skip_value().await?;
                    }
                    self.raw("\"?\"");
                }
                Event::Open { kind, values } => {
                    let is_map = kind == b'%';
                    self.buffer.push(if is_map { b'{' } else { b'[' });
                    open.push(Open { left: values + 1, is_map, at_key: true, first: true });
                }
                event => self.scalar(session, event, at_key).await?,
            }
            while let Some(top) = open.last_mut() {
                top.left -= 1;
                if top.left > 0 {
                    break;
                }
                self.buffer.push(if top.is_map { b'}' } else { b']' });
                open.pop();
            }
            self.flush_if_full().await;
            if open.is_empty() {
                return Ok(());
            }
        }
    }

    async fn scalar(&mut self, session: &SessionClient, event: Event, at_key: bool) -> Result<(), Gone> {
        match event {
            Event::Simple(text) | Event::BigNumber(text) => self.string(&text),
            Event::Error(text) if at_key => self.string(&text),
            Event::Error(text) => self.error(&text),
            Event::Int(n) if at_key => self.string(n.to_string().as_bytes()),
            Event::Int(n) => self.raw(&n.to_string()),
            Event::Double(text) => {
                let number = std::str::from_utf8(&text).ok().and_then(|t| t.parse::<f64>().ok());
                match number.filter(|n| n.is_finite() && !at_key) {
                    Some(n) => self.raw(&serde_json::Value::from(n).to_string()),
                    None => self.string(&text),
                }
            }
            Event::Bool(b) if at_key => self.string(b.to_string().as_bytes()),
            Event::Bool(b) => self.raw(if b { "true" } else { "false" }),
            Event::Null if at_key => self.raw("\"\""),
            Event::Null => self.raw("null"),
            Event::Text { is_error, is_verbatim, .. } => {
                let mut text = session.text().await?;
                if is_verbatim {
                    text.advance(text.len().min(4));
                }
                match is_error && !at_key {
                    true => self.error(&crate::session_client::flat(&text)),
                    false => self.text(text).await,
                }
            }
            Event::Open { .. } => unreachable!("the caller handles aggregates"),
        }
        Ok(())
    }
    /// Appends an error as an object.
    pub fn error(&mut self, message: &[u8]) {
        self.raw("{\"error\":");
        self.buffer.push(b'"');
        text::escape(String::from_utf8_lossy(message).as_bytes(), &mut self.buffer);
        self.raw("\"}");
    }
    /// Appends a string of any length, in pieces.
    async fn text(&mut self, text: Chain) {
        if text.front().len() == text.len() && text.len() <= GATHER_BYTES {
            return self.string(text.front());
        }
        self.buffer.push(b'"');
        match is_plain(&text).await {
            true => {
                for piece in text.slices().flat_map(|s| s.chunks(PIECE_BYTES_MAX)) {
                    text::escape(piece, &mut self.buffer);
                    self.flush_if_full().await;
                }
            }
            false => {
                self.raw(text::BASE64_PREFIX);
                self.base64(text).await;
            }
        }
        self.buffer.push(b'"');
    }
    async fn base64(&mut self, mut text: Chain) {
        // The length of a piece is a multiple of 3, so that only the last piece is padded.
        const PIECE: usize = 3 * 16 * 1024;
        while !text.is_empty() {
            let piece = text.split_to(text.len().min(PIECE));
            let encoded = match piece.front().len() == piece.len() {
                true => BASE64_STANDARD.encode(piece.front()),
                false => BASE64_STANDARD.encode(crate::session_client::flat(&piece)),
            };
            self.raw(&encoded);
            self.flush_if_full().await;
        }
    }
}

/// True when the bytes are UTF-8 and need no `base64:` prefix. Other tasks run between slices.
async fn is_plain(chain: &Chain) -> bool {
    let mut head = [0; text::BASE64_PREFIX.len()];
    if chain.peek(&mut head) && head == *text::BASE64_PREFIX.as_bytes() {
        return false;
    }
    // `cut` has the bytes of the incomplete character at the end of the last piece, and `held` is the number of these
    // bytes.
    let (mut cut, mut held) = ([0; 4], 0);
    for piece in chain.slices().flat_map(|s| s.chunks(PIECE_BYTES_MAX)) {
        // A piece may start inside a character of the previous piece.
        let mut piece = piece;
        while held > 0 && !piece.is_empty() {
            if held == cut.len() {
                return false;
            }
            cut[held] = piece[0];
            held += 1;
            piece = &piece[1..];
            match std::str::from_utf8(&cut[..held]) {
                Ok(_) => held = 0,
                Err(e) if e.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        if let Err(e) = std::str::from_utf8(piece) {
            if e.error_len().is_some() {
                return false;
            }
            let rest = &piece[e.valid_up_to()..];
            cut[..rest.len()].copy_from_slice(rest);
            held = rest.len();
        }
        yield_now().await;
    }
    held == 0
}
