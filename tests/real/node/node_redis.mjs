// node-redis in its own idiom, RESP2 and RESP3.
import { BasicClientSideCache, WatchError, createClient, createClientPool, defineScript } from "redis";
import { BIG, assert, comesTrue, port, runAll, scenario } from "./lib.mjs";

const scripts = {
  addTo: defineScript({
    NUMBER_OF_KEYS: 1,
    SCRIPT: "return redis.call('incrby', KEYS[1], ARGV[1])",
    parseCommand(parser, key, n) {
      parser.pushKey(key);
      parser.push(n.toString());
    },
    transformReply: (reply) => reply,
  }),
};
const connect = async (options = {}) => {
  const client = createClient({ url: `redis://127.0.0.1:${port}`, scripts, ...options });
  client.on("error", () => {});
  return client.connect();
};

for (const RESP of [2, 3]) {
  const r = await connect({ RESP });
  const name = (text) => `${text}, RESP${RESP}`;

  scenario(name("what is sent together is one pipeline"), async () => {
    await r.flushAll();
    const replies = await Promise.all(Array.from({ length: 5000 }, (_, i) => r.set(`p:${i}`, `${i}`)));
    assert.ok(replies.every((reply) => reply === "OK"));
    assert.deepEqual(await r.mGet(["p:1", "p:4999", "none"]), ["1", "4999", null]);
    assert.deepEqual(await r.multi().incr("n").hSet("h", { a: "1", b: "2" }).hGetAll("h").execAsPipeline(), [1, 2, Object.assign(Object.create(null), { a: "1", b: "2" })]);
    await r.zAdd("z", [{ score: 1.5, value: "a" }, { score: Infinity, value: "b" }]);
    assert.deepEqual(await r.zRangeWithScores("z", 0, -1), [{ value: "a", score: 1.5 }, { value: "b", score: Infinity }]);
    assert.equal(await r.zScore("z", "a"), 1.5);
    assert.deepEqual(new Set(await r.sMembers("nosuch")), new Set());
  });

  scenario(name("transactions that are tried again"), async () => {
    await r.set("balance", "0");
    const pool = await createClientPool({ url: `redis://127.0.0.1:${port}`, RESP }, { minimum: 4, maximum: 4 }).connect();
    const add = () => pool.execute(async (client) => {
      for (let tries = 0; tries < 1000; tries++) {
        try {
          await client.watch("balance");
          const before = Number(await client.get("balance"));
          return await client.multi().set("balance", `${before + 1}`).exec();
        } catch (error) {
          if (!(error instanceof WatchError)) throw error;
        }
      }
      throw new Error("it never succeeds");
    });
    await Promise.all(Array.from({ length: 60 }, add));
    assert.equal(await r.get("balance"), "60");
    pool.destroy();
  });

  scenario(name("publish and subscribe"), async () => {
    const listener = await connect({ RESP });
    const heard = [];
    await listener.subscribe("news", (text, channel) => heard.push([channel, text]));
    await listener.pSubscribe("n?ws", (text, channel) => heard.push(["pattern", channel, text]));
    await listener.sSubscribe("shard", (text, channel) => heard.push(["shard", channel, text]));
    assert.equal(await r.publish("news", "hello"), 2);
    assert.equal(await r.sPublish("shard", "hi"), 1);
    await comesTrue(() => heard.length === 3);
    assert.deepEqual(heard, [["news", "hello"], ["pattern", "news", "hello"], ["shard", "shard", "hi"]]);
    await listener.unsubscribe("news");
    await listener.pUnsubscribe("n?ws");
    await listener.sUnsubscribe("shard");
    await comesTrue(async () => (await r.publish("news", "nobody")) === 0);
    listener.destroy();
  });

  scenario(name("streams with consumer groups"), async () => {
    const reader = await connect({ RESP });
    await r.xGroupCreate("s", "g", "$", { MKSTREAM: true });
    const waiting = reader.xReadGroup("g", "one", [{ key: "s", id: ">" }], { COUNT: 5, BLOCK: 10_000 });
    const id = await r.xAdd("s", "*", { field: "value" });
    const read = await waiting;
    // RESP3 gives a map, which this client hands on as it is.
    const messages = RESP === 3 ? read.s.map(([id, [field, value]]) => ({ id, message: { [field]: value } })) : read[0].messages;
    assert.deepEqual([messages[0].id, { ...messages[0].message }], [id, { field: "value" }]);
    assert.equal((await r.xPending("s", "g")).pending, 1);
    assert.equal((await r.xAutoClaim("s", "g", "two", 0, "0-0")).messages.length, 1);
    assert.equal(await r.xAck("s", "g", id), 1);
    assert.equal((await r.xInfoGroups("s"))[0].pending, 0);
    assert.equal((await r.xInfoStream("s")).length, 1);
    reader.destroy();
  });

  scenario(name("blocking pops"), async () => {
    const worker = await connect({ RESP });
    const popped = worker.blPop(["l1", "l2"], 10);
    await r.rPush("l2", "job");
    assert.deepEqual({ ...(await popped) }, { key: "l2", element: "job" });
    const scored = worker.bzPopMax("bz", 10);
    await r.zAdd("bz", { score: 2, value: "m" });
    assert.deepEqual({ ...(await scored) }, { key: "bz", value: "m", score: 2 });
    assert.equal(await worker.blPop("l1", 0.01), null);
    const moved = worker.blMove("from", "to", "LEFT", "RIGHT", 10);
    await r.lPush("from", "x");
    assert.equal(await moved, "x");
    worker.destroy();
  });

  scenario(name("iterators"), async () => {
    await r.flushDb();
    await r.mSet(Array.from({ length: 2000 }, (_, i) => [`scan:${i}`, "v"]));
    const seen = new Set();
    for await (const keys of r.scanIterator({ MATCH: "scan:*", COUNT: 100 })) keys.forEach((key) => seen.add(key));
    assert.equal(seen.size, 2000);
    await r.hSet("hash", Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`f${i}`, "v"])));
    const fields = new Set();
    for await (const entries of r.hScanIterator("hash")) entries.forEach(({ field }) => fields.add(field));
    assert.equal(fields.size, 1000);
  });

  scenario(name("scripts whose text the server has lost"), async () => {
    for (let i = 1; i <= 3; i++) {
      assert.equal(await r.addTo("n", 5), 5 * i);
      await r.scriptFlush();
    }
    const code = "#!lua name=lib\nredis.register_function{function_name='twice', callback=function(keys, args) return args[1] * 2 end, flags={'no-writes'}}";
    assert.equal(await r.functionLoad(code, { REPLACE: true }), "lib");
    assert.equal(await r.fCallRo("twice", { keys: [], arguments: ["21"] }), 42);
    assert.equal((await r.functionList())[0].library_name, "lib");
  });

  scenario(name("large values and binary keys"), async () => {
    const key = Buffer.from([0, 255, 13, 10, 128]);
    const binary = r.withTypeMapping({ [36]: Buffer });
    await r.set(key, BIG);
    assert.ok(BIG.equals(await binary.get(key)));
    assert.equal(await r.del(key), 1);
  });

  scenario(name("a connection that is killed comes back"), async () => {
    const client = await connect({ RESP, socket: { reconnectStrategy: () => 5 } });
    const id = await client.clientId();
    assert.equal(await r.clientKill({ filter: "ID", id: `${id}` }), 1);
    await comesTrue(async () => (await client.get("before").then(() => true, () => false)) && (await client.clientId()) !== id);
    client.destroy();
  });
}

scenario("client-side caching", async () => {
  const cache = new BasicClientSideCache({ ttl: 0, maxEntries: 100, evictPolicy: "LRU" });
  const reader = await connect({ RESP: 3, clientSideCache: cache });
  const writer = await connect();
  await writer.set("cached", "1");
  assert.deepEqual([await reader.get("cached"), await reader.get("cached")], ["1", "1"]);
  assert.equal(cache.stats().hitCount, 1);
  await writer.set("cached", "2");
  await comesTrue(async () => (await reader.get("cached")) === "2");
  await writer.flushAll();
  await comesTrue(async () => (await reader.get("cached")) === null);
  reader.destroy();
  writer.destroy();
});

await runAll();
