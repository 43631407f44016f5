//! [`AclLog`]: the recent denials, newest first. Similar denials share an entry (ACL LOG).

use std::collections::VecDeque;

/// A denial joins a similar entry when the entry's last denial is at most this old, in milliseconds.
const MERGE_MS: i64 = 60_000;
/// Number of newest entries that are searched for a similar one.
const SEARCHED_MAX: usize = 10;
/// Names are cut to this many bytes, because a key may have half a gigabyte.
const NAME_BYTES_MAX: usize = 4096;

/// Why something was denied to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The user may not run the command.
    Command,
    /// The user may not access a key.
    Key,
    /// The user may not use a channel.
    Channel,
    /// A login failed.
    Auth,
}

impl Reason {
    /// The name of the reason, as ACL LOG shows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }
}

/// Where a command was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialContext {
    /// A command that a client sent outside a transaction.
    Toplevel,
    /// A command between MULTI and EXEC, or a queued command at EXEC.
    Multi,
    /// A command of a script or a function.
    Script,
}

impl DenialContext {
    /// The name of the context, as ACL LOG shows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DenialContext::Toplevel => "toplevel",
            DenialContext::Multi => "multi",
            DenialContext::Script => "lua",
        }
    }
}

/// One denial: what was denied to which user.
#[derive(Clone, Debug)]
pub(crate) struct Denial {
    pub(crate) reason: Reason,
    pub(crate) context: DenialContext,
    /// The command or the key. For a login: the command's name as the client wrote it.
    pub(crate) object: Vec<u8>,
    pub(crate) username: Vec<u8>,
    /// The client's connection, as CLIENT INFO shows it.
    pub(crate) client: String,
    /// Time of the denial in unix milliseconds.
    pub(crate) at_ms: i64,
}

/// One or more similar denials.
#[derive(Clone, Debug)]
pub(crate) struct AclLogEntry {
    /// The last one of these denials.
    pub(crate) last: Denial,
    pub(crate) count: u64,
}

/// The entries of ACL LOG, the newest first.
#[derive(Debug, Default)]
pub(crate) struct AclLog {
    entries: VecDeque<AclLogEntry>,
}

impl AclLog {
    /// Adds a denial. The log keeps at most `entries_max` entries.
    pub(crate) fn add(&mut self, mut denial: Denial, entries_max: usize) {
        denial.object.truncate(NAME_BYTES_MAX);
        denial.username.truncate(NAME_BYTES_MAX);
        let alike = |e: &AclLogEntry| {
            let last = &e.last;
            last.reason == denial.reason
                && last.context == denial.context
                && last.at_ms.abs_diff(denial.at_ms) <= MERGE_MS as u64
                && last.object == denial.object
                && last.username == denial.username
        };
        let known = self.entries.iter().take(SEARCHED_MAX).position(alike);
        if let Some(known) = known.and_then(|at| self.entries.remove(at)) {
            self.entries.push_front(AclLogEntry { last: denial, count: known.count + 1 });
            return;
        }
        self.entries.push_front(AclLogEntry { last: denial, count: 1 });
        self.entries.truncate(entries_max);
    }
    /// The newest `count` entries.
    pub(crate) fn newest(&self, count: usize) -> Vec<AclLogEntry> {
        self.entries.iter().take(count).cloned().collect()
    }
    /// Forgets all entries (ACL LOG RESET).
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(object: &str, at_ms: i64) -> Denial {
        let (object, username, client) = (object.into(), b"bob".to_vec(), format!("at {at_ms}"));
        Denial { reason: Reason::Key, context: DenialContext::Toplevel, object, username, client, at_ms }
    }
    fn shown(log: &AclLog) -> Vec<(String, u64)> {
        let own = |e: AclLogEntry| (String::from_utf8_lossy(&e.last.object).into_owned(), e.count);
        log.newest(usize::MAX).into_iter().map(own).collect()
    }

    #[test]
    fn similar_denials_share_an_entry_that_comes_first() {
        let mut log = AclLog::default();
        for (object, at_ms) in [("a", 0), ("b", 1), ("a", 60_000), ("c", 60_001), ("a", 120_001)] {
            log.add(denial(object, at_ms), 3);
        }
        let want = [("a", 1), ("c", 1), ("a", 2)].map(|(o, n)| (o.to_string(), n));
        assert_eq!(shown(&log), want);
        assert_eq!(log.newest(1)[0].last.client, "at 120001");
        for i in 0..SEARCHED_MAX {
            log.add(denial(&i.to_string(), 120_002), 100);
        }
        log.add(denial("a", 120_003), 100);
        assert_eq!(shown(&log)[0], ("a".into(), 1), "too far down");
        log.add(denial("z", 1), 0);
        assert!(shown(&log).is_empty());
    }

    #[test]
    fn denials_in_different_contexts_are_not_similar() {
        let mut log = AclLog::default();
        for context in [DenialContext::Toplevel, DenialContext::Multi, DenialContext::Script] {
            log.add(Denial { context, ..denial("a", 0) }, 10);
        }
        let shown: Vec<_> = log.newest(10).iter().map(|e| e.last.context.name()).collect();
        assert_eq!(shown, ["lua", "multi", "toplevel"]);
    }

    #[test]
    fn names_are_cut() {
        let mut log = AclLog::default();
        log.add(denial(&"k".repeat(NAME_BYTES_MAX + 1), 0), 1);
        assert_eq!(log.newest(1)[0].last.object.len(), NAME_BYTES_MAX);
    }
}
