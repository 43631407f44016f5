import { command, asMap } from "../api.js";
import { plot, treemap } from "../charts.js";
import { card, h, put, table } from "../dom.js";
import { bytes, count, percent, short } from "../format.js";
import * as live from "../live.js";

const PURPOSES = [
  ["used_memory_dataset", "Data", 1], ["used_memory_indexes", "Text indexes", 3], ["used_memory_trigrams", "Trigram indexes", 3],
  ["used_memory_regexes", "Regular expressions", 5], ["used_memory_clients", "Clients", 2], ["used_memory_replication", "Replication", 2], ["used_memory_jobs", "Jobs", 4],
  ["used_memory_vm_total", "Scripts", 5], ["used_memory_garbage", "To be freed", 4], ["used_memory_journal", "Append-only file", 2],
  ["used_memory_snapshots", "Snapshot", 2], ["used_memory_history", "History", 6], ["used_memory_statistics", "Statistics", 6], ["used_memory_profiler", "Profiler", 6], ["used_memory_startup", "At the start", 6],
];

/** What memory is for, from INFO; what nothing names is "Other". */
export function purposes(info) {
  const parts = PURPOSES.map(([field, name, colour]) => ({ name, value: +info[field] || 0, colour }));
  const named = parts.reduce((sum, part) => sum + part.value, 0);
  const used = +info.used_memory || 0, resident = +info.used_memory_rss || 0;
  parts.push({ name: "Other", value: Math.max(0, used - named), colour: 6 });
  const ready = +info.mem_kept_ready || 0;
  parts.push({ name: "Free, kept ready", value: ready, colour: 6 });
  parts.push({ name: "Allocator's slack", value: Math.max(0, (+info.allocator_resident || 0) - used - ready), colour: 6 });
  parts.push({ name: "Program and stacks", value: Math.max(0, resident - Math.max(used, +info.allocator_resident || 0)), colour: 6 });
  return parts.filter((part) => part.value > 0);
}

/** Memory of keys and values by type: an estimate from the keys of some shards, which DIAG MEMORY looked at. */
function byType({ keys, keys_looked_at: looked, types }) {
  const times = looked ? keys / looked : 1, sum = types.reduce((n, row) => n + row.bytes, 0);
  return card("Data by type", { hint: looked < keys ? `Estimated from ${count(looked)} of ${count(keys)} keys` : `All ${count(keys)} keys` }, table([
    { name: "Type", cell: (row) => row.type }, { name: "Keys", class: "num", cell: (row) => short(Math.round(row.keys * times)) },
    { name: "Bytes", class: "num", cell: (row) => bytes(Math.round(row.bytes * times)) }, { name: "Share", class: "num", cell: (row) => percent(sum ? row.bytes / sum : 0) },
  ], types.toSorted((a, b) => b.bytes - a.bytes), { caption: "Data by type", empty: ["No keys", "There is no data yet."] }));
}

export const memory = {
  id: "memory", title: "Memory",
  show({ head, add, onLeave, failed }) {
    head("Every byte by its purpose");
    const map = treemap("Memory by purpose", [], bytes), list = h("div"), advice = h("p", { class: "hint" });
    const over = plot("Memory over time", [{ name: "used", colour: 1, fill: true }, { name: "resident", colour: 3 }], bytes, { binary: true });
    const side = h("div", {}, over.node);
    add(card("By purpose", {}, map.node), h("div", { class: "grid" }, card("Purposes", {}, list), side), card("What the server says", {}, advice));
    onLeave(() => { map.end(); over.end(); });
    onLeave(live.watch(({ info }) => {
      const parts = purposes(info), sum = parts.reduce((n, part) => n + part.value, 0);
      map.set(parts);
      over.set(live.columns(["memory", "rss"]));
      put(list, table([
        { name: "Purpose", cell: (p) => [h("span", { class: `swatch swatch-${p.colour}` }), p.name] },
        { name: "Bytes", class: "num", cell: (p) => bytes(p.value) }, { name: "Share", class: "num", cell: (p) => percent(p.value / sum) },
      ], parts.sort((a, b) => b.value - a.value), { caption: "Memory by purpose" }));
    }));
    // Without the right, or on another server, the types are left out.
    command(["DIAG", "MEMORY"]).then((text) => side.append(byType(JSON.parse(text).data_by_type))).catch(() => {});
    command(["MEMORY", "DOCTOR"]).then((text) => { advice.textContent = text; }).catch((e) => failed(advice, e));
  },
};
