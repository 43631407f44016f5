import { command } from "../api.js";
import { button, card, confirm, field, h, put, table, toast } from "../dom.js";
import { day, micros, shown } from "../format.js";

const ENTRIES = 256;

export const slowlog = {
  id: "slowlog", title: "Slow log",
  show({ head, add, every, failed }) {
    const box = h("div");
    head("Commands above slowlog-log-slower-than", button("Empty it", async () => {
      if (!(await confirm("Empty the slow log?", "Its entries are gone then.", "Empty it"))) return;
      await command(["SLOWLOG", "RESET"]);
      toast("The slow log is empty.");
      load();
    }));
    add(card("Entries", { hint: `The newest ${ENTRIES}` }, box));
    let last = "";
    const load = async () => {
      try {
        const rows = await command(["SLOWLOG", "GET", String(ENTRIES)]);
        const text = JSON.stringify(rows);
        if (text === last) return;
        last = text;
        put(box, table([
          { name: "When", class: "nowrap", cell: (r) => day(r[1] * 1000) }, { name: "It took", class: "num", cell: (r) => micros(r[2]) },
          { name: "Command", cell: (r) => r[3].map((word, i) => [i ? " " : "", i ? shown(word, { max: 120 }) : h("b", { class: "mono" }, shown(word, { max: 40 }))]) },
          ...(rows.some((r) => Array.isArray(r[6])) ? [{ name: "Phases", class: "nowrap", cell: (r) => phases(r[6] ?? []) }] : []),
          { name: "Client", class: "nowrap", cell: (r) => [shown(r[4], { max: 60 }), r[5] ? [" ", shown(r[5], { max: 40 })] : ""] },
        ], rows, { caption: "Slow commands", empty: ["Nothing was slow", "No command took longer than slowlog-log-slower-than microseconds."] }));
      } catch (e) { failed(box, e); }
    };
    every(5000, load);
  },
};

/** Pairs of a phase and its microseconds. */
function phases(list) {
  const parts = [];
  for (let i = 0; i + 1 < list.length; i += 2) parts.push(`${list[i]} ${micros(list[i + 1])}`);
  return parts.join(", ") || "–";
}
