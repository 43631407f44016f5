import { plot } from "../charts.js";
import { emptyState, field, h, put } from "../dom.js";
import { bytes, micros, percent, short } from "../format.js";
import { kept } from "../live.js";

const SPANS = [[900, "15 minutes"], [3600, "1 hour"], [6 * 3600, "6 hours"], [86400, "1 day"], [7 * 86400, "7 days"], [30 * 86400, "30 days"]];
const POINTS = 600;
const cores = (n) => (+n).toFixed(+n < 0.1 ? 3 : 2);
const rate = (n) => `${bytes(n)}/s`;

/** A plot: its title, how values look, and its lines as [series, name]. */
const PLOTS = [
  ["Operations", short, [["ops.total", "all"], ["ops.errors", "errors"]]],
  ["Operations by family", short, [["ops.string", "strings"], ["ops.hash", "hashes"], ["ops.list", "lists"], ["ops.sorted-set", "sorted sets"], ["ops.search", "search"]]],
  ["Latency", micros, [["latency.p50", "p50"], ["latency.p99", "p99"], ["latency.p999", "p99.9"]]],
  ["Processor", cores, [["cpu.user", "user"], ["cpu.system", "system"], ["host.cpu.busy", "machine"], ["host.cpu.steal", "stolen"]]],
  ["Pressure", percent, [["pressure.cpu", "processor"], ["pressure.memory", "memory"], ["pressure.io", "disk"]]],
  ["Memory", bytes, [["memory.used", "used"], ["memory.rss", "resident"]]],
  ["Memory by purpose", bytes, [["memory.data", "data"], ["memory.indexes", "text indexes"], ["memory.trigrams", "trigram indexes"], ["memory.regexes", "regular expressions"], ["memory.clients", "clients"], ["memory.jobs", "jobs"]]],
  ["Network", rate, [["net.in", "in"], ["net.out", "out"]]],
  ["Disk", rate, [["io.read", "read"], ["io.written", "written"]]],
  ["Reads", short, [["keys.hits", "hits"], ["keys.misses", "misses"]]],
  ["Keys gone", short, [["keys.expired", "expired"], ["keys.evicted", "evicted"]]],
  ["Clients", short, [["clients.connected", "connected"], ["clients.blocked", "blocked"]]],
  ["Context switches", short, [["switches.voluntary", "voluntary"], ["switches.forced", "forced"]]],
];

export const history = {
  id: "history", title: "History", needs: "DIAG",
  show({ head, add, onLeave, failed }) {
    const span = h("select", { "aria-label": "Time" }, SPANS.map(([seconds, name]) => h("option", { value: seconds }, name)));
    head("The history of the server's figures", span);
    const plots = PLOTS.map(([title, format, lines]) => ({ lines, made: plot(title, lines.map(([, name], i) => ({ name, colour: i + 1, fill: lines.length === 1 })), format, { binary: format === bytes || format === rate }) }));
    const grid = h("div", { class: "grid" }, plots.map((p) => p.made.node)), trouble = h("div");
    add(trouble, grid);
    const names = [...new Set(PLOTS.flatMap(([, , lines]) => lines.map(([series]) => series)))];
    const control = new AbortController();
    let timer, turn = 0;
    const load = async () => {
      clearTimeout(timer);
      const mine = ++turn, seconds = +span.value;
      try {
        const { times, columns } = await kept(names, seconds, POINTS, control.signal);
        if (mine !== turn) return;
        grid.hidden = times.length === 0;
        put(trouble, times.length === 0 && emptyState("No history yet", "A row is kept each second."));
        for (const { lines, made } of plots) made.set([times, ...lines.map(([series]) => columns.get(series) ?? times.map(() => null))]);
      } catch (e) { grid.hidden = true; failed(trouble, e); }
      if (mine === turn && !control.signal.aborted) timer = setTimeout(load, seconds <= 900 ? 2000 : 15000);
    };
    span.onchange = load;
    onLeave(() => { control.abort(); clearTimeout(timer); plots.forEach((p) => p.made.end()); });
    load();
  },
};
