//! The built binary, over real sockets: what the driver promises whatever its peers do.

mod blocking;
mod budgets;
mod cli;
mod crowds;
mod doors;
mod drivers;
mod eviction;
mod harness;
mod hostile;
mod http;
mod http_hostile;
mod http_limits;
mod http_update;
mod http_writes;
mod linearizable;
mod measuring;
mod neighbours;
mod pack4;
mod peers;
mod pubsub;
mod saving;
mod scripts;
mod stopping;
mod tls;
mod users;
mod wiring;
