import { commands } from "../api.js";
import { card, h, put } from "../dom.js";
import { quoted, shown, text, wire } from "../format.js";

const SUGGESTIONS = 12;
const LINES_MAX = 2000;
const SHOWN_MAX = 64 * 1024;
let table = null;
const past = [];

/** The words of a line, by redis-cli's rules; null when a quote is open. Bytes that are no text become base64:. */
export function words(line) {
  const out = [];
  const encoder = new TextEncoder();
  for (let i = 0; ;) {
    while (/\s/.test(line[i] ?? "")) i += 1;
    if (i >= line.length) return out;
    let data = [];
    const push = (s) => data.push(...encoder.encode(s));
    if (line[i] === '"' || line[i] === "'") {
      const quote = line[i++];
      for (;;) {
        if (i >= line.length) return null;
        const c = line[i];
        if (c === quote) { i += 1; break; }
        if (quote === '"' && c === "\\" && /^x[0-9a-f]{2}/i.test(line.slice(i + 1, i + 4))) { data.push(parseInt(line.slice(i + 2, i + 4), 16)); i += 4; continue; }
        if (quote === '"' && c === "\\" && i + 1 < line.length) { const n = line[i + 1]; push({ n: "\n", r: "\r", t: "\t", b: "\b", a: "\x07" }[n] ?? n); i += 2; continue; }
        if (quote === "'" && c === "\\" && line[i + 1] === "'") { push("'"); i += 2; continue; }
        const point = String.fromCodePoint(line.codePointAt(i));
        push(point); i += point.length;
      }
      if (i < line.length && !/\s/.test(line[i])) return null;
    } else {
      while (i < line.length && !/\s/.test(line[i])) { const point = String.fromCodePoint(line.codePointAt(i)); push(point); i += point.length; }
    }
    out.push(wire(Uint8Array.from(data)));
  }
}

/** One argument in redis-cli's notation. */
function piece(arg) {
  const parts = (arg.arguments ?? []).map(piece);
  const own = arg.type === "oneof" ? parts.join("|") : arg.type === "block" ? parts.join(" ") : arg.type === "pure-token" ? "" : arg.name;
  const flags = arg.flags ?? [];
  const named = (s) => (arg.token ? (s ? `${arg.token} ${s}` : arg.token) : s);
  const whole = flags.includes("multiple_token") ? `${named(own)} [${named(own)} ...]` : flags.includes("multiple") ? named(`${own} [${own} ...]`) : named(own);
  return flags.includes("optional") ? `[${whole}]` : whole;
}

async function docs() {
  if (table) return table;
  const [{ result, error }] = await commands([["COMMAND", "DOCS"]]);
  if (error) return (table = []);
  const all = [];
  for (const [name, doc] of Object.entries(result)) {
    const one = (full, d) => all.push({ name: full.toUpperCase().replace("|", " "), summary: d.summary ?? "", pieces: (d.arguments ?? []).map(piece), hasSubs: !!d.subcommands, tokens: tokens(d.arguments ?? []) });
    one(name, doc);
    for (const [sub, d] of Object.entries(doc.subcommands ?? {})) one(sub, d);
  }
  return (table = all.sort((a, b) => (a.name < b.name ? -1 : 1)));
}

const tokens = (args) => args.flatMap((a) => [...(a.token ? [a.token] : []), ...tokens(a.arguments ?? [])]);

const find = (list) => {
  const upper = list.slice(0, 2).map((w) => text(w).toUpperCase());
  return table?.find((c) => c.name === upper.join(" ")) ?? table?.find((c) => c.name === upper[0]);
};

/** A result as redis-cli shows it to a person. */
function render(value, indent = "") {
  if (value === null) return "(nil)";
  if (typeof value === "number") return `(number) ${value}`;
  if (typeof value === "boolean") return `(${value})`;
  if (typeof value === "string") return value;
  const entries = Array.isArray(value) ? value.map((v) => [null, v]) : Object.entries(value);
  if (!entries.length) return Array.isArray(value) ? "(empty array)" : "(empty hash)";
  const width = String(entries.length).length;
  return entries.map(([key, v], i) => {
    const lead = `${String(i + 1).padStart(width)}) `;
    const deeper = indent + " ".repeat(lead.length);
    const own = typeof v === "string" ? quoted(v) : render(v, deeper);
    return (i ? indent : "") + lead + (key === null ? own : `${text(key)} => ${own}`);
  }).join("\n");
}

export const terminal = {
  id: "command", title: "Command line",
  async show({ head, add, onLeave }) {
    head("Tab completes; the arrow keys bring back earlier lines");
    const out = h("div", { class: "console-out", role: "log", "aria-label": "Replies", tabindex: "0" });
    const input = h("input", { class: "mono", spellcheck: "false", autocapitalize: "none", autocomplete: "off", "aria-label": "Command", role: "combobox", "aria-expanded": "false", "aria-controls": "suggestions", "aria-autocomplete": "list", placeholder: "GET key" });
    const list = h("ul", { class: "suggest", id: "suggestions", role: "listbox", hidden: true }), syntax = h("div", { class: "syntax", "aria-live": "polite" });
    let db = 0, at = past.length, options = [], chosen = -1;

    const say = (node) => { out.append(node); while (out.childElementCount > LINES_MAX) out.firstChild.remove(); out.scrollTop = out.scrollHeight; };
    const close = () => { options = []; chosen = -1; list.hidden = true; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
    const draw = () => {
      put(list, options.map((o, i) => h("li", { id: `s${i}`, role: "option", "aria-selected": i === chosen ? "true" : "false", onmousedown: (e) => { e.preventDefault(); take(o); } }, h("code", {}, o.value), h("span", {}, o.about))));
      list.hidden = !options.length;
      input.setAttribute("aria-expanded", String(!!options.length));
      if (chosen >= 0) { input.setAttribute("aria-activedescendant", `s${chosen}`); list.children[chosen].scrollIntoView({ block: "nearest" }); }
    };
    const take = (o) => { input.value = `${input.value.slice(0, o.from)}${o.value} `; close(); hint(); input.focus(); };
    const suggest = () => {
      const line = input.value, from = line.search(/\S*$/), typed = line.slice(from).toUpperCase(), before = words(line.slice(0, from)) ?? [];
      const matches = (values) => values.filter(([v]) => v.startsWith(typed)).slice(0, SUGGESTIONS).map(([value, about]) => ({ from, value, about }));
      const first = before.length ? text(before[0]).toUpperCase() : "";
      if (!before.length) options = typed ? matches((table ?? []).filter((c) => !c.name.includes(" ")).map((c) => [c.name, c.summary])) : [];
      else if (before.length === 1 && find(before)?.hasSubs) options = matches(table.filter((c) => c.name.startsWith(`${first} `)).map((c) => [c.name.slice(first.length + 1), c.summary]));
      else options = typed ? matches([...new Set(find(before)?.tokens ?? [])].map((t) => [t, ""])) : [];
      if (options.length === 1 && options[0].value === typed) options = [];
      chosen = -1;
      draw();
    };
    const hint = () => {
      const typed = words(input.value) ?? [], found = typed.length ? find(typed) : null;
      put(syntax, found && [h("b", {}, found.name), " ", found.hasSubs && !found.pieces.length ? "subcommand" : found.pieces.join(" ")]);
    };
    // The door takes the database with each request, so this one asks whether there is such a database.
    const select = async (word) => {
      if (!/^\d{1,9}$/.test(word)) return say(h("pre", { class: "bad" }, "ERR invalid DB index"));
      try {
        const [{ error }] = await commands([["PING"]], { db: +word });
        if (error !== undefined && !error.startsWith("NOPERM")) return say(h("pre", { class: "bad" }, error));
        db = +word;
        say(h("pre", {}, `OK: database ${db} from now on`));
      } catch (e) { say(h("pre", { class: "bad" }, e.message)); }
    };
    const run = async () => {
      const line = input.value.trim();
      if (!line) return;
      close();
      if (past[past.length - 1] !== line && !/^\s*(auth|hello|acl\s+setuser|config\s+set\s+requirepass)/i.test(line)) past.push(line);
      at = past.length;
      input.value = "";
      put(syntax);
      say(h("div", { class: "in" }, shown(line, { max: 400 })));
      const args = words(line);
      if (!args) return say(h("pre", { class: "bad" }, "A quotation mark is not closed."));
      if (args[0].toUpperCase() === "CLEAR" && args.length === 1) return put(out);
      if (args[0].toUpperCase() === "SELECT" && args.length === 2) return select(args[1]);
      const begun = performance.now();
      try {
        const [{ result, error }] = await commands([args], { db });
        const ms = performance.now() - begun;
        if (error !== undefined) say(h("pre", { class: "bad" }, shown(error, { max: SHOWN_MAX, lines: true })));
        else say(h("pre", {}, shown(render(result), { max: SHOWN_MAX, lines: true }), ms > 500 ? h("span", { class: "muted" }, ` (${(ms / 1000).toFixed(2)} s)`) : ""));
      } catch (e) { say(h("pre", { class: "bad" }, e.message)); }
    };
    input.addEventListener("input", () => { suggest(); hint(); });
    input.addEventListener("blur", close);
    input.addEventListener("keydown", (e) => {
      const open = options.length > 0;
      if (e.key === "Tab" && !e.shiftKey && open) { e.preventDefault(); take(options[Math.max(chosen, 0)]); suggest(); }
      else if (e.key === "ArrowDown" && open) { e.preventDefault(); chosen = (chosen + 1) % options.length; draw(); }
      else if (e.key === "ArrowUp" && open && chosen >= 0) { e.preventDefault(); chosen = (chosen - 1 + options.length) % options.length; draw(); }
      else if (e.key === "ArrowUp" && at > 0) { e.preventDefault(); input.value = past[--at]; close(); hint(); }
      else if (e.key === "ArrowDown" && at < past.length) { e.preventDefault(); input.value = past[++at] ?? ""; close(); hint(); }
      else if (e.key === "Escape" && open) { e.stopPropagation(); close(); }
      else if (e.key === "Enter") { e.preventDefault(); if (open && chosen >= 0) take(options[chosen]); else run(); }
    });
    add(card("Replies", { hint: "Use strand cli for commands that change the connection (AUTH, SUBSCRIBE, MULTI)" }, out, h("div", { class: "prompt" }, list, input, syntax)));
    input.focus();
    await docs().catch(() => {});
    hint();
  },
};
