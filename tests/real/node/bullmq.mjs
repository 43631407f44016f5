// What people run on it from npm: queues (BullMQ, all in Lua; bee-queue, which fetches reliably), locks and rate limits.
import { Queue, QueueEvents, Worker, FlowProducer } from "bullmq";
import BeeQueue from "bee-queue";
import Redis from "ioredis";
import RateLimiter from "rate-limiter-flexible";
import * as redlockModule from "redlock";
import { assert, comesTrue, port, runAll, scenario } from "./lib.mjs";

const Redlock = redlockModule.default.default ?? redlockModule.default;
const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
const r = new Redis(connection);

scenario("BullMQ: jobs, retries, delays, priorities, flows", async () => {
  const queue = new Queue("mail", { connection });
  const events = new QueueEvents("mail", { connection });
  await events.waitUntilReady();
  const done = [];
  const worker = new Worker(
    "mail",
    async (job) => {
      if (job.name === "flaky" && job.attemptsMade < 2) throw new Error("not yet");
      await job.updateProgress(50);
      done.push(job.name);
      return { sent: job.data.to };
    },
    { connection, concurrency: 5 },
  );
  const jobs = await queue.addBulk(Array.from({ length: 100 }, (_, i) => ({ name: "send", data: { to: i } })));
  const flaky = await queue.add("flaky", { to: "x" }, { attempts: 3, backoff: 5 });
  const later = await queue.add("later", { to: "y" }, { delay: 50 });
  const results = await Promise.all([...jobs, flaky, later].map((job) => job.waitUntilFinished(events, 15_000)));
  assert.deepEqual(results.slice(0, 100).map(({ sent }) => sent), Array.from({ length: 100 }, (_, i) => i));
  assert.equal(done.length, 102);
  assert.equal((await queue.getJobCounts("completed")).completed, 102);
  const flow = await new FlowProducer({ connection }).add({
    name: "parent", queueName: "mail", data: { to: "p" }, children: [{ name: "child", queueName: "mail", data: { to: "c" } }],
  });
  assert.deepEqual(await flow.job.waitUntilFinished(events, 15_000), { sent: "p" });
  assert.ok(done.indexOf("child") < done.indexOf("parent"));
  await worker.close();
  const waiting = await Promise.all([3, 1, 2].map((priority) => queue.add("p", { to: 0 }, { priority })));
  assert.equal(await queue.getPrioritized().then((all) => all.length), 3);
  await waiting[0].remove();
  await queue.obliterate({ force: true });
  assert.equal((await r.keys("bull:mail:*")).filter((key) => !key.endsWith(":events")).length, 0);
  await events.close();
  await queue.close();
});

scenario("BullMQ: the job of a worker that is gone is done by another", async () => {
  const queue = new Queue("stalled", { connection });
  await queue.waitUntilReady();
  const first = new Worker("stalled", null, { connection, lockDuration: 100 });
  await queue.add("work", { n: 1 });
  // It takes the job and never comes back to it.
  const job = await first.getNextJob("a token");
  assert.equal(job.name, "work");
  const done = [];
  const second = new Worker("stalled", async (job) => done.push(job.data.n), { connection, stalledInterval: 100, lockDuration: 1000 });
  await comesTrue(() => done.length === 1);
  await second.close();
  await first.close(true);
  await queue.obliterate({ force: true });
  await queue.close();
});

scenario("bee-queue: reliable fetch", async () => {
  const queue = new BeeQueue("bee", { redis: { host: "127.0.0.1", port }, stallInterval: 200, activateDelayedJobs: true });
  await queue.ready();
  const sums = [];
  queue.process(3, async (job) => { sums.push(job.data.x); return job.data.x * 2; });
  const jobs = await Promise.all(Array.from({ length: 50 }, (_, x) => queue.createJob({ x }).save()));
  await queue.createJob({ x: 50 }).delayUntil(Date.now() + 20).save();
  await comesTrue(() => sums.length === 51);
  await comesTrue(async () => (await queue.checkHealth()).succeeded === 51);
  assert.equal(jobs.length, 50);
  await queue.destroy();
  await queue.close(0);
});

scenario("a distributed lock (redlock)", async () => {
  const redlock = new Redlock([r], { retryCount: 200, retryDelay: 5, retryJitter: 5 });
  let inside = 0;
  await Promise.all(Array.from({ length: 10 }, () => redlock.using(["lock:a", "lock:b"], 5000, async () => {
    inside += 1;
    assert.equal(inside, 1);
    await new Promise((resolve) => setTimeout(resolve, 2));
    inside -= 1;
  })));
  const held = await redlock.acquire(["lock:a"], 10_000);
  await assert.rejects(redlock.acquire(["lock:a"], 1000, { retryCount: 0 }));
  const longer = await held.extend(20_000);
  assert.ok((await r.pttl("lock:a")) > 10_000);
  await longer.release();
  assert.equal(await r.exists("lock:a"), 0);
});

scenario("a rate limiter", async () => {
  const limiter = new RateLimiter.RateLimiterRedis({ storeClient: r, points: 10, duration: 100, keyPrefix: "limit" });
  const tried = await Promise.allSettled(Array.from({ length: 25 }, () => limiter.consume("user", 1)));
  assert.equal(tried.filter(({ status }) => status === "fulfilled").length, 10);
  const state = await limiter.get("user");
  assert.equal(state.remainingPoints, 0);
  assert.ok(state.msBeforeNext > 0 && state.msBeforeNext <= 100_000);
});

await r.flushall();
await runAll();
