import { command, commands } from "../api.js";
import { button, card, confirm, field, h, put, table, toast } from "../dom.js";
import { shown } from "../format.js";

/** Options that are passwords: their values are not shown. */
const SECRET = /(^requirepass$|^masterauth$|-pass$|password|secret)/;

export const config = {
  id: "config", title: "Configuration",
  async show({ head, add, failed }) {
    head("The current values", button("Keep (CONFIG REWRITE)", async () => {
      if (!(await confirm("Write the configuration file?", "The current values replace the values in the file.", "Write"))) return;
      try { await command(["CONFIG", "REWRITE"]); toast("The configuration file is written."); } catch (e) { toast(e.message, "bad"); }
    }));
    const filter = h("input", { type: "search", placeholder: "maxmemory", spellcheck: "false", autocapitalize: "none" });
    const box = h("div"), hint = h("p", { class: "hint" });
    let all = [];
    const draw = () => {
      const word = filter.value.trim().toLowerCase();
      const rows = all.filter(([name]) => name.includes(word));
      hint.textContent = `${rows.length} of ${all.length}`;
      put(box, table([
        { name: "Option", class: "nowrap", cell: ([name]) => h("code", {}, name) },
        { name: "Value", cell: (row) => (SECRET.test(row[0]) ? h("span", { class: "muted" }, row[1] ? "(set, not shown)" : "(none)") : shown(row[1], { max: 600 })) },
        { name: "", class: "end", cell: (row) => button("Change", (e) => edit(e.currentTarget.closest("tr"), row), { class: "small", "aria-label": `Change ${row[0]}` }) },
      ], rows, { caption: "Options", empty: ["No such option", "No option has this text in its name."] }));
    };
    const edit = (line, row) => {
      const secret = SECRET.test(row[0]);
      const input = h("input", { class: "mono", type: secret ? "password" : "text", value: secret ? "" : row[1], "aria-label": row[0], autocomplete: "off", spellcheck: "false" });
      const save = async (e) => {
        e.preventDefault();
        try {
          await command(["CONFIG", "SET", row[0], input.value]);
          const now = await command(["CONFIG", "GET", row[0]]);
          row[1] = now[row[0]] ?? input.value;
          toast(`${row[0]} is changed until the next start. The button Keep writes the change to the file.`);
          draw();
        } catch (error) { toast(error.message, "bad"); }
      };
      const form = h("form", { class: "actions", onsubmit: save }, input, h("button", { class: "primary small" }, "Set"), button("Cancel", draw, { class: "quiet small" }));
      put(line.children[1], form);
      put(line.children[2]);
      input.focus();
      input.select();
    };
    filter.oninput = draw;
    add(h("div", { class: "bar" }, field("Find", filter, { class: "mid" })), card("Options", { actions: hint }, box));
    try {
      all = Object.entries(await command(["CONFIG", "GET", "*"])).sort(([a], [b]) => (a < b ? -1 : 1));
      draw();
    } catch (e) { failed(box, e); }
  },
};
