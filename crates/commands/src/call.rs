//! What a handler sees: [`Call`] for commands that run at once on keys whose shards are held, [`LaneCall`] for those
//! that run on a helper thread, shard by shard.

use std::sync::atomic::{AtomicBool, Ordering};
use strand_keyspace::{Key, Keyspace, Locked, Lookups};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// One command at work. The shards of all its keys (by its key specs) are held in `locked`.
pub struct Call<'a, 'k> {
    /// The arguments; index 0 is the command's name (a subcommand's name is index 1).
    pub args: Args<'a>,
    /// The keys in `args` in the order of the key specs, hashed.
    pub keys: &'a [Key<'a>],
    /// The session's database.
    pub db: usize,
    /// Unix milliseconds.
    pub now_ms: i64,
    /// The held shards: `locked.db(db)`.
    pub locked: &'a mut Locked<'k>,
    /// Where the reply goes.
    pub reply: &'a mut Reply<'a>,
    /// Randomness (seeded by the driver, so that a simulation repeats).
    pub rng: &'a mut fastrand::Rng,
}

/// One command on the slow lane: nothing is held; it takes shards one at a time and lets others in between.
pub struct LaneCall<'a> {
    /// The arguments; index 0 is the command's name.
    pub args: Args<'a>,
    /// The session's database.
    pub db: usize,
    /// Unix milliseconds when the command was taken up.
    pub now_ms: i64,
    /// The data.
    pub keyspace: &'a Keyspace,
    /// Where the reply goes.
    pub reply: &'a mut Reply<'a>,
    /// Randomness.
    pub rng: &'a mut fastrand::Rng,
    /// Set when the client is gone or the server stops: look at it between slices, see [`LaneCall::cancelled`].
    pub cancel: &'a AtomicBool,
    /// `CLIENT NO-TOUCH`.
    pub no_touch: bool,
    /// What reading found.
    pub lookups: Lookups,
    /// Lets others have the processor; called between slices by [`LaneCall::pause`], with no shard held.
    pub yield_now: &'a dyn Fn(),
}

impl LaneCall<'_> {
    /// True when nobody waits for the reply any more, or it has become longer than the client may have waiting.
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.reply.is_over()
    }
    /// Between two slices: lets others have the processor. Hold no shard.
    pub fn pause(&self) {
        (self.yield_now)();
    }
}
