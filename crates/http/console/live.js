// What the server's figures are now and were in the last 15 minutes. One stream feeds all views; rates are made of counters here.

import { command, events, parseInfo } from "./api.js";

/** Seconds that are kept. */
const KEPT = 900;

const watchers = new Set();
export const history = { times: [], rows: [] };
export let latest = null;
/** "live" or "off"; empty until the server has answered. */
export let state = "";

let stop = null;

export function watch(run) {
  watchers.add(run);
  if (latest) run(latest);
  return () => watchers.delete(run);
}

/** Follows the server until it is told to end. */
export function start(onState, keepsHistory) {
  stop?.abort();
  const control = new AbortController();
  stop = control;
  const say = (word) => { if (state !== word && stop === control) { state = word; onState(word); } };
  // Without it the plots begin now.
  if (keepsHistory) fillIn(control.signal).catch(() => {});
  (async () => {
    let wait = 1000;
    // A bundle has one moment.
    while (!control.signal.aborted && !latest?.info.strand_bundle) {
      try {
        await events("/console/live", (event) => { wait = 1000; say("live"); take(event.info); }, control.signal);
      } catch (e) {
        if (control.signal.aborted) return;
        say("off");
        if (e.status === 401 || e.status === 403) return;
      }
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(wait * 2, 15000);
    }
  })();
}

export function end() {
  stop?.abort();
  stop = null;
  history.times.length = history.rows.length = 0;
  latest = null;
  before = null;
  state = "";
}

let before = null;

const total = (info, prefix, field) =>
  Object.entries(info).reduce((sum, [name, value]) => (name.startsWith(prefix) ? sum + (value[field] || 0) : sum), 0);

function take(text) {
  const info = parseInfo(text), time = Math.round(+info.server_time_usec / 1000);
  const n = (name) => +info[name] || 0;
  const counters = {
    ops: n("total_commands_processed"), input: n("total_net_input_bytes"), output: n("total_net_output_bytes"),
    hits: n("keyspace_hits"), misses: n("keyspace_misses"), evicted: n("evicted_keys"), expired: n("expired_keys"),
    errors: n("total_error_replies"), cpu: n("used_cpu_user") + n("used_cpu_sys"), connections: n("total_connections_received"),
  };
  const keys = total(info, "db", "keys");
  const row = { memory: n("used_memory"), rss: n("used_memory_rss"), clients: n("connected_clients"), blocked: n("blocked_clients"), keys };
  // A restart begins the counters anew: no rate then.
  const spans = before && before.run === info.run_id && time > before.time;
  for (const [name, value] of Object.entries(counters)) {
    row[name] = spans ? Math.max(0, value - before.counters[name]) / ((time - before.time) / 1000) : null;
  }
  const asked = (row.hits ?? 0) + (row.misses ?? 0);
  row.hitRate = asked ? row.hits / asked : null;
  before = { run: info.run_id, time, counters };
  history.times.push(time / 1000);
  history.rows.push(row);
  while (history.times.length > KEPT) { history.times.shift(); history.rows.shift(); }
  latest = { time, info, row, counters };
  for (const run of watchers) run(latest);
}

/** The columns of some figures for a plot. */
export const columns = (names) => [history.times, ...names.map((name) => history.rows.map((row) => row[name] ?? null))];

/** The server's own history since so many seconds, as columns; null when it keeps none, or the user may not see it. */
export async function kept(series, fromSeconds, points, signal) {
  const text = await command(["DIAG", "HISTORY", "FROM", -fromSeconds, "POINTS", points, "SERIES", series.join(",")], { signal });
  const { times_ms: times, series: found } = JSON.parse(text);
  return { times: times.map((ms) => ms / 1000), columns: new Map(found.map((one) => [one.name, one.values])) };
}

/** What the history calls the figures of a row. */
const KEPT_AS = { ops: "ops.total", errors: "ops.errors", memory: "memory.used", rss: "memory.rss", input: "net.in", output: "net.out", hits: "keys.hits", misses: "keys.misses",
  evicted: "keys.evicted", expired: "keys.expired", keys: "keys.count", clients: "clients.connected", blocked: "clients.blocked" };

/** Fills in what was before the page was opened. */
async function fillIn(signal) {
  const names = Object.entries(KEPT_AS);
  const { times, columns: found } = await kept([...names.map(([, name]) => name), "cpu.user", "cpu.system"], KEPT, KEPT, signal);
  const first = history.times[0] ?? Infinity;
  const at = times.map((_, i) => i).filter((i) => times[i] < first);
  const rows = at.map((i) => {
    const row = Object.fromEntries(names.map(([name, as]) => [name, found.get(as)?.[i] ?? null]));
    row.cpu = (found.get("cpu.user")?.[i] ?? 0) + (found.get("cpu.system")?.[i] ?? 0);
    row.hitRate = row.hits + row.misses > 0 ? row.hits / (row.hits + row.misses) : null;
    return row;
  });
  if (signal.aborted) return;
  history.times.unshift(...at.map((i) => times[i]));
  history.rows.unshift(...rows);
}
