//! The rows of group `pubsub`: publish and subscribe.

use super::super::pubsub;
use crate::pubsub::{Namespace as Chan, Topic};
use crate::session::session_command::{InFiles, InMulti, InScripts, SessionCommand};
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};
use strand_script::CallOutcome;

const SUBSCRIBES: &[F] = &[F::PUBSUB, F::NOSCRIPT, F::LOADING, F::STALE];
const PUBLISHES: &[F] = &[F::PUBSUB, F::LOADING, F::STALE, F::FAST, F::MAY_REPLICATE];
const ASKS: &[F] = &[F::PUBSUB, F::LOADING, F::STALE];
/// The positions of shard channels. In a cluster, shard channels are spread like keys, but they are not keys.
const SHARD_CHANNELS: &[KeySpec] = &[KeySpec::range(1, -1, 1, &[K::NOT_KEY])];

/// Group `pubsub`, by name.
pub(super) const PUBSUB: &[CommandSpec] = &[
    CommandSpec::new(
        "psubscribe",
        "pubsub",
        "2.0.0",
        "O(N log M), N patterns, M subscribed by this connection",
        "Subscribes to all channels that match patterns.",
    )
    .flags(SUBSCRIBES)
    .args(&[Arg::block("pattern", &[Arg::pattern("pattern")]).multiple()])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, now| session.subscribe(Topic::Pattern, args, now))
            .in_multi(InMulti::QueuedForSession)
            .allow_subscribers()
            .channels(Topic::Pattern),
    )),
    CommandSpec::new(
        "publish",
        "pubsub",
        "2.0.0",
        "O(W+P), W workers with subscribers, P patterns subscribed to",
        "Sends a message to a channel.",
    )
    .flags(PUBLISHES)
    .args(&[Arg::string("channel"), Arg::string("message")])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, _| session.publish_message(Chan::Channel, args))
            .or_detached(|engine, args, at, reply| {
                pubsub::publish_detached(engine, Chan::Channel, args, at, reply)
            })
            .in_multi(InMulti::QueuedForAnyThread)
            .channel(Topic::Channel)
            .in_scripts(InScripts::Runs(|run, argv, reply| run.publish(Chan::Channel, argv, reply)))
            .in_files(InFiles::ChangesNothing),
    )),
    CommandSpec::new(
        "pubsub",
        "pubsub",
        "2.8.0",
        "By subcommand",
        "Groups the commands about channels and subscribers.",
    )
    .arity(-2)
    .acl(&["slow"])
    .subcommands(&[
        CommandSpec::sub(
            "channels",
            "pubsub",
            "2.8.0",
            "O(N), N channels",
            "Lists channels with subscribers.",
        )
        .flags(ASKS)
        .args(&[Arg::pattern("pattern").optional()])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.pubsub_channels(Chan::Channel, args))
                .or_detached(|engine, args, _, reply| pubsub::channels(engine, Chan::Channel, args, reply))
                .in_scripts(InScripts::Detached),
        )),
        CommandSpec::sub("help", "pubsub", "6.2.0", "O(1)", "Lists the subcommands of PUBSUB.")
            .flags(&[F::LOADING, F::STALE])
            .acl(&["slow"])
            .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.pubsub_help()))),
        CommandSpec::sub("numpat", "pubsub", "2.8.0", "O(1)", "Counts the patterns that are subscribed to.")
            .flags(ASKS)
            .exec(Exec::Session(
                &SessionCommand::at_once(|session, _, _| session.pubsub_numpat()).in_scripts(
                    InScripts::Runs(|run, _, reply| {
                        reply.int(run.engine.pubsub.patterns_len() as i64);
                        CallOutcome::Replied
                    }),
                ),
            )),
        CommandSpec::sub(
            "numsub",
            "pubsub",
            "2.8.0",
            "O(N), N channels",
            "Counts the subscribers of channels.",
        )
        .flags(ASKS)
        .args(&[Arg::string("channel").optional().multiple()])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.pubsub_numsub(Chan::Channel, args))
                .or_detached(|engine, args, _, reply| pubsub::numsub(engine, Chan::Channel, args, reply))
                .in_scripts(InScripts::Detached),
        )),
        CommandSpec::sub(
            "shardchannels",
            "pubsub",
            "7.0.0",
            "O(N), N shard channels",
            "Lists shard channels with subscribers.",
        )
        .flags(ASKS)
        .args(&[Arg::pattern("pattern").optional()])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.pubsub_channels(Chan::Shard, args))
                .or_detached(|engine, args, _, reply| pubsub::channels(engine, Chan::Shard, args, reply))
                .in_scripts(InScripts::Detached),
        )),
        CommandSpec::sub(
            "shardnumsub",
            "pubsub",
            "7.0.0",
            "O(N), N shard channels",
            "Counts the subscribers of shard channels.",
        )
        .flags(ASKS)
        .args(&[Arg::string("shardchannel").optional().multiple()])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.pubsub_numsub(Chan::Shard, args))
                .or_detached(|engine, args, _, reply| pubsub::numsub(engine, Chan::Shard, args, reply))
                .in_scripts(InScripts::Detached),
        )),
    ]),
    CommandSpec::new(
        "punsubscribe",
        "pubsub",
        "2.0.0",
        "O(N log M), N patterns, M subscribed by this connection",
        "Ends subscriptions to patterns, or to all patterns.",
    )
    .flags(SUBSCRIBES)
    .args(&[Arg::pattern("pattern").optional().multiple()])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, _| session.unsubscribe(Topic::Pattern, args))
            .in_multi(InMulti::QueuedForSession)
            .allow_subscribers(),
    )),
    CommandSpec::new(
        "spublish",
        "pubsub",
        "7.0.0",
        "O(W), W workers with subscribers",
        "Sends a message to a shard channel.",
    )
    .flags(PUBLISHES)
    .keys(&[KeySpec::one(1, &[K::NOT_KEY])])
    .args(&[Arg::string("shardchannel"), Arg::string("message")])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, _| session.publish_message(Chan::Shard, args))
            .or_detached(|engine, args, at, reply| {
                pubsub::publish_detached(engine, Chan::Shard, args, at, reply)
            })
            .in_multi(InMulti::QueuedForAnyThread)
            .channel(Topic::Channel)
            .in_scripts(InScripts::Runs(|run, argv, reply| run.publish(Chan::Shard, argv, reply)))
            .in_files(InFiles::ChangesNothing),
    )),
    CommandSpec::new(
        "ssubscribe",
        "pubsub",
        "7.0.0",
        "O(N log M), N shard channels, M subscribed by this connection",
        "Subscribes to shard channels.",
    )
    .flags(SUBSCRIBES)
    .keys(SHARD_CHANNELS)
    .args(&[Arg::string("shardchannel").multiple()])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, now| session.subscribe(Topic::Shard, args, now))
            .in_multi(InMulti::QueuedForSession)
            .allow_subscribers()
            .channels(Topic::Shard),
    )),
    CommandSpec::new(
        "subscribe",
        "pubsub",
        "2.0.0",
        "O(N log M), N channels, M subscribed by this connection",
        "Subscribes to channels.",
    )
    .flags(SUBSCRIBES)
    .args(&[Arg::string("channel").multiple()])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, now| session.subscribe(Topic::Channel, args, now))
            .in_multi(InMulti::QueuedForSession)
            .allow_subscribers()
            .channels(Topic::Channel),
    )),
    CommandSpec::new(
        "sunsubscribe",
        "pubsub",
        "7.0.0",
        "O(N log M), N shard channels, M subscribed by this connection",
        "Ends subscriptions to shard channels, or to all shard channels.",
    )
    .flags(SUBSCRIBES)
    .keys(SHARD_CHANNELS)
    .args(&[Arg::string("shardchannel").optional().multiple()])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, _| session.unsubscribe(Topic::Shard, args))
            .in_multi(InMulti::QueuedForSession)
            .allow_subscribers(),
    )),
    CommandSpec::new(
        "unsubscribe",
        "pubsub",
        "2.0.0",
        "O(N log M), N channels, M subscribed by this connection",
        "Ends subscriptions to channels, or to all channels.",
    )
    .flags(SUBSCRIBES)
    .args(&[Arg::string("channel").optional().multiple()])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, _| session.unsubscribe(Topic::Channel, args))
            .in_multi(InMulti::QueuedForSession)
            .allow_subscribers(),
    )),
];
