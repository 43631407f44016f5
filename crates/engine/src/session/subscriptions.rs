//! A session's subscriptions, and how it takes its messages. [`crate::pubsub`] brings the messages there.
//!
//! SUBSCRIBE and UNSUBSCRIBE of very many channels run in slices, one per turn ([`NextStep::Yield`]).

use super::commands::Outcome;
use super::permit::{DeniedCommand, STEPS_AT_ONCE};
use super::run::NextStep;
use super::session_command::SessionCommand;
use super::settings::OutputClass;
use super::{Session, State};
use crate::acl::{CHANNELS_AT_ONCE_MAX, ChannelCheck, User};
use crate::clients::Client;
use crate::pubsub::{CHANNEL_BYTES_MAX, OutputLimitExceeded, PATTERN_BYTES_MAX, Subscriptions, Topic};
use crate::{Engine, Now, TABLE, monitors};
use std::sync::Arc;
use strand_commands::glob;
use strand_commands::spec::CommandSpec;
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// Maximum number of channels of a client, and of shard channels.
const CHANNELS_MAX: usize = 1 << 20;
/// Maximum number of patterns of a client.
const PATTERNS_MAX: usize = 10_000;
/// Maximum number of bytes of all subscriptions of a client.
const SUBSCRIPTIONS_BYTES_MAX: usize = 256 << 20;
/// Maximum number of subscriptions that one turn begins or ends.
pub(super) const AT_ONCE_MAX: usize = 1024;
/// Number of subscriptions that end between two yields of the processor: about 20 microseconds. A session that ends with
/// more of them leaves them to a helper thread, because many sessions may end at once.
const UNSUBSCRIBES_PER_YIELD: usize = 64;
/// When the channel rules of a user change, the subscriptions of its sessions are checked against the new rules. With
/// more pattern elements to try than this (some milliseconds) the session is closed without a check.
const RECHECK_STEPS_MAX: usize = 1 << 20;

/// The progress of a SUBSCRIBE, UNSUBSCRIBE or WATCH that runs in slices, as numbers of arguments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) check: ChannelCheck,
    pub(super) done: usize,
}

impl Progress {
    /// True between two slices.
    pub(super) fn is_under_way(&self) -> bool {
        self.check != ChannelCheck::default() || self.done > 0
    }
}

impl Session {
    /// `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`. Reply: for each name a push with the command's name, the name, and
    /// the number of subscriptions.
    pub(super) fn subscribe(&mut self, topic: Topic, args: Args<'_>, now: Now) -> Outcome {
        if self.in_exec() && topic == Topic::Shard {
            return Err(b"ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client".to_vec());
        }
        let slice = if self.in_exec() { usize::MAX } else { AT_ONCE_MAX };
        // All names are checked before the first subscription. The gate has checked those of a short command.
        let spec = TABLE.resolve(args)?.spec;
        let may_be_sliced = !self.in_exec() && self.progress.check.checked < args.len();
        if may_be_sliced && checks_channels_in_slices(&self.identity.user, spec, args) {
            let names = args.skip(self.progress.check.checked.max(1)).iter();
            let slice = names_to_check(&self.identity.user, names);
            let check = &mut self.progress.check;
            if let Err(denied) = self.identity.user.check_channels(spec, args, topic, check, slice) {
                self.progress = Progress::default();
                self.update_client_info();
                let command = DeniedCommand { spec, args, denied, context: self.denial_context() };
                return Err(self.engine.deny(&self.client, &self.identity.user, command, now));
            }
            return Ok(NextStep::Yield);
        }
        let begin = self.progress.done.max(1);
        let end = begin.saturating_add(slice).min(args.len());
        for at in begin..end {
            let name = args.at(at);
            match self.join(topic, name) {
                Ok(()) => self.acknowledge(subscribed_word(topic), topic, Some(name)),
                Err(text) => self.reply().error(&text),
            }
        }
        self.end_slice(end, args)
    }
    /// `UNSUBSCRIBE`, `PUNSUBSCRIBE`, `SUNSUBSCRIBE` with names, or for all. Reply: as [`Session::subscribe`].
    pub(super) fn unsubscribe(&mut self, topic: Topic, args: Args<'_>) -> Outcome {
        let (word, slice) = (unsubscribed_word(topic), if self.in_exec() { usize::MAX } else { AT_ONCE_MAX });
        if args.len() > 1 {
            let begin = self.progress.done.max(1);
            let end = begin.saturating_add(slice).min(args.len());
            for at in begin..end {
                self.leave(topic, args.at(at));
                self.acknowledge(word, topic, Some(args.at(at)));
            }
            return self.end_slice(end, args);
        }
        if self.subscriptions.set(topic).is_empty() && !self.progress.is_under_way() {
            self.acknowledge(word, topic, None);
            return Ok(NextStep::Continue);
        }
        for _ in 0..slice {
            let Some(name) = self.subscriptions.set(topic).last().cloned() else {
                self.progress = Progress::default();
                return Ok(NextStep::Continue);
            };
            self.leave(topic, &name);
            self.acknowledge(word, topic, Some(&name));
        }
        self.progress.done = 1;
        Ok(NextStep::Yield)
    }
    fn end_slice(&mut self, end: usize, args: Args<'_>) -> Outcome {
        self.progress.done = end;
        if end < args.len() {
            return Ok(NextStep::Yield);
        }
        self.progress = Progress::default();
        Ok(NextStep::Continue)
    }
    /// Ends as many subscriptions as a turn allows, without a reply. False when more are left.
    pub(super) fn unsubscribe_some(&mut self) -> bool {
        for _ in 0..AT_ONCE_MAX {
            let Some((topic, name)) = self.subscriptions.last() else { return true };
            self.leave(topic, &name);
        }
        self.subscriptions.is_empty()
    }

    fn join(&mut self, topic: Topic, name: &[u8]) -> Result<(), String> {
        let subscriptions = &self.subscriptions;
        if subscriptions.has(topic, name) {
            return Ok(());
        }
        let (what, bytes_max, count_max) = match topic {
            Topic::Channel => ("channel", CHANNEL_BYTES_MAX, CHANNELS_MAX),
            Topic::Shard => ("shard channel", CHANNEL_BYTES_MAX, CHANNELS_MAX),
            Topic::Pattern => ("pattern", PATTERN_BYTES_MAX, PATTERNS_MAX),
        };
        if name.len() > bytes_max {
            return Err(format!("ERR a {what} may have at most {bytes_max} bytes"));
        }
        if topic == Topic::Pattern && glob::is_hard(name) {
            return Err("ERR the pattern would take too long to match".into());
        }
        if subscriptions.set(topic).len() >= count_max
            || subscriptions.bytes() + name.len() > SUBSCRIPTIONS_BYTES_MAX
        {
            return Err(format!("ERR a client may subscribe to at most {count_max} {what}s"));
        }
        let name: Arc<[u8]> = name.into();
        self.engine.pubsub.join(&self.client, topic, &name, subscriptions);
        self.subscriptions.add(topic, name);
        if !self.in_exec() {
            self.take_messages();
        }
        self.subscriptions_changed();
        Ok(())
    }
    fn leave(&mut self, topic: Topic, name: &[u8]) {
        if !self.subscriptions.has(topic, name) {
            return;
        }
        self.engine.pubsub.leave(&self.client, topic, name, &self.subscriptions);
        self.subscriptions.remove(topic, name);
        // Earlier messages come before the end of the subscription.
        if !self.in_exec() {
            self.take_messages();
        }
        self.subscriptions_changed();
    }
    /// Call this when the client's subscriptions, or its prefixes of CLIENT TRACKING, have changed.
    pub(super) fn subscriptions_changed(&mut self) {
        let subscriptions = &self.subscriptions;
        let bytes = subscriptions.bytes() + subscriptions.prefixes_bytes();
        self.client.inbox.set_subscriptions(subscriptions.lens(), bytes);
        self.update_inbox_limit();
        self.update_guard();
    }
    /// Passes the client's output limit to its inbox.
    pub(super) fn update_inbox_limit(&self) {
        let bytes_max = self.settings.output(self.output_class()).hard_bytes;
        let is_bounded = bytes_max > 0 || !self.is_monitor();
        self.client.inbox.set_bytes_max(if is_bounded { bytes_max } else { monitors::OUTPUT_BYTES_MAX });
    }
    fn acknowledge(&mut self, word: &str, topic: Topic, name: Option<&[u8]>) {
        let [channels, patterns, shard_channels] = self.subscriptions.lens();
        let count = if topic == Topic::Shard { shard_channels } else { channels + patterns };
        let mut reply = Reply::new(self.replies.push_target(), self.protocol);
        reply.push(3);
        reply.bulk(word.as_bytes());
        match name {
            Some(name) => reply.bulk(name),
            None => reply.null(),
        }
        reply.int(count as i64);
    }

    /// The client's class of `client-output-buffer-limit`.
    #[inline]
    pub(super) fn output_class(&self) -> OutputClass {
        match self.is_subscriber() {
            _ if self.is_replica() => OutputClass::Replica,
            true => OutputClass::PubSub,
            false => OutputClass::Normal,
        }
    }
    /// True when the session has a subscription.
    pub(super) fn is_subscriber(&self) -> bool {
        !self.subscriptions.is_empty()
    }
    /// True in RESP2's subscriber mode, in which few commands are allowed.
    pub(super) fn is_in_subscriber_mode(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.is_subscriber()
    }
    /// Takes the client's messages, unless a reply is on its way from a helper thread.
    #[inline]
    pub(super) fn deliver_messages(&mut self) {
        if self.client.inbox.is_filled() && !matches!(self.state, State::OnLane { .. }) {
            match &self.state {
                State::Blocked(blocked) => {
                    // A served reply knows the messages that come before it. The lock keeps the ticket from being
                    // served meanwhile.
                    let ticket = blocked.ticket();
                    if let Some(_waits) = ticket.lock_if_unserved() {
                        self.take_messages();
                    }
                }
                _ => self.take_messages(),
            }
        }
    }
    /// Appends the client's frames up to frame `number` to its replies.
    pub(super) fn take_messages_until(&mut self, number: u64) {
        let subscribed = self.is_subscriber();
        for frame in self.client.inbox.take_until(number) {
            self.replies.push(&frame, self.protocol, subscribed);
        }
    }
    /// Appends the client's messages to its replies. Only between two replies.
    #[inline(never)]
    pub(super) fn take_messages(&mut self) {
        if matches!(self.state, State::Closing | State::Aborted) {
            return;
        }
        match self.client.inbox.take() {
            Ok(frames) => {
                let subscribed = self.is_subscriber();
                frames.iter().for_each(|frame| self.replies.push(frame, self.protocol, subscribed));
            }
            Err(OutputLimitExceeded(waiting_bytes)) => self.abort_over_output_limit(waiting_bytes as usize),
        }
    }
    /// As in redis-server, a message that this session publishes to itself comes before the reply to PUBLISH.
    pub(super) fn take_own_messages(&mut self) {
        if self.is_subscriber() && !self.in_exec() {
            self.engine.pubsub.catch_up(&self.client, &self.subscriptions);
            self.take_messages();
        }
    }
    /// Takes the invalidations of BCAST that wait for the client, if the client has sent a command. As in redis-server,
    /// earlier changes come before the reply to the command.
    pub(super) fn catch_up_with_changes(&self) {
        if !self.subscriptions.prefixes().is_empty() && !self.input.is_empty() {
            self.engine.pubsub.catch_up(&self.client, &self.subscriptions);
        }
    }
    /// Call this when the user's rules differ from `before`. False when they do not allow the session's
    /// subscriptions.
    pub(super) fn may_keep_subscriptions(&self, before: &User) -> bool {
        let subscriptions = &self.subscriptions;
        if subscriptions.is_empty()
            || Arc::as_ptr(&self.identity.user) == before
            || self.identity.user.has_channels_of(before)
        {
            return true;
        }
        if self.identity.user.channel_steps(subscriptions.bytes()) > RECHECK_STEPS_MAX {
            return false;
        }
        let may = |topic| {
            subscriptions.set(topic).iter().all(|name| self.identity.user.may_use_channel(topic, name))
        };
        may(Topic::Channel) && may(Topic::Pattern) && may(Topic::Shard)
    }
    /// Ends the subscriptions at the end of the session. Many of them end on a helper thread.
    pub(super) fn end_subscriptions(&mut self) {
        let subscriptions = std::mem::take(&mut self.subscriptions);
        let mut ended =
            EndedSubscriptions { engine: self.engine.clone(), client: self.client.clone(), subscriptions };
        if ended.subscriptions.len() + ended.subscriptions.prefixes().len() > UNSUBSCRIBES_PER_YIELD {
            self.engine.host.reclaim(Box::new(ended));
        } else {
            ended.end();
        }
    }
}

/// The subscriptions of an ended session. Dropping this ends them.
struct EndedSubscriptions {
    engine: Arc<Engine>,
    client: Arc<Client>,
    subscriptions: Subscriptions,
}

impl EndedSubscriptions {
    fn end(&mut self) {
        let (pubsub, nothing) = (&self.engine.pubsub, Subscriptions::default());
        for count in 1usize.. {
            if let Some((topic, name)) = self.subscriptions.last() {
                pubsub.leave(&self.client, topic, &name, &nothing);
                self.subscriptions.remove(topic, &name);
            } else if let Some(prefix) = self.subscriptions.take_prefix() {
                pubsub.leave_prefix(&self.client, &prefix, &nothing);
            } else {
                return;
            }
            // The helper thread, which ends many subscriptions, may share its core with a worker.
            if count.is_multiple_of(UNSUBSCRIBES_PER_YIELD) {
                self.engine.host.yield_now();
            }
        }
    }
}

impl Drop for EndedSubscriptions {
    fn drop(&mut self) {
        self.end();
    }
}

/// True when the command checks its channels itself, because together they may take long.
pub(super) fn checks_channels_in_slices(user: &User, spec: &CommandSpec, args: Args<'_>) -> bool {
    let subscribes =
        SessionCommand::of_row(spec).is_some_and(|own| own.channels.is_some_and(|channels| channels.all));
    let bytes = || args.skip(1).iter().map(<[u8]>::len).sum();
    args.len() > CHANNELS_AT_ONCE_MAX || (subscribes && user.channel_steps(bytes()) > STEPS_AT_ONCE)
}

/// The number of these names, at least one, that are checked in one turn against the channel patterns of `user`.
fn names_to_check<'a>(user: &User, names: impl Iterator<Item = &'a [u8]>) -> usize {
    let (steps_per_byte, mut bytes) = (user.channel_steps(1), 0usize);
    let fits = |name: &&[u8]| {
        bytes += name.len().max(1);
        bytes.saturating_mul(steps_per_byte) <= STEPS_AT_ONCE
    };
    names.take(AT_ONCE_MAX).take_while(fits).count().max(1)
}

fn subscribed_word(topic: Topic) -> &'static str {
    match topic {
        Topic::Channel => "subscribe",
        Topic::Pattern => "psubscribe",
        Topic::Shard => "ssubscribe",
    }
}

fn unsubscribed_word(topic: Topic) -> &'static str {
    match topic {
        Topic::Channel => "unsubscribe",
        Topic::Pattern => "punsubscribe",
        Topic::Shard => "sunsubscribe",
    }
}
