import { command, json } from "../api.js";
import { card, emptyState, h, put, table } from "../dom.js";
import { bytes, count, day, shown } from "../format.js";

export const imports = {
  id: "imports", title: "Imports",
  show({ head, add, every, failed }) {
    head("Datasets that strand import keeps in this server");
    const box = h("div");
    add(card("Datasets", {}, box));
    let last = "";
    every(3000, async () => {
      try {
        const { datasets } = await json("/v1/import");
        const rows = await Promise.all(datasets.map(async (set) => ({ ...set, version: await version(set.name) })));
        const text = JSON.stringify(rows);
        if (text === last) return;
        last = text;
        put(box, table([
          { name: "Dataset", cell: (r) => h("b", {}, shown(r.name, { max: 120 })) },
          { name: "Containers", class: "num", cell: (r) => count(r.containers) },
          { name: "State", class: "nowrap", cell: state },
          { name: "Documents", cell: (r) => (r.running ? progress(r.running) : h("span", { class: "muted" }, "–")) },
          { name: "Version", cell: (r) => (r.version ? shown(r.version, { max: 300 }) : h("span", { class: "muted" }, "–")) },
        ], rows, { caption: "Datasets", empty: ["No dataset yet", "strand import ~/Mail --into mail --server HOST:PORT imports the documents of a folder, a bucket or a repository into this server."] }));
      } catch (e) { failed(box, e); }
    });
  },
};

/** Whether an import runs, was cut short, or is complete. */
function state({ running, interrupted }) {
  if (running) return h("span", { class: "badge" }, "Importing");
  return interrupted ? h("span", { class: "badge wrong" }, "Interrupted") : h("span", { class: "badge good" }, "Complete");
}

/** How far a running import is: what its client reported last. */
function progress(run) {
  const done = `${count(run.done ?? 0)} of ${count(run.listed ?? 0)}: ${count(run.added ?? 0)} added, ${count(run.updated ?? 0)} updated, ${count(run.removed ?? 0)} removed, ${count(run.failed ?? 0)} failed, ${bytes(run.bytes_read ?? 0)} read`;
  const rest = run.remaining_milliseconds === undefined ? "" : `, ${count(Math.ceil(run.remaining_milliseconds / 1000))} s left`;
  return h("div", {}, `${done}${rest}`, run.path ? h("div", { class: "muted" }, shown(run.path, { max: 200 })) : null);
}

/** The token of the newest version that the dataset published. */
async function version(name) {
  try {
    const [newest] = await command(["IMPORT.VERSION", "LOG", name]);
    return Array.isArray(newest) ? newest[0] : newest ?? null;
  } catch { return null; }
}
