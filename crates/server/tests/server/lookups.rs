//! Which look-ups count as hits and as misses, command by command, beside redis-server.

use crate::introspection::both;

/// The data before each command.
const DATA: &str = "\
    SET s abc | SET n 5 | RPUSH l a b c | RPUSH l2 1 2 3 | SADD t a b c | SADD t2 b c d | ZADD z 1 a 2 b | \
    ZADD z2 1 a 3 c | HSET h f v g 1 | XADD x 1-1 a b | PFADD p a b | PFADD p2 c | \
    GEOADD g 13.361389 38.115556 P 15.087269 37.502669 C | SETBIT b 7 1";
/// Each of these runs with the data, and without.
const COMMANDS: &str = "\
    GET s | GETEX s | GETEX s EX 100 | GETEX s PERSIST | GETDEL s | GETSET s x | SET s x | SET s x GET | \
    SETNX s x | SETEX s 10 x | APPEND s x | STRLEN s | GETRANGE s 0 1 | SETRANGE s 1 x | SUBSTR s 0 1 | \
    INCR n | INCRBYFLOAT n 1 | DECR n | MGET s n nope | MSET s 1 | MSETNX s 1 q 1 | LCS s n | EXPIRE s 100 | \
    EXPIRE s -1 | PEXPIREAT s 1 | PERSIST s | TTL s | PTTL s | EXPIRETIME s | TYPE s | EXISTS s n | TOUCH s n | \
    DEL s | UNLINK s | RENAME s q | RENAMENX s q | COPY s q | COPY s n REPLACE | MOVE s 1 | DUMP s | \
    OBJECT ENCODING s | OBJECT FREQ s | OBJECT IDLETIME s | OBJECT REFCOUNT s | MEMORY USAGE s | KEYS * | \
    SCAN 0 | SORT l ALPHA | SORT l2 BY w_* | SORT l2 GET # GET w_* | SORT l2 BY nosort GET s* | \
    SORT l2 STORE q | SORT_RO l ALPHA | LPUSH l x | LPUSHX l x | RPUSHX l x | LPOP l | RPOP l 2 | LLEN l | \
    LRANGE l 0 -1 | LINDEX l 0 | LSET l 0 x | LINSERT l BEFORE a x | LREM l 0 a | LTRIM l 0 1 | LPOS l a | \
    LMOVE l l2 LEFT LEFT | LMOVE l q LEFT LEFT | LMOVE l l LEFT RIGHT | RPOPLPUSH l l2 | LMPOP 2 nope l LEFT | \
    BLPOP nope l 0.01 | BRPOP l 0.01 | BLMOVE l l2 LEFT LEFT 0.01 | BLMPOP 0.01 2 nope l LEFT | SADD t x | SREM t a | \
    SPOP t | SPOP t 2 | SRANDMEMBER t | SRANDMEMBER t 2 | SMEMBERS t | SISMEMBER t a | SMISMEMBER t a b | \
    SCARD t | SMOVE t t2 a | SMOVE t q a | SMOVE t t a | SMOVE t t2 nope | SINTER t t2 | SINTER t nope | \
    SINTERCARD 2 t t2 | SINTERSTORE q t t2 | SUNION t t2 | SUNIONSTORE q t t2 | SDIFF t t2 | \
    SDIFFSTORE q t t2 | SSCAN t 0 | ZADD z 1 x | ZADD z XX 1 a | ZINCRBY z 1 a | ZREM z a | ZSCORE z a | \
    ZMSCORE z a b | ZCARD z | ZCOUNT z 0 1 | ZLEXCOUNT z - + | ZRANGE z 0 -1 | ZRANGEBYSCORE z 0 1 | \
    ZREVRANGE z 0 1 | ZRANGEBYLEX z - + | ZRANK z a | ZREVRANK z a | ZPOPMIN z | ZPOPMAX z 2 | \
    BZPOPMIN nope z 0.01 | BZMPOP 0.01 2 nope z MIN | ZMPOP 2 nope z MIN | ZRANDMEMBER z | ZRANDMEMBER z 2 | \
    ZINTER 2 z z2 | ZUNION 2 z z2 | ZDIFF 2 z z2 | ZINTERCARD 2 z z2 | ZINTERSTORE q 2 z z2 | \
    ZUNIONSTORE q 2 z z2 | ZDIFFSTORE q 2 z z2 | ZRANGESTORE q z 0 1 | ZREMRANGEBYRANK z 0 0 | \
    ZREMRANGEBYSCORE z 0 1 | ZREMRANGEBYLEX z - + | ZSCAN z 0 | HSET h f 1 | HSETNX h f 1 | HGET h f | \
    HMGET h f g | HDEL h f | HLEN h | HKEYS h | HVALS h | HGETALL h | HEXISTS h f | HINCRBY h g 1 | \
    HINCRBYFLOAT h g 1 | HSTRLEN h f | HRANDFIELD h | HRANDFIELD h 2 | HSCAN h 0 | XADD x * a b | \
    XADD x NOMKSTREAM * a b | XLEN x | XRANGE x - + | XREVRANGE x + - | XREAD STREAMS x 0 | \
    XREAD STREAMS x nope 0 0 | XREAD STREAMS x $ | XGROUP CREATE x gg 0 | XREADGROUP GROUP gg c STREAMS x > | \
    XREADGROUP GROUP gg c STREAMS x 0 | XACK x gg 1-1 | XPENDING x gg | XPENDING x gg - + 1 | \
    XCLAIM x gg c 0 1-1 | XAUTOCLAIM x gg c 0 0 | XINFO STREAM x | XINFO GROUPS x | XINFO CONSUMERS x gg | \
    XGROUP SETID x gg 0 | XGROUP DELCONSUMER x gg c | XGROUP DESTROY x gg | XSETID x 9-9 | XDEL x 1-1 | \
    XTRIM x MAXLEN 0 | PFADD p x | PFCOUNT p | PFCOUNT p p2 nope | PFMERGE p p2 | PFMERGE q p p2 | \
    GEOADD g 1 1 x | GEOPOS g P | GEODIST g P C | GEOHASH g P | GEOSEARCH g FROMMEMBER P BYRADIUS 9 km | \
    GEOSEARCHSTORE q g FROMMEMBER P BYRADIUS 9 km | GEORADIUS g 15 37 200 km | \
    GEORADIUS g 15 37 200 km STORE q | GEORADIUSBYMEMBER g P 9 km | GEORADIUS_RO g 15 37 200 km | \
    SETBIT b 1 1 | GETBIT b 1 | BITCOUNT b | BITPOS b 1 | BITOP AND q b s | BITOP NOT q b | \
    BITFIELD b GET u8 0 | BITFIELD b SET u8 0 1 | BITFIELD_RO b GET u8 0 | RESTORE q 0 x | \
    EVAL return(redis.call('get','s')) 0 | WATCH s | UNWATCH";

#[test]
fn reads_count_as_in_redis_server() {
    let mut both = both(&[]);
    for has_data in [true, false] {
        for command in COMMANDS.split(" | ") {
            both.texts("FLUSHALL");
            if has_data {
                DATA.split(" | ").for_each(|line| drop(both.texts(line)));
            }
            both.texts("CONFIG RESETSTAT");
            both.texts(command);
            let counts = both.texts("INFO stats").map(|stats| {
                let counts = stats.lines().filter(|line| line.starts_with("keyspace_"));
                counts.collect::<Vec<_>>().join(", ")
            });
            assert_eq!(counts[0], counts[1], "{command}, with data: {has_data}");
        }
    }
}
