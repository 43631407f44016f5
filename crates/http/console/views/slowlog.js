import { asMap, command } from "../api.js";
import { button, card, confirm, field, h, put, table, toast } from "../dom.js";
import { day, micros, shown } from "../format.js";

const ENTRIES = 256;

export const slowlog = {
  id: "slowlog", title: "Slow log",
  show({ head, add, every, failed }) {
    const box = h("div");
    head("Commands above slowlog-log-slower-than", button("Empty it", async () => {
      if (!(await confirm("Empty the slow log?", "This deletes all entries.", "Empty it"))) return;
      await command(["SLOWLOG", "RESET"]);
      toast("The slow log is empty.");
      load();
    }));
    add(card("Entries", { hint: `The newest ${ENTRIES}` }, box));
    let last = "";
    const load = async () => {
      try {
        const rows = await command(["SLOWLOG", "GET", String(ENTRIES), "PHASES"]);
        const text = JSON.stringify(rows);
        if (text === last) return;
        last = text;
        put(box, table([
          { name: "When", class: "nowrap", cell: (r) => day(r[1] * 1000) }, { name: "Duration", class: "num", cell: (r) => micros(r[2]) },
          { name: "Command", cell: (r) => r[3].map((word, i) => [i ? " " : "", i ? shown(word, { max: 120 }) : h("b", { class: "mono" }, shown(word, { max: 40 }))]) },
          { name: "Waited for", cell: (r) => phases(asMap(r[6])) },
          { name: "Client", class: "nowrap", cell: (r) => [shown(r[4], { max: 60 }), r[5] ? [" ", shown(r[5], { max: 40 })] : ""] },
        ], rows, { caption: "Slow commands", empty: ["Nothing was slow", "No command took longer than slowlog-log-slower-than microseconds."] }));
      } catch (e) { failed(box, e); }
    };
    every(5000, load);
  },
};

/** What a command waited for, before it ran and after. */
function phases(of) {
  const parts = [];
  if (of.queued > 0) parts.push([`a helper thread ${micros(of.queued)}`]);
  if (of.parked > 0) parts.push([`${of["parked-on"]} ${micros(of.parked)}`, ...(of["held-by"] ? [" (", shown(of["held-by"], { max: 80 }), ")"] : [])]);
  if (of.flushing > 0) parts.push([`its client to read ${micros(of.flushing)}`]);
  return parts.length ? parts.flatMap((part, i) => (i ? [", ", ...part] : part)) : "–";
}
