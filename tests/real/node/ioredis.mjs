// ioredis in its own idiom.
import Redis from "ioredis";
import { BIG, assert, comesTrue, port, runAll, scenario } from "./lib.mjs";

const connect = (options = {}) => new Redis({ host: "127.0.0.1", port, ...options });
const r = connect();

scenario("pipelines keep their order", async () => {
  const pipe = r.pipeline();
  for (let i = 0; i < 10_000; i++) pipe.set(`p:${i}`, i).get(`p:${i}`);
  const replies = await pipe.exec();
  assert.equal(replies.length, 20_000);
  replies.forEach(([error, value], i) => assert.deepEqual([error, value], [null, i % 2 ? `${(i - 1) / 2}` : "OK"]));
  const [[error], [, fine]] = await r.pipeline().lpush("p:1", "x").echo("fine").exec();
  assert.match(error.message, /^WRONGTYPE/);
  assert.equal(fine, "fine");
  const auto = connect({ enableAutoPipelining: true });
  assert.deepEqual(await Promise.all(Array.from({ length: 500 }, (_, i) => auto.get(`p:${i}`))), Array.from({ length: 500 }, (_, i) => `${i}`));
  auto.disconnect();
});

scenario("transactions that are tried again", async () => {
  await r.set("balance", 0);
  const add = async (client) => {
    for (let tries = 0; tries < 1000; tries++) {
      await client.watch("balance");
      const before = Number(await client.get("balance"));
      if (await client.multi().set("balance", before + 1).incr("tries").exec()) return;
    }
    throw new Error("it never succeeds");
  };
  const clients = Array.from({ length: 4 }, () => connect());
  await Promise.all(clients.map(async (client) => { for (let i = 0; i < 25; i++) await add(client); }));
  assert.equal(await r.get("balance"), "100");
  await assert.rejects(r.multi().set("a").exec(), /EXECABORT/);
  clients.forEach((client) => client.disconnect());
});

scenario("publish and subscribe", async () => {
  const heard = [];
  const listener = connect();
  listener.on("message", (channel, text) => heard.push([channel, text]));
  listener.on("pmessage", (pattern, channel, text) => heard.push([pattern, channel, text]));
  assert.equal(await listener.subscribe("news", "sport"), 2);
  assert.equal(await listener.psubscribe("n*"), 3);
  assert.equal(await r.publish("news", "one"), 2);
  assert.equal(await r.publish("sport", "two"), 1);
  await comesTrue(() => heard.length === 3);
  assert.deepEqual(heard, [["news", "one"], ["n*", "news", "one"], ["sport", "two"]]);
  await listener.unsubscribe("news", "sport");
  await listener.punsubscribe("n*");
  assert.equal(await listener.echo("served again"), "served again");
  await listener.quit();
});

scenario("streams with consumer groups", async () => {
  await r.del("s");
  await r.xgroup("CREATE", "s", "g", "$", "MKSTREAM");
  const reader = connect();
  const waiting = reader.xreadgroup("GROUP", "g", "one", "COUNT", 10, "BLOCK", 10_000, "STREAMS", "s", ">");
  const id = await r.xadd("s", "*", "field", "value");
  assert.deepEqual(await waiting, [["s", [[id, ["field", "value"]]]]]);
  const more = await Promise.all(Array.from({ length: 100 }, (_, i) => r.xadd("s", "*", "n", i)));
  const [[, entries]] = await r.xreadgroup("GROUP", "g", "two", "STREAMS", "s", ">");
  assert.deepEqual(entries.map(([id]) => id), more);
  assert.equal(await r.xack("s", "g", ...more.slice(50)), 50);
  const [count, first, last, consumers] = await r.xpending("s", "g");
  assert.deepEqual([count, first, last, consumers], [51, id, more[49], [["one", "1"], ["two", "50"]]]);
  const [next, claimed, gone] = await r.xautoclaim("s", "g", "three", 0, "0-0", "COUNT", 1000);
  assert.deepEqual([next, claimed.length, gone], ["0-0", 51, []]);
  assert.equal(await r.xtrim("s", "MAXLEN", 10), 91);
  reader.disconnect();
});

scenario("blocking pops", async () => {
  const workers = Array.from({ length: 3 }, () => connect());
  const done = [];
  const work = async (client) => {
    for (let [, job] = await client.blpop("jobs", "urgent", 10); job !== "end"; [, job] = await client.blpop("jobs", "urgent", 10)) done.push(job);
  };
  const all = workers.map(work);
  for (let i = 0; i < 200; i++) await r.rpush(i % 2 ? "jobs" : "urgent", i);
  // In the list that is looked at last: who finds an end has left no job behind.
  await r.rpush("urgent", "end", "end", "end");
  await Promise.all(all);
  assert.deepEqual(done.map(Number).sort((a, b) => a - b), Array.from({ length: 200 }, (_, i) => i));
  assert.equal(await workers[0].blpop("jobs", 0.01), null);
  await r.zadd("z", 2, "b", 1, "a");
  assert.deepEqual(await workers[0].bzpopmin("z", 1), ["z", "a", "1"]);
  workers.forEach((client) => client.disconnect());
});

scenario("iterators", async () => {
  await r.flushdb();
  await r.mset(...Array.from({ length: 3000 }, (_, i) => [`scan:${i}`, i]).flat());
  await r.hset("scan:hash", Object.fromEntries(Array.from({ length: 3000 }, (_, i) => [`f${i}`, i])));
  const all = async (stream) => { const seen = new Set(); for await (const part of stream) part.forEach((item) => seen.add(item)); return seen; };
  assert.equal((await all(r.scanStream({ match: "scan:*", count: 100 }))).size, 3001);
  assert.deepEqual([...(await all(r.scanStream({ match: "scan:*", type: "hash" })))], ["scan:hash"]);
  assert.ok((await all(r.hscanStream("scan:hash", { count: 100 }))).has("f2999"));
});

scenario("scripts whose text the server has lost", async () => {
  r.defineCommand("addTo", { numberOfKeys: 1, lua: "return {redis.call('incrby', KEYS[1], ARGV[1]), ARGV[2]}" });
  await r.del("n");
  for (let i = 1; i <= 3; i++) {
    assert.deepEqual(await r.addTo("n", 5, "x"), [5 * i, "x"]);
    await r.script("FLUSH");
  }
  await assert.rejects(r.evalsha("0".repeat(40), 0), /^ReplyError: NOSCRIPT/);
  const replies = await r.pipeline().addTo("n", 1, "a").addTo("n", 1, "b").exec();
  assert.deepEqual(replies, [[null, [16, "a"]], [null, [17, "b"]]]);
});

scenario("large values and binary keys", async () => {
  const key = Buffer.from([0, 255, 13, 10, 128]);
  await r.set(key, BIG);
  assert.ok(BIG.equals(await r.getBuffer(key)));
  assert.ok(BIG.subarray(1 << 20, 2 << 20).equals(await r.getrangeBuffer(key, 1 << 20, (2 << 20) - 1)));
  assert.ok((await r.keysBuffer("*")).some((found) => found.equals(key)));
  assert.equal(await r.del(key), 1);
});

scenario("a connection that is killed comes back", async () => {
  const client = connect({ retryStrategy: () => 5 });
  const listener = connect({ retryStrategy: () => 5 });
  const heard = [];
  listener.on("message", (_, text) => heard.push(text));
  await listener.subscribe("again");
  await client.set("before", 1);
  for (const kind of ["normal", "pubsub"]) assert.ok((await r.call("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")) >= 1);
  assert.equal(await client.get("before"), "1");
  await comesTrue(async () => (await r.publish("again", "back")) === 1 && heard.includes("back"));
  client.disconnect();
  listener.disconnect();
});

await r.flushall();
await runAll();
