//! The commands that sessions run themselves: they read or change the session, the clients or the server, not the data.
//!
//! Each is a method of [`Session`] that writes its reply or returns the text of an error.

mod acl;
mod alone;
mod client;
mod client_kill;
mod client_tracking;
mod config;
mod connection;
mod debug;
mod debug_data;
mod diag;
mod diag_commands;
mod importing;
mod info;
mod info_keysizes;
mod info_sections;
mod introspection;
mod latency;
mod memory;
mod monitor;
mod pubsub;
mod scripting;
mod server;
mod slowlog;
mod wait;

pub(crate) use alone::NO_CLUSTER;
pub(crate) use connection::REDIS_VERSION;
pub(in crate::session) use debug::is_plain;
pub(crate) use scripting::{load_library, replay as replay_scripting};

use super::run::Next;
use super::{Session, State, Turn};
use crate::pubsub::{Kind, Topic};
use crate::{Engine, Now};
use strand_commands::introspect;
use strand_commands::spec::SessionCommand;
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// What comes of a command: how to go on, or the whole text of an error reply (without the `-`).
pub(in crate::session) type Outcome = Result<Next, Vec<u8>>;

/// The usual end of a command.
const DONE: Outcome = Ok(Next::Go);

/// A command of this kind with more arguments than this runs on a helper thread: each may cost a microsecond or more.
const ARGS_AT_ONCE_MAX: usize = 64;

const SYNTAX: &str = strand_commands::errors::SYNTAX;

/// Runs one of those that ask for [`Next::Detach`]; they touch shared state only. On a helper thread.
pub(super) fn detached(
    engine: &Engine,
    command: SessionCommand,
    args: Args<'_>,
    db: usize,
    now: Now,
    reply: &mut Reply<'_>,
) {
    let done = match command {
        SessionCommand::AclCat
        | SessionCommand::AclDelUser
        | SessionCommand::AclDryRun
        | SessionCommand::AclGetUser
        | SessionCommand::AclList
        | SessionCommand::AclLoad
        | SessionCommand::AclLog
        | SessionCommand::AclSave
        | SessionCommand::AclSetUser
        | SessionCommand::AclUsers => acl::run(engine, command, args, now, reply),
        SessionCommand::ClientList => client::list(engine, args, now, reply),
        SessionCommand::ConfigGet => {
            config::get(engine, args, reply);
            Ok(())
        }
        SessionCommand::ConfigRewrite => config::rewrite(engine, reply),
        SessionCommand::ConfigSet => config::set(engine, args, true).map(|()| reply.ok()),
        SessionCommand::Publish
        | SessionCommand::PubSubChannels
        | SessionCommand::PubSubNumSub
        | SessionCommand::PubSubShardChannels
        | SessionCommand::PubSubShardNumSub => pubsub::run(engine, command, args, reply),
        SessionCommand::SlowlogGet => slowlog::get(engine, args, reply),
        SessionCommand::Debug => debug::run(engine, args, db, now, reply),
        SessionCommand::Diag => diag::run(engine, args, now, reply),
        SessionCommand::FunctionLoad | SessionCommand::FunctionRestore | SessionCommand::ScriptLoad => {
            scripting::run(engine, command, args, reply)
                .inspect(|()| scripting::record(engine, command, args))
        }
        SessionCommand::MemoryDoctor
        | SessionCommand::MemoryMallocStats
        | SessionCommand::MemoryPurge
        | SessionCommand::MemoryStats => {
            memory::run(engine, command, reply);
            Ok(())
        }
        SessionCommand::Info => {
            info::info(engine, args, now, reply);
            Ok(())
        }
        SessionCommand::LatencyHistogram => {
            latency::histogram(engine, args, reply);
            Ok(())
        }
        SessionCommand::BgRewriteAof => {
            server::bgrewriteaof_inside(engine, reply);
            Ok(())
        }
        SessionCommand::BgSave => server::bgsave_inside(engine, args, reply),
        SessionCommand::Save => engine.save(now).map(|()| reply.ok()).map_err(Vec::from),
        SessionCommand::Shutdown => server::shut_down(engine, args, now),
        _ => {
            introspect::command(command, args, reply);
            Ok(())
        }
    };
    if let Err(text) = done {
        reply.error_bytes(&text);
    }
}

impl Session {
    /// Runs one of them.
    pub(super) fn session_command(&mut self, command: SessionCommand, args: Args<'_>, now: Now) -> Outcome {
        use SessionCommand as C;
        match command {
            C::AclGenPass => self.acl_genpass(args),
            C::AclHelp => self.acl_help(),
            C::AclWhoAmI => self.acl_whoami(),
            C::AclCat
            | C::AclDelUser
            | C::AclDryRun
            | C::AclGetUser
            | C::AclList
            | C::AclLoad
            | C::AclLog
            | C::AclSave
            | C::AclSetUser
            | C::AclUsers => Ok(Next::Detach),
            C::Auth => self.auth(args, now),
            C::BgRewriteAof => self.bgrewriteaof(now),
            C::BgSave => self.bgsave(args, now),
            C::LastSave => self.last_save(),
            C::Save => Ok(Next::Detach),
            C::Echo => self.echo(args),
            C::Hello => self.hello(args, now),
            C::PSubscribe => self.subscribe(Topic::Pattern, args, now),
            C::PUnsubscribe => self.unsubscribe(Topic::Pattern, args),
            C::Ping => self.ping(args),
            C::PubSubChannels => self.pubsub_channels(Kind::Channel, args),
            C::PubSubHelp => self.pubsub_help(),
            C::PubSubNumPat => self.pubsub_numpat(),
            C::PubSubNumSub => self.pubsub_numsub(Kind::Channel, args),
            C::PubSubShardChannels => self.pubsub_channels(Kind::Shard, args),
            C::PubSubShardNumSub => self.pubsub_numsub(Kind::Shard, args),
            C::Publish => self.publish_message(Kind::Channel, args),
            C::SPublish => self.publish_message(Kind::Shard, args),
            C::SSubscribe => self.subscribe(Topic::Shard, args, now),
            C::SUnsubscribe => self.unsubscribe(Topic::Shard, args),
            C::Subscribe => self.subscribe(Topic::Channel, args, now),
            C::Unsubscribe => self.unsubscribe(Topic::Channel, args),
            C::Quit => self.quit(),
            C::Reset => self.reset(),
            C::Select => self.select(args),
            C::ClientCaching => self.client_caching(args),
            C::ClientGetName => self.client_get_name(),
            C::ClientGetRedir => self.client_get_redir(),
            C::ClientHelp => self.client_help(),
            C::ClientId => self.client_id(),
            C::ClientInfo => self.client_info(args, now),
            C::ClientKill => self.client_kill(args, now),
            C::ClientList => self.client_list(args, now),
            C::ClientNoEvict => self.client_no_evict(args),
            C::ClientNoTouch => self.client_no_touch(args),
            C::ClientPause => self.client_pause(args, now),
            C::ClientReply => self.client_reply(args),
            C::ClientSetInfo => self.client_set_info(args),
            C::ClientSetName => self.client_set_name(args),
            C::ClientTracking => self.client_tracking(args),
            C::ClientTrackingInfo => self.client_tracking_info(),
            C::ClientUnblock => self.client_unblock(args),
            C::ClientUnpause => self.client_unpause(),
            C::Command
            | C::CommandCount
            | C::CommandDocs
            | C::CommandGetKeys
            | C::CommandGetKeysAndFlags
            | C::CommandHelp
            | C::CommandInfo
            | C::CommandList => self.command_family(command, args),
            C::ConfigGet => self.config_get(args),
            C::ConfigHelp => self.config_help(),
            C::ConfigResetStat => self.config_reset_stat(),
            C::ConfigRewrite => self.config_rewrite(),
            C::ConfigSet => self.config_set(args),
            C::Eval | C::EvalRo | C::EvalSha | C::EvalShaRo | C::Fcall | C::FcallRo => {
                self.run_script(command, args, now)
            }
            C::FunctionDelete
            | C::FunctionDump
            | C::FunctionFlush
            | C::FunctionHelp
            | C::FunctionKill
            | C::FunctionList
            | C::FunctionStats
            | C::ScriptDebug
            | C::ScriptExists
            | C::ScriptFlush
            | C::ScriptHelp
            | C::ScriptKill => self.scripting(command, args),
            C::FunctionLoad | C::FunctionRestore | C::ScriptLoad => Ok(Next::Detach),
            C::Debug => self.debug(args, now),
            C::Diag => Ok(Next::Detach),
            C::DiagHelp => self.diag_help(),
            C::Discard => self.discard(),
            C::Exec => self.exec(now),
            C::Multi => self.multi(),
            C::Unwatch => self.unwatch(),
            C::Wait => self.wait(args),
            C::WaitAof => self.wait_aof(args),
            C::Watch => self.watch(args, now),
            C::ImportVersionHold => self.import_version_hold(args, now),
            C::ImportVersionReport => self.import_version_report(args),
            C::ImportVersionStatus => self.import_version_status(args),
            C::Info => self.info(args, now),
            C::LatencyDoctor
            | C::LatencyGraph
            | C::LatencyHelp
            | C::LatencyHistogram
            | C::LatencyHistory
            | C::LatencyLatest
            | C::LatencyReset => self.latency(command, args, now),
            C::Lolwut => self.lolwut(args),
            C::MemoryDoctor | C::MemoryMallocStats | C::MemoryPurge | C::MemoryStats => Ok(Next::Detach),
            C::Failover => self.failover(args),
            C::ModuleHelp => self.module_help(),
            C::ModuleList => self.module_list(),
            C::ModuleLoad => Err(alone::NOT_LOADED.into()),
            C::ModuleUnload => Err(alone::NOT_UNLOADED.into()),
            C::NoCluster => Err(NO_CLUSTER.into()),
            C::NoReplicas => Err(alone::NO_REPLICAS.into()),
            C::ReplicaOf => self.replica_of(args),
            C::Role => self.role(),
            C::Monitor => self.monitor(),
            C::Shutdown => self.shutdown(args, now),
            C::SlowlogGet => self.slowlog_get(args),
            C::SlowlogHelp => self.slowlog_help(),
            C::SlowlogLen => self.slowlog_len(),
            C::SlowlogReset => self.slowlog_reset(),
            C::Time => self.time(now),
        }
    }
    fn sleep(&mut self, until_us: u64) -> Outcome {
        self.state = State::Sleeping { until_us };
        Ok(Next::Stop(Turn::Sleep { until_mono_us: until_us }))
    }
    fn ok(&mut self) -> Outcome {
        self.reply().ok();
        DONE
    }
}
