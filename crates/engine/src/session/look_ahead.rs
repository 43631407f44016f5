//! The look-ahead: prefetches the memory of the keys of requests that have arrived but are not decoded yet.
//!
//! It takes the second argument for the key, and in a script's call the first key. That is a hint: for a command with its
//! key elsewhere the prefetch is useless, and the look-up waits for the memory.

use super::{Session, State};
use smallvec::SmallVec;
use strand_keyspace::{Key, Parts};
use strand_wire::resp::RequestPreview;

/// Requests whose keys are looked up together. Each lookup waits for three cache lines (bucket, record, value), and a
/// core overlaps ten to twenty of these waits. Measured with `make versus` (1 M keys, 256-byte values, pipeline 30,
/// operations per CPU-second without / with): GET 0.42 / 1.27 M, SET 0.45 / 1.37 M, INCR 0.94 / 2.4 M; redis-server
/// 0.49, 0.43, 0.85 M.
const LOOK_AHEAD_REQUESTS: usize = 16;
/// Requests until the next look-ahead when all requests have one key and its value needs no prefetch. With LPUSH at
/// pipeline 30 to one list the look-ahead took 11 % of the server's time (perf); a look-ahead every 64 requests takes
/// 2 %.
const ONE_KEY_REQUESTS: usize = 64;
/// Input shorter than this is not looked ahead into. The limit is the length of two of the shortest requests with a
/// key.
const LOOK_AHEAD_BYTES_MIN: usize = 2 * b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".len();
/// The memory for a longer input is not prefetched: the input is a pipeline, or copying it takes longer than a cache
/// miss on its key.
const LONE_REQUEST_BYTES_MAX: usize = 512;

/// Commands whose keys come after a script and the number of keys. A GET in a script waited for its key for a third
/// of the server's time (perf, `make versus ARGS='--only "EVALSHA get p30"'`).
const SCRIPT_COMMANDS: [&[u8]; 6] = [b"evalsha", b"fcall", b"eval", b"evalsha_ro", b"fcall_ro", b"eval_ro"];

impl Session {
    /// Prefetches the memory for a lone request. Returns true after a prefetch. The caller then lets other sessions run
    /// before it calls [`Session::run`], so that the memory arrives meanwhile.
    pub fn prefetch(&mut self) -> bool {
        let front = self.input.front();
        let fits = (LOOK_AHEAD_BYTES_MIN / 2..=LONE_REQUEST_BYTES_MAX).contains(&front.len());
        if !fits || self.requests.in_frame() || !matches!(self.state, State::Ready) {
            return false;
        }
        let (keyspace, db) = (&*self.engine.keyspace, self.db);
        let mut prefetch = |ahead: RequestPreview<'_>| keyspace.prefetch(db, &[keyspace.key(ahead.key)]);
        self.requests.look_ahead(front, 1, find_key, &mut prefetch) > 0
    }

    /// Prefetches the memory for the next requests of a pipeline, once for every few requests.
    #[inline]
    pub(super) fn look_ahead(&mut self) {
        if self.meter.requests_until_look_ahead > 0 {
            self.meter.requests_until_look_ahead -= 1;
            return;
        }
        let front = self.input.front();
        if front.len() < LOOK_AHEAD_BYTES_MIN {
            return;
        }
        let keyspace = &*self.engine.keyspace;
        let mut keys: SmallVec<[Key<'_>; LOOK_AHEAD_REQUESTS]> = SmallVec::new();
        let mut parts: SmallVec<[Parts<'_>; LOOK_AHEAD_REQUESTS]> = SmallVec::new();
        let mut requests = self.requests.look_ahead(front, LOOK_AHEAD_REQUESTS, find_key, &mut |ahead| {
            let key = keyspace.key(ahead.key);
            if keys.last().is_none_or(|last| last.hash != key.hash) {
                keys.push(key);
            }
            if keys.len() == 1 {
                parts.push(Parts { third: ahead.third, last: ahead.last });
            }
        });
        match &keys[..] {
            _ if requests <= 1 => {}
            [only] => {
                if !keyspace.prefetch_parts(self.db, only, &parts) {
                    requests = ONE_KEY_REQUESTS;
                }
            }
            keys => keyspace.prefetch(self.db, keys),
        }
        self.meter.requests_until_look_ahead = requests.saturating_sub(1);
    }
}

/// Index of the first key in the requests of the command with this name.
fn find_key(name: &[u8]) -> usize {
    if SCRIPT_COMMANDS.iter().any(|script| name.eq_ignore_ascii_case(script)) { 3 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strand_wire::resp::look_ahead;

    #[test]
    fn the_key_of_a_script_comes_after_the_number_of_keys() {
        for (line, key) in [
            ("GET k", "k"),
            ("EXPIRE k 10 NX", "k"),
            ("EVALSHA 0123 1 k arg", "k"),
            ("fcall_ro f 2 k other", "k"),
            ("EVAL text 0", "text"),
            ("FT.SEARCH index words LIMIT", "index"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let mut request = Vec::new();
            strand_wire::client::encode_command(&mut request, &words);
            let mut found = Vec::new();
            look_ahead(&request, 1, find_key, &mut |preview| {
                found.push(String::from_utf8_lossy(preview.key).into_owned())
            });
            assert_eq!(found, [key], "{line}");
        }
    }
}
