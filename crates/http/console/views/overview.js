import { command, download } from "../api.js";
import { plot } from "../charts.js";
import { button, card, h, put, toast } from "../dom.js";
import { bytes, count, micros, percent, seconds, short } from "../format.js";
import * as live from "../live.js";

const tile = (name) => {
  const value = h("dd", {}, "–"), small = h("dd", { class: "note" }, "\u00a0");
  return { node: h("div", { class: "tile-box" }, h("dt", {}, name), value, small), set: (text, note) => { value.textContent = text; small.textContent = note ?? "\u00a0"; } };
};

/** The slowest common command by p99, of what INFO says. */
function slowest(info) {
  const rows = Object.entries(info).filter(([name, v]) => name.startsWith("latency_percentiles_usec_") && v["p99"] !== undefined);
  const calls = (name) => info[`cmdstat_${name}`]?.calls ?? 0;
  const all = rows.map(([name, v]) => ({ name: name.slice(25), p99: v["p99"], calls: calls(name.slice(25)) }));
  const most = Math.max(0, ...all.map((row) => row.calls));
  return all.filter((row) => row.calls >= most / 100).sort((a, b) => b.p99 - a.p99)[0];
}

/** Milliseconds between two looks at what is wrong. */
const ADVICE_MS = 10_000;

/** Shows what the server says is wrong, as `strand doctor` does. A user who may not call DIAG DOCTOR sees nothing. */
async function advise(into) {
  let said;
  try { said = JSON.parse(await command(["DIAG", "DOCTOR"])); } catch { return; }
  put(into, said.findings.length > 0 && card("What is wrong now", {}, h("ul", { class: "advice" },
    said.findings.map((found) => h("li", {}, h("strong", { class: found.level === "alert" ? "bad" : null }, found.what), ` ${found.todo}`)))));
}

export const overview = {
  id: "overview", title: "Overview",
  show({ head, add, onLeave, every }) {
    const bundle = button("Download a bundle", async () => {
      bundle.disabled = true;
      try { await download("/v1/bundle", "strand-bundle.tar.zst"); } catch (e) { toast(e.message, "bad"); }
      bundle.disabled = false;
    }, { class: "quiet", hidden: true, title: "All that the server knows about itself in one file, without secrets. strand bundle show opens it." });
    head("The last 15 minutes", bundle);
    const advice = h("div");
    add(advice);
    every(ADVICE_MS, () => advise(advice));
    const tiles = ["Operations", "Memory", "Keys", "Clients", "Hit rate", "Slowest p99", "Up"].map(tile);
    const [ops, mem, keys, clients, hits, slow, up] = tiles;
    const plots = [
      [plot("Operations", [{ name: "per second", colour: 1, fill: true }], short), ["ops"]],
      [plot("Memory", [{ name: "used", colour: 1, fill: true }, { name: "resident", colour: 3 }], bytes, { binary: true }), ["memory", "rss"]],
      [plot("Network", [{ name: "in", colour: 3 }, { name: "out", colour: 2 }], (n) => `${bytes(n)}/s`, { binary: true }), ["input", "output"]],
      [plot("Processor", [{ name: "cores", colour: 2, fill: true }], (n) => (+n).toFixed(+n < 0.1 ? 3 : 2)), ["cpu"]],
      [plot("Hit rate", [{ name: "of reads", colour: 1 }], percent, { max: 1 }), ["hitRate"]],
      [plot("Keys gone", [{ name: "expired", colour: 3 }, { name: "evicted", colour: 2 }, { name: "errors", colour: 4 }], (n) => `${short(n)}/s`), ["expired", "evicted", "errors"]],
    ];
    add(h("dl", { class: "tiles" }, tiles.map((t) => t.node)), h("div", { class: "grid" }, plots.map(([p]) => p.node)));
    onLeave(() => plots.forEach(([p]) => p.end()));
    onLeave(live.watch(({ info, row }) => {
      bundle.hidden = Boolean(info.strand_bundle);
      const limit = +info.maxmemory;
      ops.set(row.ops === null ? "–" : short(Math.round(row.ops)), `${short(+info.total_commands_processed)} in all`);
      mem.set(bytes(row.memory), limit ? `${percent(row.memory / limit)} of ${bytes(limit)}` : "no limit");
      keys.set(short(row.keys), `${count(+info.expired_keys)} expired`);
      clients.set(count(row.clients), row.blocked ? `${count(row.blocked)} blocked` : `of ${count(+info.maxclients)}`);
      hits.set(row.hitRate === null ? "–" : percent(row.hitRate), `${short(+info.keyspace_hits)} hits`);
      const worst = slowest(info);
      slow.set(worst ? micros(worst.p99) : "–", worst?.name.replace("|", " "));
      up.set(seconds(info.uptime_in_seconds, 1), `${info.workers ?? 1} ${+info.workers === 1 ? "worker" : "workers"}`);
      for (const [p, names] of plots) p.set(live.columns(names));
    }));
  },
};
