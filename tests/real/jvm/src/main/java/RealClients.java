import io.lettuce.core.Consumer;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.XReadArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.resps.ScanResult;

/** jedis and lettuce in their own idioms. usage: RealClients PORT */
public final class RealClients {
    private static int port;
    private static final byte[] KEY = {0, (byte) 255, '\r', '\n', (byte) 128};
    private static final ExecutorService THREADS = Executors.newCachedThreadPool();

    private static void check(boolean ok, Object... what) {
        if (!ok) throw new AssertionError(Arrays.toString(what));
    }

    private static void same(Object a, Object b) {
        check(java.util.Objects.equals(a, b), a, b);
    }

    private static void comesTrue(BooleanSupplier what) throws Exception {
        for (int tries = 0; tries < 5000; tries++) {
            if (what.getAsBoolean()) return;
            Thread.sleep(2);
        }
        throw new AssertionError("it does not come true");
    }

    private static byte[] large() {
        byte[] value = new byte[64 << 20];
        for (int i = 0; i < value.length; i++) value[i] = (byte) (i * 31 + (i >> 12));
        return value;
    }

    private static Jedis jedis(RedisProtocol protocol) {
        return new Jedis(new HostAndPort("127.0.0.1", port), DefaultJedisClientConfig.builder().protocol(protocol).timeoutMillis(20000).build());
    }

    private static void withJedis(RedisProtocol protocol) throws Exception {
        try (Jedis r = jedis(protocol)) {
            r.flushAll();
            Pipeline pipe = r.pipelined();
            List<Response<String>> replies = new ArrayList<>();
            for (int i = 0; i < 10000; i++) {
                pipe.set("p:" + i, "" + i);
                replies.add(pipe.get("p:" + i));
            }
            pipe.sync();
            for (int i = 0; i < 10000; i++) same(replies.get(i).get(), "" + i);

            r.set("balance", "0");
            List<Future<?>> adders = new ArrayList<>();
            for (int n = 0; n < 4; n++) {
                adders.add(THREADS.submit(() -> {
                    try (Jedis mine = jedis(protocol)) {
                        int done = 0;
                        for (int tries = 0; tries < 2000 && done < 10; tries++) {
                            mine.watch("balance");
                            int before = Integer.parseInt(mine.get("balance"));
                            Transaction t = mine.multi();
                            t.set("balance", "" + (before + 1));
                            if (t.exec() != null) done++;
                        }
                        same(done, 10);
                    }
                }));
            }
            for (Future<?> adder : adders) adder.get(30, TimeUnit.SECONDS);
            same(r.get("balance"), "40");

            BlockingQueue<String> heard = new LinkedBlockingQueue<>();
            JedisPubSub listener = new JedisPubSub() {
                @Override
                public void onMessage(String channel, String message) {
                    heard.add(message);
                }

                @Override
                public void onPMessage(String pattern, String channel, String message) {
                    heard.add(pattern + message);
                }
            };
            Future<?> listening = THREADS.submit(() -> {
                try (Jedis mine = jedis(protocol)) {
                    mine.subscribe(listener, "news");
                }
            });
            comesTrue(() -> r.publish("news", "probe") == 1);
            same(heard.poll(10, TimeUnit.SECONDS), "probe");
            listener.psubscribe("n*");
            comesTrue(() -> r.pubsubNumPat() == 1);
            r.publish("news", "x");
            same(heard.poll(10, TimeUnit.SECONDS), "x");
            same(heard.poll(10, TimeUnit.SECONDS), "n*x");
            listener.unsubscribe();
            listener.punsubscribe();
            listening.get(10, TimeUnit.SECONDS);

            r.xgroupCreate("s", "g", StreamEntryID.XGROUP_LAST_ENTRY, true);
            Future<StreamEntryID> read = THREADS.submit(() -> {
                try (Jedis mine = jedis(protocol)) {
                    return mine.xreadGroup("g", "one", XReadGroupParams.xReadGroupParams().block(10000), Map.of("s", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY)).get(0).getValue().get(0).getID();
                }
            });
            StreamEntryID id = r.xadd("s", StreamEntryID.NEW_ENTRY, Map.of("field", "value"));
            same(read.get(20, TimeUnit.SECONDS), id);
            same(r.xpending("s", "g").getTotal(), 1L);
            same(r.xack("s", "g", id), 1L);
            same(r.xinfoStreamFull("s").getGroups().get(0).getName(), "g");

            Future<List<String>> popped = THREADS.submit(() -> {
                try (Jedis mine = jedis(protocol)) {
                    return mine.blpop(10, "none", "jobs");
                }
            });
            r.rpush("jobs", "work");
            same(popped.get(20, TimeUnit.SECONDS), List.of("jobs", "work"));
            r.zadd("z", 1.5, "m");
            same(r.bzpopmin(1.0, "z").getValue().getScore(), 1.5);

            java.util.Set<String> seen = new java.util.HashSet<>();
            String cursor = ScanParams.SCAN_POINTER_START;
            for (int round = 0; round < 10000; round++) {
                ScanResult<String> part = r.scan(cursor, new ScanParams().match("p:*").count(300));
                seen.addAll(part.getResult());
                cursor = part.getCursor();
                if (part.isCompleteIteration()) break;
            }
            same(seen.size(), 10000);

            String text = "return redis.call('incrby', KEYS[1], ARGV[1])";
            String sha = r.scriptLoad(text);
            same(r.evalsha(sha, 1, "n", "5"), 5L);
            r.scriptFlush();
            try {
                r.evalsha(sha, 1, "n", "5");
                check(false, "there is none");
            } catch (JedisNoScriptException lost) {
                same(r.eval(text, 1, "n", "5"), 10L);
            }

            byte[] value = large();
            r.set(KEY, value);
            check(Arrays.equals(r.get(KEY), value));

            Jedis other = jedis(protocol);
            long number = other.clientId();
            same(r.clientKill(redis.clients.jedis.params.ClientKillParams.clientKillParams().id("" + number)), 1L);
            try {
                other.ping();
                check(false, "it was killed");
            } catch (JedisConnectionException gone) {
                other.close();
            }
            try (Jedis again = jedis(protocol)) {
                same(again.ping(), "PONG");
            }
        }
        System.out.println("ok   jedis, " + protocol);
    }

    private static void withLettuce() throws Exception {
        RedisClient client = RedisClient.create(RedisURI.create("127.0.0.1", port));
        try (StatefulRedisConnection<String, String> connection = client.connect();
                StatefulRedisConnection<String, String> second = client.connect()) {
            var r = connection.sync();
            r.flushall();
            var async = connection.async();
            List<io.lettuce.core.RedisFuture<Long>> sums = new ArrayList<>();
            for (int i = 0; i < 10000; i++) sums.add(async.incr("n"));
            for (int i = 0; i < 10000; i++) same(sums.get(i).get(10, TimeUnit.SECONDS), (long) i + 1);

            r.set("balance", "0");
            r.watch("balance");
            second.sync().incr("balance");
            r.multi();
            r.set("balance", "10");
            check(r.exec().wasDiscarded());
            r.watch("balance");
            r.multi();
            r.incrby("balance", 10);
            same(r.exec().get(0), 11L);

            var pubsub = client.connectPubSub();
            BlockingQueue<String> heard = new LinkedBlockingQueue<>();
            pubsub.addListener(new RedisPubSubAdapter<String, String>() {
                @Override
                public void message(String channel, String message) {
                    heard.add(message);
                }
            });
            pubsub.sync().subscribe("news");
            same(r.publish("news", "x"), 1L);
            same(heard.poll(10, TimeUnit.SECONDS), "x");
            pubsub.close();

            r.xgroupCreate(XReadArgs.StreamOffset.latest("s"), "g", io.lettuce.core.XGroupCreateArgs.Builder.mkstream());
            var waiting = second.async().xreadgroup(Consumer.from("g", "c"), XReadArgs.Builder.block(10000), XReadArgs.StreamOffset.lastConsumed("s"));
            String id = r.xadd("s", Map.of("field", "value"));
            same(waiting.get(20, TimeUnit.SECONDS).get(0).getId(), id);
            same(r.xpending("s", "g").getCount(), 1L);

            var popped = second.async().blpop(10, "none", "jobs");
            r.rpush("jobs", "work");
            same(popped.get(20, TimeUnit.SECONDS).getValue(), "work");

            for (int i = 0; i < 500; i++) r.hset("h", "f" + i, "v");
            int fields = 0;
            for (var each = ScanIterator.hscan(r, "h"); each.hasNext(); each.next()) fields++;
            same(fields, 500);

            String text = "return redis.call('incrby', KEYS[1], ARGV[1])";
            String sha = r.scriptLoad(text);
            r.scriptFlush();
            try {
                r.evalsha(sha, ScriptOutputType.INTEGER, new String[] {"e"}, "5");
                check(false, "there is none");
            } catch (RedisNoScriptException lost) {
                same(r.<Long>eval(text, ScriptOutputType.INTEGER, new String[] {"e"}, "5"), 5L);
            }

            Map<String, String> copies = new ConcurrentHashMap<>();
            CacheFrontend<String, String> cache = ClientSideCaching.enable(io.lettuce.core.support.caching.CacheAccessor.forMap(copies), connection, TrackingArgs.Builder.enabled());
            second.sync().set("cached", "1");
            same(cache.get("cached"), "1");
            same(copies.get("cached"), "1");
            second.sync().set("cached", "2");
            comesTrue(() -> !copies.containsKey("cached"));
            same(cache.get("cached"), "2");

            long number = second.sync().clientId();
            same(r.clientKill(io.lettuce.core.KillArgs.Builder.id(number)), 1L);
            comesTrue(() -> {
                try {
                    return second.sync().clientId() != number;
                } catch (io.lettuce.core.RedisException notYet) {
                    return false;
                }
            });
        }
        client.shutdown(0, 1, TimeUnit.SECONDS);
        System.out.println("ok   lettuce");
    }

    public static void main(String[] args) throws Exception {
        port = Integer.parseInt(args[0]);
        withJedis(RedisProtocol.RESP2);
        withJedis(RedisProtocol.RESP3);
        withLettuce();
        System.exit(0);
    }
}
