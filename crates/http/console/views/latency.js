import { command, asMap } from "../api.js";
import { button, card, confirm, emptyState, field, h, put, table, toast } from "../dom.js";
import { count, day, micros, percent, short } from "../format.js";
import * as live from "../live.js";

/** The rows of the table of commands, from INFO. */
function rowsOf(info) {
  return Object.entries(info).filter(([name]) => name.startsWith("cmdstat_")).map(([name, stat]) => {
    const command = name.slice(8), at = info[`latency_percentiles_usec_${command}`] ?? {};
    return { command, calls: stat.calls, usec: stat.usec, failed: stat.failed_calls + stat.rejected_calls, p50: at.p50, p99: at.p99, p999: at["p99.9"] };
  });
}

const bar = (share) => {
  const node = h("span", { class: "progress", role: "presentation" });
  const fill = h("span", {});
  Object.assign(fill.style, { display: "block", height: "100%", width: `${Math.min(100, share * 100)}%`, background: "var(--series-1)" });
  node.append(fill);
  return node;
};

/** Milliseconds between two looks at the waits of commands. */
const PHASES_MS = 5_000;

export const latency = {
  id: "latency", title: "Latency",
  show({ head, add, onLeave, every, failed }) {
    head("Of each command, since the start or the last CONFIG RESETSTAT");
    const box = h("div"), events = h("div"), flushing = h("p", { class: "hint" });
    let waits = null;
    const order = h("select", {}, [["usec", "Total time"], ["p99", "p99"], ["p999", "p99.9"], ["calls", "Calls"], ["failed", "Failed"]].map(([value, text]) => h("option", { value }, text)));
    const filter = h("input", { type: "search", placeholder: "All commands" });
    add(h("div", { class: "bar" }, field("Command", filter, { class: "mid" }), field("Sort by", order)), card("Commands", { hint: "p50 to p99.9: time of execution. Queued: waiting for a helper thread. Parked: waiting for a shard, a key, memory or the disk" }, box, flushing), card("Events", { hint: "What took longer than latency-monitor-threshold" }, events));
    const draw = () => {
      if (!live.latest) return;
      const all = rowsOf(live.latest.info);
      const sum = all.reduce((n, row) => n + (row.usec || 0), 0);
      const word = filter.value.trim().toLowerCase();
      const rows = all.filter((row) => row.command.includes(word)).sort((a, b) => (b[order.value] ?? 0) - (a[order.value] ?? 0));
      const scroll = box.querySelector(".table-wrap")?.scrollLeft ?? 0;
      put(box, table([
        { name: "Command", cell: (r) => h("code", {}, r.command.replace("|", " ")) },
        { name: "Calls", class: "num", cell: (r) => short(r.calls) },
        { name: "p50", class: "num", cell: (r) => micros(r.p50) }, { name: "p99", class: "num", cell: (r) => micros(r.p99) }, { name: "p99.9", class: "num", cell: (r) => micros(r.p999) },
        ...(waits ? [
          { name: "Queued p99", class: "num", cell: (r) => micros(waits.get(r.command)?.queued?.p99) }, { name: "Parked p99", class: "num", cell: (r) => micros(waits.get(r.command)?.parked?.p99) },
        ] : []),
        { name: "Total time", class: "num", cell: (r) => micros(r.usec) }, { name: "Share", class: "nowrap", cell: (r) => [bar(sum ? r.usec / sum : 0), h("span", { class: "sr" }, percent(sum ? r.usec / sum : 0))] },
        { name: "Failed", class: "num", cell: (r) => (r.failed ? h("span", { class: "bad" }, count(r.failed)) : "0") },
      ], rows, { caption: "Commands", empty: word ? ["No such command", "No called command has this text in its name."] : ["Nothing was called yet", "Commands appear here when clients call them."] }));
      box.querySelector(".table-wrap")?.scrollTo(scroll, 0);
    };
    order.onchange = filter.oninput = draw;
    onLeave(live.watch(draw));
    every(PHASES_MS, async () => {
      // Without the right, or on another server, the columns are left out.
      try {
        const phases = JSON.parse(await command(["DIAG", "PHASES"]));
        waits = new Map(phases.commands.map((row) => [row.command, row]));
        flushing.textContent = `Replies that waited until their client took them: ${count(phases.flushing.count)}; p99 ${micros(phases.flushing.p99)}, the longest ${micros(phases.flushing.max)}.`;
        draw();
      } catch { /* See above. */ }
    });
    const load = async () => {
      try {
        const rows = (await command(["LATENCY", "LATEST"])) ?? [];
        put(events, table([
          { name: "Event", cell: (r) => h("code", {}, r[0]) }, { name: "Last", class: "nowrap", cell: (r) => day(r[1] * 1000) },
          { name: "Last duration", class: "num", cell: (r) => micros(r[2] * 1000) }, { name: "Longest", class: "num", cell: (r) => micros(r[3] * 1000) },
        ], rows, { caption: "Events", empty: ["No event", "Nothing took longer than the threshold. CONFIG SET latency-monitor-threshold 10 records what takes 10 ms and more."] }));
      } catch (e) { failed(events, e); }
    };
    load();
  },
};
