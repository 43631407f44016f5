//! [`SessionClient`]: sends commands to the session of an HTTP connection and reads the replies, one request after
//! another.
//!
//! Replies left unread by a cancelled response are skipped before the commands of the next request. The session's
//! user and database follow the request: when the credentials differ from those of the last request, the session
//! logs in again. A request without credentials never inherits the login of an earlier one.

use crate::auth::Credentials;
use crate::budget::RequestBudget;
use crate::pipe::{Holding, HttpEnd};
use crate::problem::Problem;
use crate::turns::Steps;
use hyper::StatusCode;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::Poll;
use strand_chain::Chain;
use strand_wire::digits::Digits;
use strand_wire::events::{Event, Events};

/// The error when the session has ended or has broken the protocol. It can take no more commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl From<Gone> for Problem {
    fn from(_: Gone) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the server closes this connection").closing()
    }
}

/// Maximum size of a reply that is read whole ([`SessionClient::value`]), in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// Number of bytes that one [`Value`] of a whole reply counts in the budget, besides its text.
const VALUE_BYTES: usize = 2 * size_of::<Value>();
/// The user of requests that name no user.
const DEFAULT_USER: &[u8] = b"default";

/// The HTTP side's client of the session.
pub struct SessionClient {
    http_end: HttpEnd,
    /// Counts the last string read as the client's memory, until the next event.
    text: RefCell<Holding>,
    /// Counts the last whole reply read as the client's memory, until the next whole reply.
    value: RefCell<RequestBudget>,
    events: RefCell<Events>,
    /// Number of replies that were not read to their end.
    unread_replies: Cell<usize>,
    /// Number of arguments that the current command still needs.
    arguments_left: Cell<usize>,
    /// The user of the session, and the version of the users at login. `None` without a successful login.
    identity: RefCell<Option<(Option<Credentials>, u64)>>,
    db: Cell<u64>,
    /// True after the first login, successful or not.
    is_used: Cell<bool>,
}

impl SessionClient {
    /// Creates a client at the HTTP side's end of a pipe.
    pub fn new(http_end: HttpEnd) -> SessionClient {
        SessionClient {
            text: RefCell::new(http_end.holding()),
            value: RefCell::new(RequestBudget::new(http_end.holding(), VALUE_BYTES_MAX)),
            http_end,
            events: RefCell::default(),
            unread_replies: Cell::new(0),
            arguments_left: Cell::new(0),
            identity: RefCell::new(None),
            db: Cell::new(0),
            is_used: Cell::new(false),
        }
    }
    /// Sends a command.
    pub fn command(&self, args: &[&[u8]]) {
        self.begin_command(args.len());
        args.iter().for_each(|arg| self.argument(arg));
    }
    /// Starts a command of `args` arguments. The arguments follow.
    pub fn begin_command(&self, args: usize) {
        self.unread_replies.set(self.unread_replies.get() + 1);
        self.arguments_left.set(args);
        self.header(b'*', args);
    }
    /// Sends one argument of the command that was begun.
    pub fn argument(&self, arg: &[u8]) {
        self.begin_argument(arg.len());
        self.http_end.push(arg);
        self.end_argument();
    }
    /// Sends arguments of the command that was begun. Waits while the pipe has no room. Other tasks run between slices.
    ///
    /// # Errors
    /// When the session is gone.
    pub async fn arguments<'a>(&self, args: impl Iterator<Item = &'a [u8]>) -> Result<(), Gone> {
        let mut steps = Steps::default();
        for arg in args {
            self.wait_for_room().await?;
            self.argument(arg);
            steps.step().await;
        }
        Ok(())
    }
    /// Starts an argument of `len` bytes. Its bytes follow through [`SessionClient::http_end`].
    pub fn begin_argument(&self, len: usize) {
        self.header(b'$', len);
    }
    /// Ends the argument that was begun.
    pub fn end_argument(&self) {
        self.arguments_left.set(self.arguments_left.get().saturating_sub(1));
        self.http_end.push(b"\r\n");
    }
    fn header(&self, kind: u8, n: usize) {
        let digits = Digits::unsigned(n as u64);
        let mut line = [kind; 24];
        let len = digits.as_slice().len();
        line[1..=len].copy_from_slice(digits.as_slice());
        line[len + 1..len + 3].copy_from_slice(b"\r\n");
        self.http_end.push(&line[..len + 3]);
    }
    /// The HTTP side's end of the pipe, through which bodies are sent.
    pub fn http_end(&self) -> &HttpEnd {
        &self.http_end
    }
    /// Waits until the pipe has room.
    ///
    /// # Errors
    /// When the session is gone.
    pub async fn wait_for_room(&self) -> Result<(), Gone> {
        poll_fn(|_| match (self.http_end.has_room(), self.http_end.has_session_ended()) {
            (_, true) => Poll::Ready(Err(Gone)),
            (true, false) => Poll::Ready(Ok(())),
            (false, false) => Poll::Pending,
        })
        .await
    }
    /// True while the session works: a whole command was sent, and no unread part of its reply has arrived.
    pub fn is_working(&self) -> bool {
        let half = usize::from(self.arguments_left.get() > 0);
        self.unread_replies.get() > half && !self.http_end.has_replies() && !self.http_end.has_session_ended()
    }
    /// Waits for the next event of the replies.
    ///
    /// # Errors
    /// When the session is gone.
    pub async fn event(&self) -> Result<Event, Gone> {
        poll_fn(|_| self.poll_event()).await
    }
    /// The next event, if it has arrived.
    ///
    /// # Errors
    /// When the session is gone.
    pub fn poll_event(&self) -> Poll<Result<Event, Gone>> {
        self.text.borrow_mut().set(0);
        let mut events = self.events.borrow_mut();
        let next = self.http_end.take(|replies| events.next(replies));
        self.http_end.set_needs_line(matches!(next, Ok(None)));
        self.subtract_ended_replies(&mut events);
        match next {
            // A message that is no reply: what follows could not be matched with the commands.
            Ok(Some(Event::Open { kind: b'>', .. })) => {
                self.http_end.close();
                Poll::Ready(Err(Gone))
            }
            Ok(Some(event)) => Poll::Ready(Ok(event)),
            Ok(None) if self.http_end.has_session_ended() => Poll::Ready(Err(Gone)),
            Ok(None) => Poll::Pending,
            Err(_) => {
                self.http_end.close();
                Poll::Ready(Err(Gone))
            }
        }
    }
    /// Up to `bytes_max` bytes of the current string; empty at its end.
    ///
    /// # Errors
    /// When the session is gone.
    pub async fn text_part(&self, bytes_max: usize) -> Result<Chain, Gone> {
        poll_fn(|_| {
            let mut events = self.events.borrow_mut();
            if events.text_left() == 0 {
                return Poll::Ready(Ok(Chain::new()));
            }
            let part = self.http_end.take(|replies| events.take(replies, bytes_max));
            self.subtract_ended_replies(&mut events);
            match part {
                Ok(part) if !part.is_empty() => Poll::Ready(Ok(part)),
                Ok(_) if !self.http_end.has_session_ended() => Poll::Pending,
                _ => Poll::Ready(Err(Gone)),
            }
        })
        .await
    }
    /// The whole current string. Shares the memory of the reply.
    ///
    /// # Errors
    /// When the session is gone.
    pub async fn text(&self) -> Result<Chain, Gone> {
        let mut text = self.text_part(usize::MAX).await?;
        loop {
            self.text.borrow_mut().set(text.len());
            let more = self.text_part(usize::MAX).await?;
            if more.is_empty() {
                return Ok(text);
            }
            text.push_chain(more);
        }
    }
    /// The whole current string as bytes, for short strings.
    ///
    /// # Errors
    /// When the session is gone.
    pub async fn bytes(&self) -> Result<Vec<u8>, Gone> {
        Ok(flat(&self.text().await?))
    }
    /// Reads a reply that is a line or a string. Returns its bytes; `None` for null.
    ///
    /// # Errors
    /// The problem for an error reply, and the problem for [`Gone`].
    pub async fn line(&self) -> Result<Option<Vec<u8>>, Problem> {
        Ok(match self.event().await? {
            Event::Simple(text) | Event::Double(text) | Event::BigNumber(text) => Some(text),
            Event::Int(n) => Some(n.to_string().into_bytes()),
            Event::Bool(b) => Some(b.to_string().into_bytes()),
            Event::Null => None,
            Event::Error(text) => return Err(Problem::of_reply(&text)),
            Event::Text { is_error: true, .. } => return Err(Problem::of_reply(&self.bytes().await?)),
            Event::Text { is_verbatim: true, .. } => {
                let text = self.bytes().await?;
                Some(text.get(4..).unwrap_or_default().to_vec())
            }
            Event::Text { .. } => Some(self.bytes().await?),
            Event::Open { .. } => {
                self.skip_reply().await?;
                None
            }
        })
    }
    /// Reads a whole reply into memory, for replies that a route must have whole before it answers.
    ///
    /// # Errors
    /// The problem for an error reply, the problem for [`Gone`], and 507 for a reply over [`VALUE_BYTES_MAX`].
    pub async fn value(&self) -> Result<Value, Problem> {
        self.reply().await?.map_err(|text| Problem::of_reply(&text))
    }
    /// Reads a whole reply as [`SessionClient::value`] does, but returns the text of an error reply as `Err`.
    ///
    /// # Errors
    /// When the reply is too large, or the session is gone.
    pub async fn reply(&self) -> Result<Result<Value, Vec<u8>>, Problem> {
        self.value.borrow_mut().release_all();
        let count = |bytes: usize| {
            let taken = self.value.borrow_mut().reserve(bytes + VALUE_BYTES);
            taken.map_err(|_| {
                let detail =
                    format!("the reply that this response needs has more than {VALUE_BYTES_MAX} bytes");
                Problem::new(StatusCode::INSUFFICIENT_STORAGE, detail)
            })
        };
        // The lists that are not complete yet, each with the number of its missing values.
        let mut open: Vec<(Vec<Value>, usize)> = Vec::new();
        loop {
            let mut value = match self.event().await? {
                Event::Open { values, .. } if values > 0 => {
                    open.push((Vec::new(), values));
                    continue;
                }
                Event::Open { .. } => Value::List(Vec::new()),
                Event::Text { is_error: false, .. } => {
                    let text = self.text().await?;
                    count(text.len())?;
                    Value::Text(flat(&text))
                }
                Event::Simple(text) | Event::Double(text) | Event::BigNumber(text) => Value::Text(text),
                Event::Int(n) => Value::Text(n.to_string().into_bytes()),
                Event::Bool(b) => Value::Text(b.to_string().into_bytes()),
                Event::Null => Value::Null,
                Event::Error(text) => return Ok(Err(text)),
                Event::Text { .. } => return Ok(Err(self.bytes().await?)),
            };
            count(0)?;
            loop {
                let Some((values, left)) = open.last_mut() else { return Ok(Ok(value)) };
                values.push(value);
                *left -= 1;
                if *left > 0 {
                    break;
                }
                value = Value::List(open.pop().map(|(values, _)| values).unwrap_or_default());
            }
        }
    }
    /// Skips the rest of the current reply.
    async fn skip_reply(&self) -> Result<(), Gone> {
        poll_fn(|_| {
            loop {
                let mut events = self.events.borrow_mut();
                let ended = self.http_end.take(|replies| events.end_text(replies));
                self.subtract_ended_replies(&mut events);
                match ended {
                    Ok(true) if events.is_between() => return Poll::Ready(Ok(())),
                    Ok(true) => {}
                    Ok(false) if !self.http_end.has_session_ended() => return Poll::Pending,
                    _ => return Poll::Ready(Err(Gone)),
                }
                drop(events);
                match self.poll_event() {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(Gone)) => return Poll::Ready(Err(Gone)),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }
    /// Skips one value of an aggregate whole.
    ///
    /// # Errors
    /// When the session is gone.
    pub async fn skip_value(&self) -> Result<(), Gone> {
        let mut left = 1usize;
        while left > 0 {
            left -= 1;
            if let Event::Open { values, .. } = self.event().await? {
                left += values;
            }
        }
        Ok(())
    }
    /// Skips all unread replies.
    ///
    /// # Errors
    /// When the session is gone.
    pub async fn skip_unread_replies(&self) -> Result<(), Gone> {
        self.value.borrow_mut().release_all();
        poll_fn(|_| {
            while self.unread_replies.get() > 0 {
                match self.poll_event() {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(Gone)) => return Poll::Ready(Err(Gone)),
                    Poll::Pending if self.unread_replies.get() > 0 => return Poll::Pending,
                    Poll::Pending => {}
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
    /// Logs the session in as the sender of this request and selects database `db`. The session stays logged in while
    /// the credentials of the requests and `version`, the version of the users, stay equal.
    ///
    /// # Errors
    /// 401 when the login fails, 400 when the database does not exist.
    pub async fn log_in(
        &self,
        credentials: Option<Credentials>,
        version: u64,
        db: u64,
    ) -> Result<(), Problem> {
        self.skip_unread_replies().await?;
        // Close the pipe if replies to an earlier request are left. They may belong to another user, and must not be
        // taken for replies to this request.
        if self.http_end.has_replies() {
            self.http_end.close();
            return Err(Gone.into());
        }
        let same = self.identity.borrow().as_ref().is_some_and(|(c, v)| *c == credentials && *v == version);
        if !same {
            self.authenticate(credentials, version).await?;
        }
        if self.db.get() != db {
            self.command(&[b"SELECT", db.to_string().as_bytes()]);
            self.line().await?;
            self.db.set(db);
        }
        Ok(())
    }
    /// True after a successful login, until a login fails.
    pub fn is_logged_in(&self) -> bool {
        self.identity.borrow().is_some()
    }
    /// The password that the request sends.
    pub fn password(&self) -> Option<Vec<u8>> {
        let identity = self.identity.borrow();
        identity.as_ref().and_then(|(credentials, _)| credentials.as_ref()).map(|c| c.password.clone())
    }
    /// Passes the name of the request's user to `look`.
    pub fn with_user<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        match &*self.identity.borrow() {
            Some((Some(credentials), _)) => look(&credentials.user),
            _ => look(DEFAULT_USER),
        }
    }
    async fn authenticate(&self, credentials: Option<Credentials>, version: u64) -> Result<(), Problem> {
        self.identity.replace(None);
        // A session whose login has failed is also reset: the password may have been removed meanwhile.
        if self.is_used.replace(true) {
            self.command(&[b"RESET"]);
            self.line().await?;
            self.db.set(0);
        }
        match &credentials {
            Some(c) => self.command(&[b"HELLO", b"3", b"AUTH", &c.user, &c.password]),
            None => self.command(&[b"HELLO", b"3"]),
        }
        self.line().await?;
        *self.identity.borrow_mut() = Some((credentials, version));
        Ok(())
    }
    /// Subtracts the replies that were read to their end from the unread replies.
    fn subtract_ended_replies(&self, events: &mut Events) {
        self.unread_replies.set(self.unread_replies.get().saturating_sub(events.take_ended()));
    }
}

/// A reply that was read whole: a text, a list (a map alternates keys and values) or nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A null reply.
    Null,
    /// A reply that is not an aggregate.
    Text(Vec<u8>),
    /// A reply that is an aggregate.
    List(Vec<Value>),
}

impl Value {
    /// Number of bytes of all texts in this value.
    pub fn bytes(&self) -> usize {
        match self {
            Value::Null => 0,
            Value::Text(text) => text.len(),
            Value::List(values) => values.iter().map(Value::bytes).sum(),
        }
    }
    /// The text; `None` when the value is null or a list.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
    /// The values of a list; empty for any other value.
    pub fn list(&self) -> &[Value] {
        match self {
            Value::List(values) => values,
            _ => &[],
        }
    }
    /// The value after `name` in a map.
    pub fn member(&self, name: &[u8]) -> Option<&Value> {
        let pairs = self.list().chunks_exact(2);
        pairs.into_iter().find(|pair| pair[0].text() == Some(name)).map(|pair| &pair[1])
    }
}

/// Copies the bytes of a chain into one vector.
pub fn flat(chain: &Chain) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(chain.len());
    chain.slices().for_each(|s| bytes.extend_from_slice(s));
    bytes
}
