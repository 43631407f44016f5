import { asMap, command, commands } from "../api.js";
import { button, card, confirm, emptyState, field, h, put, table, toast } from "../dom.js";
import { bytes, count, seconds, shown, unwire, wholeCharacters, wire } from "../format.js";

const PAGE = 100;
/** Pages of SCAN that one click asks for while nothing fits. */
const PAGES_MAX = 200;
/** Bytes of a string that are shown at once. */
const PART = 64 * 1024;
/** A collection whose elements take more than this on the average is not fetched by the page. */
const MEMORY_MAX = 8 << 20;

/** What asks for a page of each type: the command after a cursor, and rows of its reply. */
const KINDS = {
  hash: { size: "HLEN", next: (k, c) => ["HSCAN", k, c, "COUNT", PAGE], columns: ["Field", "Value"] },
  set: { size: "SCARD", next: (k, c) => ["SSCAN", k, c, "COUNT", PAGE], columns: ["Member"] },
  zset: { size: "ZCARD", range: (k, at) => ["ZRANGE", k, at, at + PAGE - 1, "WITHSCORES"], columns: ["Member", "Score"] },
  list: { size: "LLEN", range: (k, at) => ["LRANGE", k, at, at + PAGE - 1], columns: ["#", "Element"] },
  stream: { size: "XLEN", columns: ["ID", "Fields"] },
};

const pairs = (list) => {
  if (!Array.isArray(list)) return Object.entries(list ?? {});
  if (Array.isArray(list[0])) return list;
  const out = [];
  for (let i = 0; i + 1 < list.length; i += 2) out.push([list[i], list[i + 1]]);
  return out;
};

export const keys = {
  id: "keys", title: "Keys",
  show({ head, add, query, failed, onLeave }) {
    head("By SCAN, a page at a time");
    const pattern = h("input", { class: "mono", value: query.get("pattern") ?? "", placeholder: "user:*", spellcheck: "false", autocapitalize: "none" });
    const type = h("select", {}, ["any", "string", "hash", "list", "set", "zset", "stream"].map((name) => h("option", { value: name }, name === "any" ? "Any type" : name)));
    const databases = (n) => Array.from({ length: n }, (_, i) => h("option", { value: i }, i));
    const db = h("select", {}, databases(16));
    // Without the right to CONFIG the default stays.
    command(["CONFIG", "GET", "databases"]).then((found) => put(db, databases(+asMap(found).databases || 16)), () => {});
    const list = h("ul", { class: "keylist", "aria-label": "Keys" }), foot = h("div", { class: "actions" }), hint = h("p", { class: "hint" });
    const detail = h("div");
    const control = new AbortController();
    onLeave(() => control.abort());
    let cursor = "0", found = 0, turn = 0;

    const start = () => { cursor = "0"; found = 0; hint.textContent = ""; put(list); put(detail, card("Value", {}, emptyState("No key is chosen", "Choose one on the left to see its value."))); more(); };
    const more = async () => {
      const mine = ++turn;
      put(foot, h("span", { class: "hint" }, "Looking …"));
      try {
        let seen = 0, pages = 0;
        do {
          const args = ["SCAN", cursor, "COUNT", pattern.value ? 1000 : PAGE];
          if (pattern.value) args.push("MATCH", /[*?[]/.test(pattern.value) ? pattern.value : `*${pattern.value}*`);
          if (type.value !== "any") args.push("TYPE", type.value);
          const [next, names] = await command(args, { db: +db.value, signal: control.signal });
          if (mine !== turn) return;
          cursor = next;
          seen += names.length;
          for (const name of names) list.append(item(name));
          pages += 1;
        } while (cursor !== "0" && seen < PAGE && pages < PAGES_MAX);
        found += seen;
        hint.textContent = found ? `${count(found)}${cursor === "0" ? "" : " so far"}` : "";
        put(foot);
        if (!found && cursor === "0") put(foot, emptyState(pattern.value || type.value !== "any" ? "Nothing fits" : "No keys", pattern.value || type.value !== "any" ? "No key of this database fits the pattern and the type." : "This database is empty."));
        else if (cursor !== "0") put(foot, button(found ? "More" : "Look further", more));
      } catch (e) { if (mine === turn) failed(foot, e); }
    };
    const item = (name) => h("li", {}, h("button", { type: "button", onclick: (e) => {
      list.querySelector("[aria-current]")?.removeAttribute("aria-current");
      e.currentTarget.setAttribute("aria-current", "true");
      open(name);
    } }, shown(name, { max: 160 })));

    const open = async (name) => {
      const options = { db: +db.value, signal: control.signal };
      const box = put(detail, h("div", { class: "hint" }, "Loading …"));
      try {
        const found = await commands([["TYPE", name], ["PTTL", name], ["OBJECT", "ENCODING", name], ["MEMORY", "USAGE", name]], options);
        if (found[0].error !== undefined) throw new Error(found[0].error);
        const [kind, ttl, encoding, size] = found.map((r) => r.result);
        if (kind === "none") return put(box, card("Value", {}, emptyState("The key is gone", "The key expired or was deleted.")));
        const body = h("div");
        const facts = h("div", { class: "facts" }, [["Type", kind], ["Encoding", encoding ?? "–"], ["Memory", size == null ? "–" : bytes(size)], ["Expires", ttl === undefined ? "–" : ttl >= 0 ? `in ${ttl < 1000 ? `${ttl} ms` : seconds(ttl / 1000)}` : "never"]].map(([n, v]) => h("span", {}, `${n} `, h("b", {}, v))));
        const remove = button("Delete", async () => {
          if (!(await confirm("Delete this key?", "This also deletes its value.", "Delete"))) return;
          const gone = await command(["UNLINK", name], options);
          toast(gone ? "The key is deleted." : "The key did not exist any more.");
          list.querySelector("[aria-current]")?.parentNode.remove();
          put(detail, card("Value", {}, emptyState("No key is chosen", "Choose one on the left to see its value.")));
        }, { class: "small" });
        put(box, card("Value", { actions: [button("Again", () => open(name), { class: "small" }), remove] }, h("p", { class: "bytes", role: "heading", "aria-level": "3" }, shown(name, { max: 1000 })), facts, body));
        if (kind === "string") await showString(body, name, options);
        else if (KINDS[kind]) await showPages(body, name, kind, size ?? 0, options);
        else put(body, emptyState("No view of this type", "The command line shows it."));
      } catch (e) { failed(box, e); }
    };

    const showString = async (box, name, options) => {
      const length = await command(["STRLEN", name], options);
      const value = h("div", { class: "value", tabindex: "0", role: "region", "aria-label": "Value" }), more = h("div", { class: "actions" });
      put(box, value, h("p", { class: "hint" }, `${bytes(length)} (${count(length)} bytes)`), more);
      let at = 0;
      const next = async () => {
        const part = unwire(await command(["GETRANGE", name, at, at + PART - 1], options));
        // The next part begins with a character that this one would cut.
        const whole = at + part.length < length ? wholeCharacters(part) : part.length;
        value.append(shown(wire(part.subarray(0, whole)), { max: Infinity, lines: true }));
        at += whole || PART;
        put(more, at < length && button(`Next ${bytes(Math.min(PART, length - at))}`, next, { class: "small" }));
      };
      await next();
    };

    const showPages = async (box, name, kind, memory, options) => {
      const { size, columns } = KINDS[kind];
      const total = await command([size, name], options);
      const rowsMax = 2000, rows = [], where = h("div"), more = h("div", { class: "actions" }), hint = h("p", { class: "hint" });
      put(box, where, hint, more);
      if (total && (memory / total) * PAGE > MEMORY_MAX) return put(where, emptyState("Its elements are large", `Its ${count(total)} elements take ${bytes(memory / total)} each. The command line shows single elements.`));
      let position = kind === "stream" ? "-" : kind === "zset" || kind === "list" ? 0 : "0";
      const next = async () => {
        let ends = false;
        if (KINDS[kind].range) {
          const part = await command(KINDS[kind].range(name, position), options);
          const found = kind === "zset" ? pairs(part) : part.map((value, i) => [position + i, value]);
          rows.push(...found);
          position += PAGE;
          ends = position >= total;
        } else if (kind === "stream") {
          const part = await command(["XRANGE", name, position, "+", "COUNT", PAGE], options);
          rows.push(...part);
          ends = part.length < PAGE;
          if (part.length) position = `(${part[part.length - 1][0]}`;
        } else {
          const [cursor, part] = await command(KINDS[kind].next(name, position), options);
          rows.push(...(kind === "hash" ? pairs(part) : part.map((member) => [member])));
          position = cursor;
          ends = cursor === "0";
        }
        put(where, table(columns.map((title, i) => ({
          name: title, class: title === "#" || title === "Score" ? "num" : "",
          cell: (row) => (kind === "stream" && i === 1 ? pairs(row[1]).map(([f, v]) => h("div", {}, h("b", { class: "mono" }, shown(f, { max: 80 })), " ", shown(v, { max: 400 }))) : i === 0 && kind === "list" ? count(row[0]) : shown(row[i], { max: 2000 })),
        })), rows, { caption: "Elements", empty: ["No elements", "The value is empty."] }));
        hint.textContent = `${count(Math.min(rows.length, total))} of ${count(total)}`;
        put(more, !ends && rows.length < rowsMax && button("More", next, { class: "small" }), !ends && rows.length >= rowsMax && h("span", { class: "hint" }, "The command line shows the rest."));
      };
      await next();
    };

    let later;
    pattern.oninput = () => { clearTimeout(later); later = setTimeout(start, 250); };
    onLeave(() => clearTimeout(later));
    type.onchange = db.onchange = start;
    add(h("div", { class: "bar" }, field("Pattern", pattern, { class: "mid" }), field("Type", type), field("Database", db, { class: "thin" })),
      h("div", { class: "grid split" }, card("Keys", { actions: hint }, list, h("div", { class: "list-foot" }, foot)), detail));
    start();
  },
};
