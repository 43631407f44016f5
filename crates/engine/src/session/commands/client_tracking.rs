//! CLIENT TRACKING, CACHING, GETREDIR, TRACKINGINFO.

use super::{DONE, Outcome, SYNTAX, Session};
use crate::tracking::{PREFIX_BYTES_MAX, PREFIXES_MAX, TrackingFlags};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use strand_commands::errors;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::ErrorText;

const CACHING_UNTRACKED: &str = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
    OPTOUT mode enabled";
const CACHING_YES: &str = "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
const CACHING_NO: &str = "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";

/// The options of CLIENT TRACKING.
#[derive(Default)]
struct TrackingOptions<'a> {
    mode: TrackingFlags,
    redirect: Option<u64>,
    prefixes: Vec<&'a [u8]>,
}

impl Session {
    /// `CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`. Reply: OK.
    pub(super) fn client_tracking(&mut self, args: Args<'_>) -> Outcome {
        let asked = self.parse_tracking(args)?;
        if args.is(2, "OFF") {
            self.end_tracking();
        } else if args.is(2, "ON") {
            self.begin_tracking(&asked)?;
        } else {
            return Err(SYNTAX.into());
        }
        self.ok()
    }
    fn parse_tracking<'a>(&self, args: Args<'a>) -> Result<TrackingOptions<'a>, ErrorText> {
        let mut asked = TrackingOptions::default();
        let mut at = 3;
        while at < args.len() {
            let value = args.get(at + 1);
            match value {
                Some(value) if args.is(at, "REDIRECT") => {
                    if asked.redirect.is_some() {
                        return Err("ERR A client can only redirect to a single other client".into());
                    }
                    let id = parse_int(value).ok_or(errors::NOT_AN_INTEGER)?;
                    let known = u64::try_from(id).ok().filter(|id| self.engine.clients.get(*id).is_some());
                    let known = known.ok_or("ERR The client ID you want redirect to does not exist")?;
                    asked.redirect = Some(known);
                    at += 1;
                }
                Some(value) if args.is(at, "PREFIX") => {
                    asked.prefixes.push(value);
                    at += 1;
                }
                _ if args.is(at, "BCAST") => asked.mode = asked.mode.with(TrackingFlags::BCAST),
                _ if args.is(at, "OPTIN") => asked.mode = asked.mode.with(TrackingFlags::OPTIN),
                _ if args.is(at, "OPTOUT") => asked.mode = asked.mode.with(TrackingFlags::OPTOUT),
                _ if args.is(at, "NOLOOP") => asked.mode = asked.mode.with(TrackingFlags::NOLOOP),
                _ => return Err(SYNTAX.into()),
            }
            at += 1;
        }
        Ok(asked)
    }
    fn begin_tracking(&mut self, asked: &TrackingOptions<'_>) -> Result<(), ErrorText> {
        let (new, old) = (asked.mode, self.client.tracked.mode());
        let bcast = new.has(TrackingFlags::BCAST);
        if !bcast && !asked.prefixes.is_empty() {
            return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
        }
        if old.has(TrackingFlags::ON) && old.has(TrackingFlags::BCAST) != bcast {
            return Err(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                        re-enabling it with a different mode."
                    .into(),
            );
        }
        if bcast && (new.has(TrackingFlags::OPTIN) || new.has(TrackingFlags::OPTOUT)) {
            return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
        }
        if new.has(TrackingFlags::OPTIN) && new.has(TrackingFlags::OPTOUT) {
            return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
        }
        if (new.has(TrackingFlags::OPTIN) && old.has(TrackingFlags::OPTOUT))
            || (new.has(TrackingFlags::OPTOUT) && old.has(TrackingFlags::OPTIN))
        {
            return Err(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                        re-enabling it with a different mode."
                    .into(),
            );
        }
        let mut prefixes: Vec<&[u8]> = asked.prefixes.clone();
        if bcast {
            check_prefixes(self.subscriptions.prefixes(), &prefixes)?;
            if prefixes.is_empty() {
                prefixes.push(b"");
            }
        }
        let redirect = asked.redirect.unwrap_or(0);
        self.engine.tracking.turn_on(&self.client, new, redirect);
        for prefix in prefixes {
            if !self.subscriptions.prefixes().contains(prefix) {
                let prefix: Arc<[u8]> = prefix.into();
                self.engine.pubsub.join_prefix(&self.client, &prefix, &self.subscriptions);
                self.subscriptions.add_prefix(prefix);
            }
        }
        self.engine.update_key_listeners();
        self.subscriptions_changed();
        Ok(())
    }
    /// Turns tracking off for this client. Earlier changes of keys with its prefixes are in its inbox then.
    pub(in crate::session) fn end_tracking(&mut self) {
        while let Some(prefix) = self.subscriptions.prefixes().first().cloned() {
            self.engine.pubsub.leave_prefix(&self.client, &prefix, &self.subscriptions);
            self.subscriptions.take_prefix();
        }
        self.turn_tracking_off();
    }
    /// Turns tracking off, and leaves the prefixes to [`Session::end_subscriptions`].
    pub(in crate::session) fn turn_tracking_off(&mut self) {
        if self.client.tracked.mode().has(TrackingFlags::ON) {
            let forgotten = self.engine.tracking.turn_off(&self.client);
            if let Some(forgotten) = forgotten {
                self.engine.host.reclaim(forgotten);
            }
            self.flags.caching = false;
            self.engine.update_key_listeners();
            self.subscriptions_changed();
        }
    }
    /// `CLIENT CACHING YES|NO`, for the next command. Reply: OK.
    pub(super) fn client_caching(&mut self, args: Args<'_>) -> Outcome {
        let mode = self.client.tracked.mode();
        if !mode.has(TrackingFlags::ON) {
            return Err(CACHING_UNTRACKED.into());
        }
        let (wants, error) = if args.is(2, "YES") {
            (TrackingFlags::OPTIN, CACHING_YES)
        } else if args.is(2, "NO") {
            (TrackingFlags::OPTOUT, CACHING_NO)
        } else {
            return Err(SYNTAX.into());
        };
        if !mode.has(wants) {
            return Err(error.into());
        }
        self.flags.caching = true;
        self.ok()
    }
    /// `CLIENT GETREDIR`. Reply: the client that gets the invalidations; 0 is this client, -1 is none.
    pub(super) fn client_get_redir(&mut self) -> Outcome {
        let redirect = self.redirect();
        self.reply().int(redirect);
        DONE
    }
    fn redirect(&self) -> i64 {
        self.client.redirect()
    }
    /// `CLIENT TRACKINGINFO`. Reply: a map of flags, redirection and prefixes.
    pub(super) fn client_tracking_info(&mut self) -> Outcome {
        let (mode, caching) = (self.client.tracked.mode(), self.flags.caching);
        let mut flags = vec![if mode.has(TrackingFlags::ON) { "on" } else { "off" }];
        for (flag, name, with_caching) in [
            (TrackingFlags::BCAST, "bcast", None),
            (TrackingFlags::OPTIN, "optin", Some("caching-yes")),
            (TrackingFlags::OPTOUT, "optout", Some("caching-no")),
            (TrackingFlags::NOLOOP, "noloop", None),
            (TrackingFlags::BROKEN, "broken_redirect", None),
        ] {
            if mode.has(flag) {
                flags.push(name);
                flags.extend(with_caching.filter(|_| caching));
            }
        }
        let (redirect, prefixes) = (self.redirect(), self.subscriptions.prefixes().clone());
        let mut reply = self.reply();
        reply.map(3);
        reply.bulk(b"flags");
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
        reply.bulk(b"redirect");
        reply.int(redirect);
        reply.bulk(b"prefixes");
        reply.array(prefixes.len());
        prefixes.iter().for_each(|prefix| reply.bulk(prefix));
        DONE
    }
}

/// Checks that a client's new prefixes overlap neither each other nor its old prefixes.
fn check_prefixes(old: &BTreeSet<Arc<[u8]>>, new: &[&[u8]]) -> Result<(), ErrorText> {
    if old.len() + new.len() > PREFIXES_MAX {
        return Err(format!("ERR a client may have at most {PREFIXES_MAX} prefixes").into());
    }
    if new.iter().any(|prefix| prefix.len() > PREFIX_BYTES_MAX) {
        return Err(format!("ERR a prefix may have at most {PREFIX_BYTES_MAX} bytes").into());
    }
    let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    let Some(first) = first_overlap(old, new) else { return Ok(()) };
    let refuse = |new: &[u8], what: &str, other: &[u8]| {
        [
            b"ERR Prefix '",
            new,
            b"' overlaps with ",
            what.as_bytes(),
            b" prefix '",
            other,
            b"'. Prefixes for a single client must not overlap.",
        ]
        .concat()
    };
    let prefix = new[first];
    if let Some(other) = old.iter().find(|other| overlap(prefix, other)) {
        return Err(refuse(prefix, "an existing", other));
    }
    match new[first + 1..].iter().find(|other| overlap(prefix, other)) {
        Some(other) => Err(refuse(prefix, "another provided", other)),
        None => Ok(()),
    }
}

/// The place of the first new prefix that overlaps with an old one or with a later new one. Comparing each with each took
/// 16 ms for 1,024 prefixes of 1,000 bytes.
fn first_overlap(old: &BTreeSet<Arc<[u8]>>, new: &[&[u8]]) -> Option<usize> {
    let mut first = None;
    // The later prefixes without those that begin with another one.
    let mut shortest: BTreeSet<&[u8]> = BTreeSet::new();
    for prefix in old {
        if !shortest.last().is_some_and(|last| prefix.starts_with(last)) {
            shortest.insert(prefix);
        }
    }
    for (at, prefix) in new.iter().enumerate().rev() {
        let until = shortest.range::<[u8], _>((Bound::Unbounded, Bound::Included(*prefix)));
        if until.last().is_some_and(|other| prefix.starts_with(other)) {
            first = Some(at);
            continue;
        }
        loop {
            let from = shortest.range::<[u8], _>((Bound::Included(*prefix), Bound::Unbounded)).next();
            let Some(longer) = from.filter(|other| other.starts_with(prefix)).copied() else { break };
            shortest.remove(longer);
            first = Some(at);
        }
        shortest.insert(prefix);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_overlap_is_what_comparing_each_with_each_finds() {
        let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let mut word = |bytes_max| -> Vec<u8> {
                (0..rng.usize(1..=bytes_max)).map(|_| rng.u8(b'a'..=b'c')).collect()
            };
            let words: Vec<Vec<u8>> = (0..6).map(|_| word(5)).collect();
            let (old, new) = words.split_at(rng.usize(0..4));
            let mut held: BTreeSet<Arc<[u8]>> = BTreeSet::new();
            for prefix in old {
                if !held.iter().any(|other| overlap(prefix, other)) {
                    held.insert(prefix.as_slice().into());
                }
            }
            if rng.u8(..8) == 0 {
                held.insert(Arc::from(&b""[..]));
            }
            let new: Vec<&[u8]> = new.iter().map(Vec::as_slice).collect();
            let of_each = (0..new.len()).find(|at| {
                let others = new[at + 1..].iter().copied().chain(held.iter().map(|prefix| &**prefix));
                others.into_iter().any(|other| overlap(new[*at], other))
            });
            assert_eq!(first_overlap(&held, &new), of_each, "{held:?} {new:?}");
        }
    }
}
