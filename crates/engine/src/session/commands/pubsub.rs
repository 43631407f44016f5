//! PUBLISH, SPUBLISH and PUBSUB. Subscribing is in [`crate::session::subscriptions`].

use super::{ARGS_AT_ONCE_MAX, DONE, Outcome, Session};
use crate::Engine;
use crate::pubsub::{CHANNEL_BYTES_MAX, Namespace, Payload};
use crate::session::DetachedContext;
use crate::session::run::NextStep;
use strand_commands::{glob, introspect};
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// With more channels than this, PUBSUB CHANNELS runs on a helper thread.
const LISTED_AT_ONCE_MAX: usize = 1000;

impl Session {
    /// `PUBLISH channel message`, `SPUBLISH shardchannel message`. Reply: the number of receiving subscriptions.
    pub(super) fn publish_message(&mut self, kind: Namespace, args: Args<'_>) -> Outcome {
        if kind == Namespace::Channel && self.engine.pubsub.is_long(args.at(1).len()) {
            return Ok(NextStep::Detach);
        }
        let receivers = publish(&self.engine, kind, args)?;
        // EXEC itself passes the messages of its commands on.
        if !self.in_exec() {
            self.engine.pass_message_on(args, None);
        }
        if receivers > 0 {
            self.take_own_messages();
        }
        self.reply().int(receivers as i64);
        DONE
    }
    /// `PUBSUB CHANNELS [pattern]`, `PUBSUB SHARDCHANNELS [pattern]`. Reply: the channels with subscribers.
    pub(super) fn pubsub_channels(&mut self, kind: Namespace, args: Args<'_>) -> Outcome {
        if self.engine.pubsub.channels_len(kind) > LISTED_AT_ONCE_MAX || args.iter().any(glob::is_hard) {
            return Ok(NextStep::Detach);
        }
        let engine = self.engine.clone();
        channels(&engine, kind, args, &mut self.reply())?;
        DONE
    }
    /// `PUBSUB NUMSUB [channel ...]`, `PUBSUB SHARDNUMSUB [shardchannel ...]`. Reply: each channel with its number of
    /// subscribers.
    pub(super) fn pubsub_numsub(&mut self, kind: Namespace, args: Args<'_>) -> Outcome {
        if args.len() > ARGS_AT_ONCE_MAX {
            return Ok(NextStep::Detach);
        }
        let engine = self.engine.clone();
        numsub(&engine, kind, args, &mut self.reply())?;
        DONE
    }
    /// `PUBSUB NUMPAT`. Reply: the number of different patterns.
    pub(super) fn pubsub_numpat(&mut self) -> Outcome {
        let patterns = self.engine.pubsub.patterns_len();
        self.reply().int(patterns as i64);
        DONE
    }
    pub(super) fn pubsub_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "PUBSUB", HELP);
        DONE
    }
}

/// Runs PUBLISH on a helper thread, for a long channel name.
pub(super) fn publish_detached(
    engine: &Engine,
    kind: Namespace,
    args: Args<'_>,
    at: DetachedContext,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    let receivers = publish(engine, kind, args)?;
    if !at.in_exec {
        engine.pass_message_on(args, None);
    }
    reply.int(receivers as i64);
    Ok(())
}

impl Engine {
    /// Sends a message that a primary's stream has. False for another command.
    pub(crate) fn publish_from_primary(&self, args: Args<'_>) -> bool {
        let kind = match args.len() == 3 {
            true if args.is(0, "PUBLISH") => Namespace::Channel,
            true if args.is(0, "SPUBLISH") => Namespace::Shard,
            _ => return false,
        };
        // A channel with a name that is too long has no subscriber here.
        let _ = publish(self, kind, args);
        true
    }
}

fn publish(engine: &Engine, kind: Namespace, args: Args<'_>) -> Result<usize, ErrorText> {
    if args.at(1).len() > CHANNEL_BYTES_MAX {
        return Err(format!("ERR a channel may have at most {CHANNEL_BYTES_MAX} bytes").into());
    }
    Ok(engine.pubsub.publish(kind, args.at(1), &Payload::of(args, 2)))
}

/// PUBSUB CHANNELS and SHARDCHANNELS, on a worker or a helper thread.
pub(super) fn channels(
    engine: &Engine,
    kind: Namespace,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    if args.len() > 3 {
        return Err([
            b"ERR unknown subcommand or wrong number of arguments for '",
            args.at(1),
            b"'. Try PUBSUB HELP.",
        ]
        .concat());
    }
    let pattern = args.get(2);
    let mut found: Vec<Vec<u8>> = Vec::new();
    engine.pubsub.channels(kind, |channel| {
        if pattern.is_none_or(|pattern| glob::matches(pattern, channel, false)) {
            found.push(channel.to_vec());
        }
    });
    reply.array(found.len());
    found.iter().for_each(|channel| reply.bulk(channel));
    Ok(())
}

/// PUBSUB NUMSUB and SHARDNUMSUB, on a worker or a helper thread.
pub(super) fn numsub(
    engine: &Engine,
    kind: Namespace,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    reply.array(2 * (args.len() - 2));
    for channel in args.skip(2).iter() {
        reply.bulk(channel);
        reply.int(engine.pubsub.subscribers(kind, channel) as i64);
    }
    Ok(())
}

const HELP: &[&str] = &[
    "CHANNELS [<pattern>]",
    "    Return the channels with subscribers: all channels, or the channels that match <pattern>.",
    "NUMPAT",
    "    Return the number of different patterns that are subscribed to.",
    "NUMSUB [<channel> ...]",
    "    Return these channels, each with the number of its subscribers.",
    "SHARDCHANNELS [<pattern>]",
    "    Return the shard channels with subscribers: all of them, or those that match <pattern>.",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return these shard channels, each with the number of its subscribers.",
];
