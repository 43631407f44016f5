//! redis-rs in its own idiom, RESP2 and RESP3. usage: strand-real-clients PORT

use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{Client, Connection, ErrorKind, RedisResult, Script, TypedCommands, pipe};
use std::collections::HashSet;
use std::time::Duration;

fn connect(client: &Client) -> Connection {
    let connection = client.get_connection().expect("the server is there");
    connection.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    connection
}

fn pipelines(_: &Client, c: &mut Connection) -> RedisResult<()> {
    let mut all = pipe();
    for i in 0..10_000 {
        all.set(format!("p:{i}"), i).ignore().get(format!("p:{i}"));
    }
    let replies: Vec<i64> = all.query(c)?;
    assert_eq!(replies, (0..10_000).collect::<Vec<_>>());
    let wrong: RedisResult<i64> = redis::Commands::lpush(c, "p:1", "x");
    assert_eq!(wrong.expect_err("it is a string").code(), Some("WRONGTYPE"));
    Ok(())
}

fn transactions(client: &Client, c: &mut Connection) -> RedisResult<()> {
    c.set("balance", 0)?;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut mine = connect(client);
                for _ in 0..10 {
                    let add = redis::transaction(&mut mine, &["balance"], |c, pipe| {
                        let before: i64 = redis::Commands::get(c, "balance")?;
                        pipe.set("balance", before + 1).ignore().get("balance").query::<Option<(i64,)>>(c)
                    });
                    assert!(add.expect("it succeeds").0 > 0);
                }
            });
        }
    });
    assert_eq!(c.get_int("balance")?, Some(40));
    Ok(())
}

fn messages(client: &Client, c: &mut Connection) -> RedisResult<()> {
    let mut listening = connect(client);
    let mut listener = listening.as_pubsub();
    listener.subscribe("news")?;
    listener.psubscribe("n*")?;
    for i in 0..50 {
        assert_eq!(c.publish("news", i)?, 2);
    }
    for i in 0..100 {
        let message = listener.get_message()?;
        assert_eq!(message.get_payload::<i64>()?, i / 2);
        assert_eq!(message.from_pattern(), i % 2 == 1);
    }
    Ok(())
}

fn streams_and_pops(client: &Client, c: &mut Connection) -> RedisResult<()> {
    c.xgroup_create_mkstream("s", "g", "$")?;
    let found = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let options = StreamReadOptions::default().group("g", "me").block(10_000);
            redis::Commands::xread_options::<_, _, StreamReadReply>(&mut connect(client), &["s"], &[">"], &options)
        });
        c.xadd("s", "5-1", &[("field", "value")])?;
        waiting.join().expect("it ends")
    })?;
    let entry = &found.keys[0].ids[0];
    assert_eq!((entry.id.as_str(), entry.get::<String>("field").as_deref()), ("5-1", Some("value")));
    assert_eq!(c.xack("s", "g", &["5-1"])?, 1);
    let popped: Option<(String, String)> = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| redis::Commands::blpop(&mut connect(client), &["none", "jobs"], 10.0));
        c.rpush("jobs", "work")?;
        waiting.join().expect("it ends")
    })?;
    assert_eq!(popped, Some(("jobs".into(), "work".into())));
    let none: Option<(String, String)> = redis::Commands::blpop(c, "none", 0.01)?;
    assert_eq!(none, None);
    Ok(())
}

fn iterators(_: &Client, c: &mut Connection) -> RedisResult<()> {
    let keys: HashSet<String> = redis::Commands::scan_match(c, "p:*")?.collect::<RedisResult<_>>()?;
    assert_eq!(keys.len(), 10_000);
    c.hset_multiple("h", &(0..1000).map(|i| (format!("f{i}"), i)).collect::<Vec<_>>())?;
    let fields: HashSet<(String, i64)> = redis::Commands::hscan(c, "h")?.collect::<RedisResult<_>>()?;
    assert_eq!(fields.len(), 1000);
    Ok(())
}

fn scripts(_: &Client, c: &mut Connection) -> RedisResult<()> {
    let add = Script::new("return redis.call('incrby', KEYS[1], ARGV[1])");
    for i in 1..=3 {
        assert_eq!(add.key("n").arg(5).invoke::<i64>(c)?, 5 * i);
        redis::cmd("SCRIPT").arg("FLUSH").exec(c)?;
    }
    let lost = redis::cmd("EVALSHA").arg(add.get_hash()).arg(0).exec(c).expect_err("it is lost");
    assert_eq!(lost.kind(), ErrorKind::Server(redis::ServerErrorKind::NoScript));
    Ok(())
}

fn large(_: &Client, c: &mut Connection) -> RedisResult<()> {
    // A piece whose length is prime, repeated: no two blocks of a power of two are equal.
    let piece: Vec<u8> = (0..999_983usize).map(|i| (i * 31 + (i >> 12)) as u8).collect();
    let mut value = piece.repeat(68);
    value.truncate(64 << 20);
    let key: &[u8] = b"\x00\xff\r\n\x80";
    c.set(key, &value[..])?;
    assert!(redis::Commands::get::<_, Vec<u8>>(c, key)? == value);
    assert_eq!(c.del(key)?, 1);
    Ok(())
}

fn reconnecting(client: &Client, c: &mut Connection) -> RedisResult<()> {
    let mut other = connect(client);
    let id: i64 = redis::cmd("CLIENT").arg("ID").query(&mut other)?;
    assert_eq!(redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).query::<i64>(c)?, 1);
    let ended = redis::cmd("PING").exec(&mut other).expect_err("it was killed");
    assert!(ended.is_io_error(), "{ended}");
    redis::cmd("PING").exec(&mut connect(client))
}

fn main() {
    let port = std::env::args().nth(1).expect("usage: strand-real-clients PORT");
    for protocol in [2, 3] {
        let query = if protocol == 3 { "?protocol=resp3" } else { "" };
        let client = Client::open(format!("redis://127.0.0.1:{port}/{query}")).expect("an address");
        let mut c = connect(&client);
        c.flushall().expect("it is emptied");
        type Run = fn(&Client, &mut Connection) -> RedisResult<()>;
        let all: [(&str, Run); 8] = [
            ("pipelines", pipelines),
            ("transactions that are tried again", transactions),
            ("publish and subscribe", messages),
            ("streams and blocking pops", streams_and_pops),
            ("iterators", iterators),
            ("scripts whose text the server has lost", scripts),
            ("large values and binary keys", large),
            ("a connection that is killed, and a new one", reconnecting),
        ];
        for (name, run) in all {
            run(&client, &mut c).unwrap_or_else(|error| panic!("{name}: {error}"));
            println!("ok   {name}, RESP{protocol}");
        }
    }
}
