import { command } from "../api.js";
import { button, card, confirm, field, h, put, table, toast } from "../dom.js";
import { bytes, count, seconds, shown } from "../format.js";

/** The lines of CLIENT LIST; a name may contain an equals sign, but no space. */
const parse = (text) => text.split("\n").filter(Boolean).map((line) => Object.fromEntries(line.trim().split(" ").map((part) => {
  const at = part.indexOf("=");
  return [part.slice(0, at), part.slice(at + 1)];
})));

const ROWS_MAX = 500;

export const clients = {
  id: "clients", title: "Clients",
  show({ head, add, every, failed }) {
    head("Who is connected");
    const filter = h("input", { type: "search", placeholder: "Address, name, user or command" });
    const order = h("select", {}, [["tot-mem", "Memory"], ["age", "Age"], ["idle", "Idle"], ["id", "Number"]].map(([value, text]) => h("option", { value }, text)));
    const box = h("div"), hint = h("p", { class: "hint" });
    let all = [];
    const draw = () => {
      const word = filter.value.trim().toLowerCase();
      const found = all.filter((c) => `${c.addr} ${c.name} ${c.user} ${c.cmd}`.toLowerCase().includes(word)).sort((a, b) => b[order.value] - a[order.value]);
      hint.textContent = found.length > ROWS_MAX ? `${count(found.length)}, of which ${ROWS_MAX} are shown` : count(found.length);
      put(box, table([
        { name: "Address", class: "nowrap", cell: (c) => h("code", {}, c.addr) }, { name: "Name", cell: (c) => (c.name ? shown(c.name, { max: 60 }) : h("span", { class: "muted" }, "–")) },
        { name: "User", cell: (c) => shown(c.user, { max: 40 }) }, { name: "Last command", cell: (c) => h("code", {}, (c.cmd ?? "").replace("|", " ")) },
        { name: "Age", class: "num", cell: (c) => seconds(c.age) }, { name: "Idle", class: "num", cell: (c) => seconds(c.idle) },
        { name: "Memory", class: "num", cell: (c) => bytes(c["tot-mem"]) }, { name: "Protocol", class: "num", cell: (c) => `RESP${c.resp}` },
        { name: "", class: "end", cell: (c) => button("Close", () => kill(c), { class: "small", "aria-label": `Close the connection ${c.addr}` }) },
      ], found.slice(0, ROWS_MAX), { caption: "Clients", empty: ["No such client", "No connection matches the text."] }));
    };
    const load = async () => {
      try { all = parse(await command(["CLIENT", "LIST"])); draw(); } catch (e) { failed(box, e); }
    };
    const kill = async (client) => {
      if (!(await confirm("Close this connection?", `${client.addr}${client.name ? ` (${client.name})` : ""}, user ${client.user}. Most clients connect again by themselves.`, "Close it"))) return;
      const killed = await command(["CLIENT", "KILL", "ID", client.id]);
      toast(killed ? `${client.addr} is closed.` : "The connection was closed already.");
      load();
    };
    filter.oninput = order.onchange = draw;
    add(h("div", { class: "bar" }, field("Find", filter, { class: "mid" }), field("Sort by", order)), card("Connections", { actions: hint }, box));
    every(3000, () => (box.contains(document.activeElement) || document.querySelector("dialog") ? null : load()));
  },
};
