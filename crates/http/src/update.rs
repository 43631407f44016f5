//! `POST /v1/update`: Solr's XML update messages, so that programs written for Solr can write to Strand.
//!
//! A `<doc>` becomes a hash. Its key is a prefix (`http-update-prefix`, or the query parameter `prefix`) and the
//! document's `id`. The values of a repeated field are joined with the query parameter `separator` (a comma by
//! default, like the values of TAG fields). As in Solr, a document replaces the one with its id, by HREPLACE.
//! Fields with `update="set"`, `null="true"` or `update="inc"` change the document instead, one command after
//! another, and stop at the first refusal. Other modifiers, child documents, `overwrite="false"` and rollback are
//! refused by name. `<commit>` and `<optimize>` have no effect: the next search finds every acknowledged document.
//! `<delete>` accepts ids and queries of three kinds.
//!
//! Documents are written while the body is read. If a message is cut short, everything before the cut is done, as
//! in Solr without a transaction. The problem says how much (`added`, `deleted`) and where.

use crate::body::ResponseBody;
use crate::budget::{OverBudget, RequestBudget};
use crate::exchange::{Context, Request, Response};
use crate::problem::Problem;
use crate::search::json_response;
use crate::session_client::Value;
use crate::xml::{Node, Position, Source, Xml, at};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

/// Maximum number of fields of a document, repetitions included.
pub const FIELDS_MAX: usize = 65_536;
/// Maximum size of a document, in bytes: the text of its fields, their separators, and [`FIELD_BYTES`] for each
/// field.
pub const DOCUMENT_BYTES_MAX: usize = 64 << 20;
/// Maximum length of the separator of joined values, in bytes. Each repetition of a field adds one separator.
pub const SEPARATOR_BYTES_MAX: usize = 256;
/// Maximum length of the key prefix, in bytes. Each key contains the prefix.
pub const PREFIX_BYTES_MAX: usize = 1024;
/// Number of bytes that a field takes besides its text: its entry and its place in the table of names.
const FIELD_BYTES: usize = 256;
/// Maximum number of characters of an id in an error.
const ID_SHOWN_CHARS: usize = 64;
/// Number of bytes of a value that are sent to the session at once.
const VALUE_PART_BYTES: usize = 64 * 1024;
/// Maximum number of commands sent whose replies are not yet read.
const OUTSTANDING_MAX: usize = 256;

/// Counts what the commands of a message have done.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    added: u64,
    deleted: u64,
}

/// The command to which a reply belongs.
pub(crate) enum PendingReply {
    /// The command writes a document. A success is counted in `done`.
    Document(Position),
    /// The command deletes keys. Their number is added to `done`.
    Removal(Position),
    /// The command changes a part of a document.
    Part(Position),
}

/// A field's value and its modifier.
#[derive(Debug, PartialEq)]
enum Change {
    Put(Vec<u8>),
    Set(Vec<u8>),
    Remove,
    Increment(Vec<u8>),
}

/// An update message that is being processed.
pub(crate) struct Update {
    context: Rc<Context>,
    prefix: Vec<u8>,
    separator: Vec<u8>,
    sent: VecDeque<PendingReply>,
    done: Done,
    /// Counts the memory of the current document.
    budget: RequestBudget,
}

/// The commands that an update may need. A user who may run none of these commands is refused before the body is
/// read.
const WRITES: [&[&[u8]]; 5] = [
    &[b"HREPLACE", b"", b"FIELDS", b"", b""],
    &[b"HSET", b"", b"", b""],
    &[b"HDEL", b"", b""],
    &[b"HINCRBYFLOAT", b"", b"", b"1"],
    &[b"DEL", b""],
];

/// Answers a request with an update message.
pub async fn update(context: Rc<Context>, request: Request, _: Vec<u8>) -> Result<Response, Problem> {
    let began = Instant::now();
    let text = |name: &str, default: &str| request.query.get(name).unwrap_or(default).as_bytes().to_vec();
    let as_xml = request.query.get("wt") == Some("xml");
    let prefix = text("prefix", &context.settings.update_prefix);
    if !["text/xml", "application/xml"].contains(&request.media().as_str()) {
        let detail = "unsupported Content-Type: expected text/xml or application/xml";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let separator = text("separator", ",");
    for (name, bytes, bytes_max) in
        [("prefix", &prefix, PREFIX_BYTES_MAX), ("separator", &separator, SEPARATOR_BYTES_MAX)]
    {
        if bytes.len() > bytes_max {
            return Err(Problem::bad_request(format!(
                "the {name} is too long: expected at most {bytes_max} bytes"
            ))
            .closing());
        }
    }
    context.check_rights(&WRITES)?;
    let budget = RequestBudget::new(context.session.http_end().holding(), DOCUMENT_BYTES_MAX);
    let mut update =
        Update { context, prefix, separator, sent: VecDeque::new(), done: Done::default(), budget };
    let taken = update.message(&mut Xml::new(request)).await;
    let mut outcome = taken;
    // Documents after the first refused one were sent already. They count, so all replies are read.
    while !update.sent.is_empty() {
        outcome = outcome.and(update.read_replies_until(0).await);
    }
    let Done { added, deleted } = update.done;
    if let Err(problem) = outcome {
        return Err(problem.member("added", added).member("deleted", deleted));
    }
    let ms = began.elapsed().as_millis();
    if as_xml {
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<response><lst name=\"responseHeader\"><int name=\"status\">0</int>\
             <int name=\"QTime\">{ms}</int></lst><long name=\"added\">{added}</long><long name=\"deleted\">{deleted}</long></response>\n"
        );
        let mut response = Response::new(ResponseBody::whole(text));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        return Ok(response);
    }
    let text = format!(
        "{{\"responseHeader\":{{\"status\":0,\"QTime\":{ms}}},\"added\":{added},\"deleted\":{deleted}}}"
    );
    Ok(json_response(ResponseBody::whole(text)))
}

/// The value of an attribute.
fn attribute<'a>(attributes: &'a [(String, String)], name: &str) -> Option<&'a str> {
    attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

impl Update {
    /// Processes the root element: one instruction, or `<update>` with any number of them.
    async fn message<S: Source + Unpin>(&mut self, xml: &mut Xml<S>) -> Result<(), Problem> {
        let Some((name, attributes)) = self.child(xml).await? else {
            return Err(xml.problem(
                "the document has no element: expected <add>, <delete>, <commit>, <optimize> or <update>",
            ));
        };
        if name == "update" {
            while let Some((name, attributes)) = self.child(xml).await? {
                self.instruction(xml, &name, &attributes).await?;
            }
        } else {
            self.instruction(xml, &name, &attributes).await?;
        }
        match self.child(xml).await? {
            None => Ok(()),
            Some(_) => Err(xml.problem("the document has a second root element")),
        }
    }
    /// The next child of the current element; `None` at the element's end. Only white space may stand between
    /// children.
    async fn child<S: Source + Unpin>(
        &mut self,
        xml: &mut Xml<S>,
    ) -> Result<Option<(String, Vec<(String, String)>)>, Problem> {
        loop {
            match xml.next().await? {
                Node::Open { name, attributes } => return Ok(Some((name, attributes))),
                Node::Close(_) | Node::End => return Ok(None),
                Node::Text(text) if text.trim().is_empty() => {}
                Node::Text(_) => return Err(xml.problem("unexpected text: expected an element")),
            }
        }
    }
    /// Reads the text of the current element up to the element's end. The budget counts the capacity of the text.
    async fn text<S: Source + Unpin>(&mut self, xml: &mut Xml<S>) -> Result<String, Problem> {
        let mut text = Vec::new();
        loop {
            match xml.next().await? {
                Node::Text(more) if text.is_empty() => {
                    let old = std::mem::replace(&mut text, more.into_bytes());
                    self.budget.release(old.capacity());
                    self.budget.reserve(text.capacity()).map_err(|over| too_large(xml, over))?;
                }
                Node::Text(more) => {
                    self.budget.append(&mut text, more.as_bytes()).map_err(|over| too_large(xml, over))?;
                }
                // `text` is a concatenation of valid texts.
                Node::Close(_) | Node::End => return Ok(String::from_utf8(text).unwrap_or_default()),
                Node::Open { name, .. } => {
                    return Err(xml.problem(format!("unexpected <{name}>: expected text")));
                }
            }
        }
    }
    async fn instruction<S: Source + Unpin>(
        &mut self,
        xml: &mut Xml<S>,
        name: &str,
        attributes: &[(String, String)],
    ) -> Result<(), Problem> {
        match name {
            "add" if attribute(attributes, "overwrite") == Some("false") => {
                Err(refused(xml, "overwrite=\"false\" is not supported: an id has one document"))
            }
            "add" => {
                while let Some((name, _)) = self.child(xml).await? {
                    match name.as_str() {
                        "doc" => self.document(xml).await?,
                        _ => {
                            return Err(
                                xml.problem(format!("unexpected <{name}> inside <add>: expected <doc>"))
                            );
                        }
                    }
                }
                Ok(())
            }
            "delete" => {
                while let Some((name, _)) = self.child(xml).await? {
                    let place = xml.place();
                    let text = self.text(xml).await?;
                    match name.as_str() {
                        "id" => self.remove(text.trim(), place).await?,
                        "query" => self.remove_found(text.trim(), place).await?,
                        _ => {
                            return Err(xml.problem(format!(
                                "unexpected <{name}> inside <delete>: expected <id> or <query>"
                            )));
                        }
                    }
                    self.budget.release_all();
                }
                Ok(())
            }
            "commit" | "optimize" => match self.child(xml).await? {
                None => Ok(()),
                Some((inner, _)) => {
                    Err(xml.problem(format!("unexpected <{inner}> inside <{name}>: expected no element")))
                }
            },
            "rollback" => {
                Err(refused(xml, "rollback is not supported: every acknowledged change is already written"))
            }
            _ => Err(xml.problem(format!(
                "unexpected <{name}>: expected <add>, <delete>, <commit>, <optimize> or <update>"
            ))),
        }
    }
    async fn document<S: Source + Unpin>(&mut self, xml: &mut Xml<S>) -> Result<(), Problem> {
        let place = xml.place();
        let (mut fields, mut places) = (Vec::<(String, Change)>::new(), HashMap::new());
        let (mut id, mut elements) = (None::<String>, 0);
        while let Some((element, attributes)) = self.child(xml).await? {
            match element.as_str() {
                "field" => {}
                "doc" => return Err(refused(xml, "child documents are not supported")),
                _ => {
                    return Err(xml.problem(format!("unexpected <{element}> inside <doc>: expected <field>")));
                }
            }
            let Some(name) = attribute(&attributes, "name").filter(|n| !n.is_empty()) else {
                return Err(xml.problem("a <field> without a name: expected the attribute name"));
            };
            let is_null = attribute(&attributes, "null") == Some("true");
            let make: fn(Vec<u8>) -> Change = match attribute(&attributes, "update") {
                None if is_null => |_| Change::Remove,
                None => Change::Put,
                Some("set") if is_null => |_| Change::Remove,
                Some("set") => Change::Set,
                Some("inc") => Change::Increment,
                Some(other) => {
                    return Err(refused(
                        xml,
                        &format!("update=\"{other}\" is not supported: expected set or inc"),
                    ));
                }
            };
            let value = self.text(xml).await?;
            elements += 1;
            if elements > FIELDS_MAX {
                return Err(too_large(xml, OverBudget));
            }
            if name == "id" {
                if let Some(first) = &id {
                    let [first, second] = [first, &value].map(|id| shown(id.trim()));
                    let detail = format!(
                        "Document contains multiple values for uniqueKey field: id=[{first}, {second}]"
                    );
                    return Err(xml.problem(detail));
                }
                // The id takes memory twice: here, and as a part of the key.
                let bytes = 2 * value.len() + self.prefix.len();
                self.budget.reserve(bytes).map_err(|over| too_large(xml, over))?;
                id = Some(value.clone());
            }
            let gathered = self.gather(&mut fields, &mut places, name, make(value.into_bytes()));
            gathered.map_err(|over| too_large(xml, over))?;
        }
        let missing = || at(Problem::bad_request("Document is missing mandatory uniqueKey field: id"), place);
        self.write(id.ok_or_else(missing)?.trim(), fields, place).await
    }
    /// Adds a field to a document. A repeated field is joined with the earlier value. The budget counts the text.
    fn gather(
        &mut self,
        fields: &mut Vec<(String, Change)>,
        places: &mut HashMap<String, usize>,
        name: &str,
        change: Change,
    ) -> Result<(), OverBudget> {
        let same = places.get(name).map(|at| &mut fields[*at]);
        match (same, change) {
            (Some((_, Change::Put(old) | Change::Set(old))), Change::Put(more) | Change::Set(more)) => {
                self.budget.append(old, &self.separator)?;
                self.budget.append(old, &more)?;
                self.budget.release(more.capacity());
            }
            (_, change) => {
                self.budget.reserve(FIELD_BYTES + 2 * name.len())?;
                places.insert(name.into(), fields.len());
                fields.push((name.into(), change));
            }
        }
        Ok(())
    }
    async fn write(
        &mut self,
        id: &str,
        fields: Vec<(String, Change)>,
        place: Position,
    ) -> Result<(), Problem> {
        let key = self.key(id);
        let changes =
            fields.iter().any(|(_, c)| matches!(c, Change::Set(_) | Change::Remove | Change::Increment(_)));
        for (name, change) in &fields {
            let command: &[&[u8]] = match change {
                Change::Remove => &[b"HDEL", &key, name.as_bytes()],
                Change::Increment(by) => &[b"HINCRBYFLOAT", &key, name.as_bytes(), by.trim_ascii()],
                Change::Put(_) | Change::Set(_) => continue,
            };
            self.send(command, PendingReply::Part(place)).await?;
            // Wait for the reply, because no further command may be sent after a refused command.
            self.read_replies_until(0).await?;
        }
        let is_put = |change: &Change| matches!(change, Change::Put(_) | Change::Set(_));
        let values = fields.iter().filter(|(_, change)| is_put(change)).count();
        let session = &self.context.session;
        session.wait_for_room().await?;
        let (name, more): (&[u8], &[&[u8]]) =
            if changes { (b"HSET", &[]) } else { (b"HREPLACE", &[b"FIELDS"]) };
        session.begin_command(2 + more.len() + 2 * values);
        [name, &key].iter().chain(more).for_each(|argument| session.argument(argument));
        for (name, change) in fields {
            let (Change::Put(value) | Change::Set(value)) = change else { continue };
            session.wait_for_room().await?;
            session.argument(name.as_bytes());
            let bytes = FIELD_BYTES + 2 * name.len() + value.capacity();
            let mut value = Bytes::from(value);
            session.begin_argument(value.len());
            while !value.is_empty() {
                session.wait_for_room().await?;
                session.http_end().push_bytes(value.split_to(value.len().min(VALUE_PART_BYTES)));
            }
            session.end_argument();
            self.budget.release(bytes);
        }
        self.budget.release_all();
        self.sent.push_back(PendingReply::Document(place));
        self.read_replies_until(OUTSTANDING_MAX).await
    }
    pub(crate) async fn remove(&mut self, id: &str, place: Position) -> Result<(), Problem> {
        let key = self.key(id);
        self.send(&[b"DEL", &key], PendingReply::Removal(place)).await
    }
    /// The prefix of the documents' keys.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }
    /// The separator between the values of one field.
    pub(crate) fn separator(&self) -> &[u8] {
        &self.separator
    }
    /// Sends a command when all earlier replies are read, and reads its reply.
    pub(crate) async fn ask(&self, args: &[&[u8]]) -> Result<Value, Problem> {
        self.context.session.command(args);
        self.context.session.value().await
    }
    fn key(&self, id: &str) -> Vec<u8> {
        [&self.prefix, id.as_bytes()].concat()
    }
    pub(crate) async fn send(&mut self, args: &[&[u8]], sent: PendingReply) -> Result<(), Problem> {
        self.context.session.wait_for_room().await?;
        self.context.session.command(args);
        self.sent.push_back(sent);
        self.read_replies_until(OUTSTANDING_MAX).await
    }
    /// Reads replies until at most `left` are missing.
    pub(crate) async fn read_replies_until(&mut self, left: usize) -> Result<(), Problem> {
        while self.sent.len() > left {
            let Some(sent) = self.sent.pop_front() else { break };
            let reply = self.context.session.line().await;
            let (place, count) = match &sent {
                PendingReply::Document(place) => (*place, Some(&mut self.done.added)),
                PendingReply::Removal(place) => (*place, Some(&mut self.done.deleted)),
                PendingReply::Part(place) => (*place, None),
            };
            let reply = reply.map_err(|problem| at(problem, place))?;
            if let Some(count) = count {
                *count += match sent {
                    PendingReply::Removal(_) => {
                        reply.and_then(|n| String::from_utf8(n).ok()?.parse().ok()).unwrap_or(0)
                    }
                    _ => 1,
                };
            }
        }
        Ok(())
    }
}

/// The first [`ID_SHOWN_CHARS`] characters of an id, for an error.
fn shown(id: &str) -> String {
    id.chars().take(ID_SHOWN_CHARS).collect()
}

/// The problem 422, at the position of the last node.
fn refused<S: Source + Unpin>(xml: &Xml<S>, detail: &str) -> Problem {
    let Position { line, column } = xml.place();
    let detail = format!("line {line}, column {column}: {detail}");
    at(Problem::unprocessable(detail), xml.place())
}

fn too_large<S: Source + Unpin>(xml: &Xml<S>, _: OverBudget) -> Problem {
    let detail = format!(
        "the document is too large: expected at most {FIELDS_MAX} fields and {DOCUMENT_BYTES_MAX} bytes"
    );
    at(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).closing(), xml.place())
}
