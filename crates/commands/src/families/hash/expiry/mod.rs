//! Fields that expire: HEXPIRE, HTTL and similar commands, HPERSIST, and the commands that access fields together
//! with their expiry (HGETEX, HSETEX, HGETDEL).
//!
//! No command sees an expired field, because the keyspace removes expired fields when a command looks up the hash.

use super::collection::{argument, read, send_or_null, update_existing};
use super::update;
use crate::call::Call;
use crate::errors;
use crate::events::named;
use crate::parse::{self, ExpiryUnit, Text};
use crate::run::arg;
use strand_keyspace::journal::Arg;
use strand_keyspace::types::hash::EXPIRY_MS_MAX;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Changed, HashValue, Settings};
use strand_wire::args::Args;

/// The codes in replies. A reply has one code per field.
const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;
const CONDITION_FAILED: i64 = 0;
const DONE: i64 = 1;
const REMOVED: i64 = 2;

const NO_FIELDS: &str = "ERR Mandatory argument FIELDS is missing or not at the right position";
const OTHER_NUMBER: &str = "ERR The `numfields` parameter must match the number of arguments";
const NOT_A_NUMBER: &str = "ERR Number of fields must be a positive integer";
const NOT_A_NUMBER_TO_EXPIRE: &str = "ERR Parameter `numFields` should be greater than 0";
const NOT_A_NUMBER_TO_SET: &str = "ERR invalid number of fields";
const NEGATIVE: &str = "ERR invalid expire time, must be >= 0";
const ONE_CONDITION: &str = "ERR Only one of FXX or FNX arguments can be specified";
const ONE_EXPIRY: &str = "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
const WRONG_ARITY_TO_GET: &str = "ERR wrong number of arguments for 'hgetex' command";
const WRONG_ARITY_TO_SET: &str = "ERR wrong number of arguments for 'hsetex' command";

/// `HEXPIRE key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`. Reply for each field: -2 when it is
/// missing, 0 when the condition does not hold, 1 when the expiry was set, 2 when the expiry lies in the past and the
/// field was removed.
pub(crate) fn hexpire(call: &mut Call<'_, '_>) {
    expire(call, ExpiryUnit::Seconds, "hexpire");
}
/// `HPEXPIRE key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(crate) fn hpexpire(call: &mut Call<'_, '_>) {
    expire(call, ExpiryUnit::Millis, "hpexpire");
}
/// `HEXPIREAT key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(crate) fn hexpireat(call: &mut Call<'_, '_>) {
    expire(call, ExpiryUnit::UnixSeconds, "hexpireat");
}
/// `HPEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(crate) fn hpexpireat(call: &mut Call<'_, '_>) {
    expire(call, ExpiryUnit::UnixMillis, "hpexpireat");
}

/// `HTTL key FIELDS numfields field [field ...]`. Reply for each field: the seconds left, -1 without expiry, -2 when it
/// is missing.
pub(crate) fn httl(call: &mut Call<'_, '_>) {
    let now_ms = call.now_ms;
    reply_expiries(call, move |at_ms| seconds(at_ms - now_ms));
}
/// `HPTTL key FIELDS numfields field [field ...]`
pub(crate) fn hpttl(call: &mut Call<'_, '_>) {
    let now_ms = call.now_ms;
    reply_expiries(call, move |at_ms| at_ms - now_ms);
}
/// `HEXPIRETIME key FIELDS numfields field [field ...]`
pub(crate) fn hexpiretime(call: &mut Call<'_, '_>) {
    reply_expiries(call, seconds);
}
/// `HPEXPIRETIME key FIELDS numfields field [field ...]`
pub(crate) fn hpexpiretime(call: &mut Call<'_, '_>) {
    reply_expiries(call, |at_ms| at_ms);
}

/// `HPERSIST key FIELDS numfields field [field ...]`. Reply for each field: 1 when its expiry was removed, -1 when it
/// had none, -2 when it is missing.
pub(crate) fn hpersist(call: &mut Call<'_, '_>) {
    if let Err(text) = persist(call) {
        call.reply.error(&text);
    }
}

/// `HGETDEL key FIELDS numfields field [field ...]`: reads fields and removes them. Reply: their values, null for a
/// missing field.
pub(crate) fn hgetdel(call: &mut Call<'_, '_>) {
    if let Err(text) = get_and_remove(call) {
        call.reply.error(&text);
    }
}

/// `HGETEX key [EX seconds | PX milliseconds | EXAT time | PXAT time | PERSIST] FIELDS numfields field [field ...]`:
/// reads fields and sets their expiry. Reply: their values, null for a missing field.
pub(crate) fn hgetex(call: &mut Call<'_, '_>) {
    if let Err(text) = get_and_expire(call) {
        call.reply.error(&text);
    }
}

/// `HSETEX key [NX | XX] [FNX | FXX] [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL] FIELDS numfields
/// field value [field value ...]`. Reply: 1 when all fields were set, 0 when the condition does not hold.
pub(crate) fn hsetex(call: &mut Call<'_, '_>) {
    match set_and_expire(call) {
        Ok(set) => call.reply.int(set.into()),
        Err(text) => call.reply.error(&text),
    }
}

/// The condition of HEXPIRE and similar commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    Nx,
    Xx,
    Gt,
    Lt,
}

impl Condition {
    fn of(args: Args<'_>, at: usize) -> Option<Condition> {
        let words =
            [("NX", Condition::Nx), ("XX", Condition::Xx), ("GT", Condition::Gt), ("LT", Condition::Lt)];
        words.into_iter().find(|(word, _)| args.is(at, word)).map(|(_, condition)| condition)
    }
    /// True when a field with the expiry `before_ms` may get the expiry `at_ms`. A field without an expiry counts
    /// as expiring later than all others.
    fn holds(self, before_ms: Option<i64>, at_ms: i64) -> bool {
        match self {
            Condition::None => true,
            Condition::Nx => before_ms.is_none(),
            Condition::Xx => before_ms.is_some(),
            Condition::Gt => before_ms.is_some_and(|before_ms| at_ms > before_ms),
            Condition::Lt => before_ms.is_none_or(|before_ms| at_ms < before_ms),
        }
    }
}

fn expire(call: &mut Call<'_, '_>, unit: ExpiryUnit, command: &str) {
    if let Err(text) = try_expire(call, unit, command) {
        call.reply.error(&text);
    }
}

fn try_expire(call: &mut Call<'_, '_>, unit: ExpiryUnit, command: &str) -> Result<(), Text> {
    let (args, now_ms) = (call.args, call.now_ms);
    check_type(call)?;
    let at_ms = new_expiry(args, 2, unit, now_ms, command)?;
    let condition = Condition::of(args, 3).unwrap_or(Condition::None);
    let from = if condition == Condition::None { 3 } else { 4 };
    let fields = fields_from(args, from, 1, [NOT_A_NUMBER_TO_EXPIRE, OTHER_NUMBER])?;
    let is_past = call.txn.is_past(at_ms);
    if is_past {
        call.txn.set_event(named::HDEL);
    }
    let codes = codes_of(call, fields, |hash, field, settings| {
        let code = expire_field(hash, field, at_ms, is_past, condition, settings);
        (code, code > CONDITION_FAILED)
    })?;
    let done = fields.iter().zip(codes).filter(|(_, code)| *code > CONDITION_FAILED).map(|(field, _)| field);
    expires(call, if is_past { None } else { Some(at_ms) }, done);
    Ok(())
}

/// Calls `change` with each of `fields`. `change` returns the field's code for the reply, and whether it changed
/// the field. Returns the codes, in the order of the fields.
fn codes_of(
    call: &mut Call<'_, '_>,
    fields: Args<'_>,
    mut change: impl FnMut(&mut HashValue, &[u8], &Settings) -> (i64, bool),
) -> Result<Vec<i64>, Text> {
    let codes = update_existing(call, |hash: &mut HashValue, settings| {
        let mut changed = false;
        let mut code = |field| {
            let (code, has_changed) = change(hash, field, settings);
            changed |= has_changed;
            code
        };
        let codes: Vec<i64> = fields.iter().map(&mut code).collect();
        (codes, changed.into())
    })?;
    let codes = codes.unwrap_or_else(|| vec![NO_FIELD; fields.len()]);
    call.reply.array(codes.len());
    codes.iter().for_each(|code| call.reply.int(*code));
    Ok(codes)
}

/// Records the effect: these fields get the expiry `at_ms`, or are removed (`None`).
fn expires<'a>(call: &mut Call<'_, '_>, at_ms: Option<i64>, fields: impl Iterator<Item = &'a [u8]>) {
    if !call.is_recorded() {
        return;
    }
    let fields: Vec<Arg<'_>> = fields.map(Arg::Bytes).collect();
    if fields.is_empty() {
        return;
    }
    let (key, number) = (call.keys[0].bytes, fields.len().to_string());
    match at_ms.map(|ms| ms.to_string()) {
        None => call.effect(&[&[b"HDEL".into(), key.into()], &fields[..]].concat()),
        Some(ms) => {
            let ms = ms.as_bytes().into();
            let head = [b"HPEXPIREAT".into(), key.into(), ms, b"FIELDS".into(), number.as_bytes().into()];
            call.effect(&[&head, &fields[..]].concat());
        }
    }
}

fn expire_field(
    hash: &mut HashValue,
    field: &[u8],
    at_ms: i64,
    is_past: bool,
    condition: Condition,
    settings: &Settings,
) -> i64 {
    let Some(before_ms) = hash.expiry_ms(field) else { return NO_FIELD };
    if !condition.holds(before_ms, at_ms) {
        return CONDITION_FAILED;
    }
    if is_past {
        hash.remove(field);
        return REMOVED;
    }
    hash.set_expiry(field, Some(at_ms), settings);
    DONE
}

/// Replies with one number per field. `number` computes it from the field's expiry.
fn reply_expiries(call: &mut Call<'_, '_>, number: impl Fn(i64) -> i64) {
    let fields =
        match check_type(call).and_then(|()| fields_from(call.args, 2, 1, [NOT_A_NUMBER, OTHER_NUMBER])) {
            Ok(fields) => fields,
            Err(text) => return call.reply.error(&text),
        };
    read(call, |hash: Option<&HashValue>, reply| {
        reply.array(fields.len());
        for field in fields.iter() {
            reply.int(match hash.and_then(|hash| hash.expiry_ms(field)) {
                None => NO_FIELD,
                Some(None) => NO_EXPIRY,
                Some(Some(at_ms)) => number(at_ms),
            });
        }
    });
}

/// Converts milliseconds to whole seconds, rounded up.
fn seconds(ms: i64) -> i64 {
    (ms + 999) / 1000
}

fn persist(call: &mut Call<'_, '_>) -> Result<(), Text> {
    check_type(call)?;
    let fields = fields_from(call.args, 2, 1, [NOT_A_NUMBER, OTHER_NUMBER])?;
    codes_of(call, fields, |hash, field, settings| match hash.expiry_ms(field) {
        None => (NO_FIELD, false),
        Some(None) => (NO_EXPIRY, false),
        Some(Some(_)) => (DONE, hash.set_expiry(field, None, settings)),
    })?;
    Ok(())
}

fn get_and_remove(call: &mut Call<'_, '_>) -> Result<(), Text> {
    check_type(call)?;
    let fields = fields_from(call.args, 2, 1, [NOT_A_NUMBER, OTHER_NUMBER])?;
    let changed = send_and_change(call, fields, |hash, field, _| hash.remove(field))?;
    expires(call, None, changed.into_iter());
    Ok(())
}

/// For each of `fields`, sends the field's value and then calls `change`, which returns whether it changed the
/// field. This goes field by field, so that a field that is named twice and removed is found only once. Returns the
/// changed fields.
fn send_and_change<'a>(
    call: &mut Call<'_, '_>,
    fields: Args<'a>,
    mut change: impl FnMut(&mut HashValue, &[u8], &Settings) -> bool,
) -> Result<Vec<&'a [u8]>, Text> {
    let settings = call.txn.keyspace().settings();
    let reply = &mut *call.reply;
    reply.array(fields.len());
    let sent = call.txn.db(call.db).change(&call.keys[0], |hash: &mut HashValue| {
        let mut changed = Vec::new();
        for field in fields.iter() {
            send_or_null(reply, hash.get(field));
            if change(hash, field, settings) {
                changed.push(field);
            }
        }
        let any = !changed.is_empty();
        (changed, any.into())
    });
    let changed = sent.map_err(parse::wrong_type)?;
    if changed.is_none() {
        fields.iter().for_each(|_| call.reply.null());
    }
    Ok(changed.unwrap_or_default())
}

fn get_and_expire(call: &mut Call<'_, '_>) -> Result<(), Text> {
    let (args, now_ms) = (call.args, call.now_ms);
    check_type(call)?;
    let options = Options::of_get(args, now_ms)?;
    if options.end + 1 >= args.len() {
        return Err(WRONG_ARITY_TO_GET.into());
    }
    let fields = fields_from(args, options.end, 1, [NOT_A_NUMBER, OTHER_NUMBER])?;
    let at_ms = options.at_ms;
    let is_past = at_ms.is_some_and(|at_ms| call.txn.is_past(at_ms));
    if at_ms.is_none() && !options.persist {
        read(call, |hash: Option<&HashValue>, reply| {
            reply.array(fields.len());
            fields.iter().for_each(|field| send_or_null(reply, hash.and_then(|hash| hash.get(field))));
        });
        return Ok(());
    }
    if options.persist {
        call.txn.set_event(named::HPERSIST);
    } else if is_past {
        call.txn.set_event(named::HDEL);
    }
    let changed =
        send_and_change(call, fields, |hash, field, settings| match (at_ms, hash.expiry_ms(field)) {
            (_, None) | (None, Some(None)) => false,
            (Some(_), Some(_)) if is_past => hash.remove(field),
            (at_ms, Some(_)) => hash.set_expiry(field, at_ms, settings),
        })?;
    if at_ms.is_some() {
        expires(call, at_ms.filter(|_| !is_past), changed.into_iter());
    } else if call.is_recorded() && !changed.is_empty() {
        let (key, number) = (call.keys[0].bytes, changed.len().to_string());
        let head = [b"HPERSIST".into(), key.into(), b"FIELDS".into(), number.as_bytes().into()];
        let fields: Vec<Arg<'_>> = changed.into_iter().map(Arg::Bytes).collect();
        call.effect(&[&head, &fields[..]].concat());
    }
    Ok(())
}

fn set_and_expire(call: &mut Call<'_, '_>) -> Result<bool, Text> {
    let (args, now_ms) = (call.args, call.now_ms);
    let options = Options::of_set(args, now_ms)?;
    if options.end + 3 >= args.len() {
        return Err(WRONG_ARITY_TO_SET.into());
    }
    let pairs = fields_from(args, options.end, 2, [NOT_A_NUMBER_TO_SET, WRONG_ARITY_TO_SET])?;
    check_type(call)?;
    let at_ms = options.at_ms;
    let first = args.len() - pairs.len();
    let is_there = call.txn.db(call.db).peek(&call.keys[0]).is_some();
    if (options.nx && is_there) || (options.xx && !is_there) {
        return Ok(false);
    }
    let is_past = at_ms.is_some_and(|at_ms| call.txn.is_past(at_ms));
    let fields = || (first..args.len()).step_by(2);
    let are_met = |hash: &HashValue| {
        let has = |at| hash.get(args.at(at)).is_some();
        !(options.fnx && fields().any(has)) && (!options.fxx || fields().all(has))
    };
    // With a time in the past, the fields are set and removed: `hset`, `hdel`, and `del` for an empty hash.
    let mut db = call.txn.db(call.db);
    if is_past && db.peek_at::<HashValue>(&call.keys[0]).is_ok_and(|hash| hash.is_some_and(are_met)) {
        db.report_event(&call.keys[0], named::HSET);
        db.set_event(named::HDEL);
    }
    let set = update(call, |hash, settings| {
        if !are_met(hash) {
            return Ok((false, Changed::No));
        }
        for at in fields() {
            let (field, value) = (args.at(at), argument(args, at + 1));
            match at_ms {
                Some(_) if is_past => {
                    hash.remove(field);
                    continue;
                }
                _ if options.keep_ttl => hash.update(field, value, settings),
                _ => hash.set(field, value, settings),
            };
            if at_ms.is_some() {
                hash.set_expiry(field, at_ms, settings);
            }
        }
        Ok((true, Changed::Yes))
    })?;
    if set && at_ms.is_some() && !is_past {
        call.txn.db(call.db).report_event(&call.keys[0], named::HEXPIRE);
    }
    if set && call.is_recorded() {
        let mut named = fields().map(|at| args.at(at));
        if is_past {
            expires(call, None, named);
        } else if at_ms.is_some() {
            let pairs: Vec<Arg<'_>> = (first..args.len()).map(|at| arg(args, at)).collect();
            call.effect(&[&[b"HSET".into(), call.keys[0].bytes.into()], &pairs[..]].concat());
            expires(call, at_ms, &mut named);
        }
    }
    Ok(set)
}

/// The options of HGETEX and HSETEX.
#[derive(Default)]
struct Options {
    nx: bool,
    xx: bool,
    fnx: bool,
    fxx: bool,
    keep_ttl: bool,
    persist: bool,
    /// The new expiry in Unix milliseconds.
    at_ms: Option<i64>,
    /// The position at which the word FIELDS must be.
    end: usize,
}

impl Options {
    /// HGETEX has at most one option. Any other word is no option, so FIELDS is not at its position.
    fn of_get(args: Args<'_>, now_ms: i64) -> Result<Options, Text> {
        let mut o = Options { end: 2, ..Options::default() };
        if args.is(o.end, "PERSIST") {
            o.persist = true;
            o.end += 1;
        } else if let Some(unit) = ExpiryUnit::from_option(args.at(o.end)) {
            o.at_ms = Some(new_expiry(args, o.end + 1, unit, now_ms, "hgetex")?);
            o.end += 2;
        }
        Ok(o)
    }
    fn of_set(args: Args<'_>, now_ms: i64) -> Result<Options, Text> {
        let mut o = Options { end: 2, ..Options::default() };
        while o.end < args.len() && !args.is(o.end, "FIELDS") {
            let is = |word: &str| args.is(o.end, word);
            let unit = ExpiryUnit::from_option(args.at(o.end));
            if (is("NX") || is("XX")) && (o.nx || o.xx) {
                return Err(errors::SYNTAX.into());
            } else if (is("FNX") || is("FXX")) && (o.fnx || o.fxx) {
                return Err(ONE_CONDITION.into());
            } else if (is("KEEPTTL") || unit.is_some()) && (o.keep_ttl || o.at_ms.is_some()) {
                return Err(ONE_EXPIRY.into());
            } else if is("NX") {
                o.nx = true;
            } else if is("XX") {
                o.xx = true;
            } else if is("FNX") {
                o.fnx = true;
            } else if is("FXX") {
                o.fxx = true;
            } else if is("KEEPTTL") {
                o.keep_ttl = true;
            } else if let Some(unit) = unit {
                o.end += 1;
                o.at_ms = Some(new_expiry(args, o.end, unit, now_ms, "hsetex")?);
            } else {
                let word = String::from_utf8_lossy(args.at(o.end));
                return Err(format!("ERR unknown argument: {word}").into());
            }
            o.end += 1;
        }
        Ok(o)
    }
}

/// The expiry of argument `at`, in Unix milliseconds.
fn new_expiry(args: Args<'_>, at: usize, unit: ExpiryUnit, now_ms: i64, command: &str) -> Result<i64, Text> {
    let given = parse::integer(args.get(at).ok_or(errors::SYNTAX)?)?;
    if given < 0 {
        return Err(NEGATIVE.into());
    }
    expiry_at(given, unit, now_ms, command)
}

/// Converts `given`, which must not be negative, to an expiry in Unix milliseconds.
fn expiry_at(given: i64, unit: ExpiryUnit, now_ms: i64, command: &str) -> Result<i64, Text> {
    let at_ms = match unit {
        ExpiryUnit::Seconds => given.checked_mul(1000).and_then(|ms| ms.checked_add(now_ms)),
        ExpiryUnit::Millis => given.checked_add(now_ms),
        ExpiryUnit::UnixSeconds => given.checked_mul(1000),
        ExpiryUnit::UnixMillis => Some(given),
    };
    let at_ms = at_ms.filter(|at_ms| *at_ms <= EXPIRY_MS_MAX);
    at_ms.ok_or_else(|| errors::invalid_expire_time(command).into())
}

/// Parses `FIELDS number` at argument `at`, and the arguments after it. There are `each` arguments per field. The last
/// argument has the errors of a number that is none, and of a number that differs from that of the fields.
fn fields_from<'a>(
    args: Args<'a>,
    at: usize,
    each: usize,
    [not_a_number, other_number]: [&'static str; 2],
) -> Result<Args<'a>, Text> {
    if at + 1 >= args.len() || !args.is(at, "FIELDS") {
        return Err(NO_FIELDS.into());
    }
    let number = parse_int(args.at(at + 1)).filter(|n| *n > 0).ok_or(not_a_number)?;
    let fields = args.skip(at + 2);
    match usize::try_from(number).ok().and_then(|number| number.checked_mul(each)) == Some(fields.len()) {
        true => Ok(fields),
        false => Err(other_number.into()),
    }
}

/// Refuses a value of another type. The error WRONGTYPE is reported before errors in the arguments.
fn check_type(call: &mut Call<'_, '_>) -> Result<(), Text> {
    let mut db = call.txn.db(call.db);
    match db.peek_at::<HashValue>(&call.keys[0]) {
        Ok(_) => Ok(()),
        Err(other) => Err(parse::wrong_type(other).into()),
    }
}

#[cfg(test)]
mod tests;
