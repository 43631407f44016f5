//! Long scripts and transactions, and a client that watches very many keys.

use super::{Lab, MANY, Result};
use crate::fill::{self, Content};
use strand_wire::client::encode_command;

const LOOP: &str = "9 EVAL of a loop of 100000000";
const TOUCHES: &str = "9 EVAL that reads 1000000 keys";
const WRITES: &str = "9 EVAL that writes 500000 keys";
const EXEC: &str = "9 EXEC of many commands";
const WATCH: &str = "9 WATCH, UNWATCH, and EXEC of many watched keys";

pub(super) const ROWS: &[&str] = &[LOOP, TOUCHES, WRITES, EXEC, WATCH];

/// Number of iterations of the script's loop at scale 1.
const TURNS: f64 = 100_000_000.0;
/// Number of keys that the script uses at scale 1.
const KEYS: f64 = 1_000_000.0;

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    let (turns, keys, many) = (lab.options.size(TURNS), lab.options.size(KEYS), lab.options.size(MANY));
    fill::keys(&lab.server, keys, Content::Bytes(64))?;
    let counts = format!("local n = 0 for i = 1, {turns} do n = n + i end return n");
    lab.stall(LOOP, 1, |client, _| client.call(&["EVAL", &counts, "1", "counted"]).map(drop));
    let reads = format!(
        "local n = 0 for i = 0, {} do if redis.call('GET', string.format('key:%012d', i)) then n = n + 1 end end return n",
        keys - 1
    );
    lab.stall(TOUCHES, 1, |client, _| client.call(&["EVAL", &reads, "0"]).map(drop));
    let writes =
        format!("for i = 0, {} do redis.call('SET', string.format('key:%012d', i), i) end", keys / 2 - 1);
    lab.stall(WRITES, 1, |client, _| client.call(&["EVAL", &writes, "0"]).map(drop));
    let mut transaction = Vec::new();
    encode_command(&mut transaction, &["MULTI"]);
    (0..many).for_each(|n| encode_command(&mut transaction, &["INCR", &format!("counter:{n}")]));
    encode_command(&mut transaction, &["EXEC"]);
    lab.stall(EXEC, 1, |client, _| client.pipeline(&transaction).map(drop));
    let mut watches = Vec::new();
    let names = (0..many).map(|n| format!("watched:{n}"));
    let watch: Vec<String> = ["WATCH".to_string()].into_iter().chain(names).collect();
    for then in [&["UNWATCH"][..], &["MULTI", "PING", "EXEC"][..]] {
        encode_command(&mut watches, &watch);
        then.iter().for_each(|word| encode_command(&mut watches, &[*word]));
    }
    lab.stall(WATCH, 3, |client, _| client.pipeline(&watches).map(drop));
    Ok(())
}
