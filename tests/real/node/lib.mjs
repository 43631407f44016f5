// What the scenarios share: they run one after the other, against the server at 127.0.0.1:PORT (the first argument).
import assert from "node:assert/strict";

export { assert };
export const port = Number(process.argv[2]);
/// A value of 64 MB that no compression helps with.
export const BIG = Buffer.alloc(64 << 20, Buffer.from(Array.from({ length: 997 }, (_, i) => (i * 31 + 7) & 255)));
const scenarios = [];

export function scenario(name, run) {
  scenarios.push([name, run]);
}

/// Waits for `what` to be true, for ten seconds at most.
export async function comesTrue(what) {
  for (const end = Date.now() + 10_000; Date.now() < end; ) {
    if (await what()) return;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  throw new Error("it does not come true");
}

export async function runAll() {
  for (const [name, run] of scenarios) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("it takes longer than 20 seconds")), 20_000);
    });
    try {
      await Promise.race([run(), late]);
      console.log(`ok   ${name}`);
    } catch (error) {
      console.log(`FAIL ${name}: ${error.stack}`);
      process.exit(1);
    }
    clearTimeout(timer);
  }
  process.exit(0);
}
