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
        const rows = await Promise.all(datasets.map(async (set) => ({ ...set, status: await status(set.name) })));
        const text = JSON.stringify(rows);
        if (text === last) return;
        last = text;
        put(box, table([
          { name: "Dataset", cell: (r) => h("b", {}, shown(r.name, { max: 120 })) },
          { name: "Containers", class: "num", cell: (r) => count(r.folders) },
          { name: "State", class: "nowrap", cell: (r) => (r.interrupted ? h("span", { class: "badge wrong" }, "Interrupted") : h("span", { class: "badge good" }, "Complete")) },
          { name: "Last run", cell: (r) => (r.status ? shown(r.status, { max: 300 }) : h("span", { class: "muted" }, "–")) },
        ], rows, { caption: "Datasets", empty: ["No dataset yet", "strand import ~/Mail --into mail --server HOST:PORT makes this server hold the documents of a folder, a bucket or a repository."] }));
      } catch (e) { failed(box, e); }
    });
  },
};

/** What the last run left, where the server keeps that. */
async function status(name) {
  try {
    const reply = await command(["IMPORT.STATUS", name]);
    return typeof reply === "string" ? reply : reply ? Object.entries(reply).map(([k, v]) => `${k} ${v}`).join(", ") : null;
  } catch { return null; }
}
