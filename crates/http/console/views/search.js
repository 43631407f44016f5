import { command, commands, json, asMap } from "../api.js";
import { button, card, emptyState, field, h, put, table } from "../dom.js";
import { count, micros, shown, text } from "../format.js";

const PAGE = 20;
const GREP_LIMIT = 200;
/** How long the worker may look for the places to mark. */
const MARK_MS = 400;
const FIELD_MAX = 600;

/** Cuts text into pieces that are marked and others. */
const cut = (value, spans) => {
  const out = [];
  let at = 0;
  for (const [from, to] of spans) {
    if (from < at || to > value.length) continue;
    if (from > at) out.push([value.slice(at, from), false]);
    out.push([value.slice(from, to), true]);
    at = to;
  }
  out.push([value.slice(at), false]);
  return out;
};

/** The words that a query asks for, without its operators, and without what a stemmer takes off. */
export function terms(query) {
  const plain = query.replace(/-(\([^)]*\)|"[^"]*"|\S+)/g, " ").replace(/@[\w|]+:(\[[^\]]*\]|\{[^}]*\})?/g, " ").toLowerCase();
  return [...new Set(plain.match(/[\p{L}\p{N}_]+/gu) ?? [])].map((word) => (word.length > 4 ? word.replace(/(ing|ed|es|s|e|y)$/, "") : word));
}

const marker = (query) => {
  const wanted = terms(query);
  return (value) => cut(value, [...value.matchAll(/[\p{L}\p{N}_]+/gu)].filter((m) => wanted.some((term) => m[0].toLowerCase().startsWith(term))).map((m) => [m.index, m.index + m[0].length]));
};

/** The part of a long text round the first word that is marked. */
const around = (value, mark) => {
  if (value.length <= FIELD_MAX) return value;
  let at = 0;
  for (const [part, marked] of mark(value)) { if (marked) break; at += part.length; }
  const from = at >= value.length ? 0 : Math.max(0, at - 120);
  return `${from ? "… " : ""}${value.slice(from, from + FIELD_MAX)}${from + FIELD_MAX < value.length ? " …" : ""}`;
};

/** The one script that a worker may be made of. */
const worker = "/console/mark.js";
const policy = window.trustedTypes?.createPolicy("console", { createScriptURL: (url) => { if (url !== worker) throw new TypeError(url); return url; } });

/** Places of a regular expression in lines, by a worker; none when it takes too long. */
const places = (pattern, nocase, lines) => new Promise((done) => {
  const marking = new Worker(policy ? policy.createScriptURL(worker) : worker);
  const end = (spans) => { clearTimeout(timer); marking.terminate(); done(spans); };
  const timer = setTimeout(() => end(null), MARK_MS);
  marking.onmessage = (e) => end(e.data);
  marking.onerror = () => end(null);
  marking.postMessage({ pattern, nocase, lines });
});

export const search = {
  id: "search", title: "Search",
  async show({ head, add, query, failed, onLeave }) {
    head("Text indexes and regular expressions");
    const control = new AbortController();
    onLeave(() => control.abort());
    const signal = control.signal;
    const kind = h("select", {}, h("option", { value: "text" }, "Text (FT.SEARCH)"), h("option", { value: "values" }, "Expression in values"), h("option", { value: "keys" }, "Expression in keys"));
    const index = h("select", {}), words = h("input", { class: "mono", type: "search", spellcheck: "false", value: query.get("q") ?? "" });
    const prefix = h("input", { class: "mono", placeholder: "mail:", spellcheck: "false", autocapitalize: "none" }), nocase = h("input", { type: "checkbox" });
    const results = h("div"), hint = h("p", { class: "hint" }), info = h("div");
    const indexField = field("Index", index), prefixField = field("Keys that begin with", prefix), caseField = field("Ignore case", nocase, { class: "inline thin" });
    const form = h("form", { class: "bar", onsubmit: (e) => { e.preventDefault(); run(0); } }, field("Look in", kind), indexField, prefixField, caseField, field("For", words, { class: "mid" }), h("button", { class: "primary" }, "Search"));
    add(form, h("div", { class: "grid split reverse" }, card("Index", {}, info), card("Results", { actions: hint }, results)));

    let turn = 0, ready = Promise.resolve();
    const run = async (offset) => {
      const mine = ++turn, q = words.value;
      if (!q.trim()) return put(results, emptyState("Enter what to search for", kind.value === "text" ? "Words, \"phrases\", -without, @field:words, @number:[1 9], @tag:{a|b}." : "A regular expression in Rust's syntax; a search takes linear time, whatever the expression is."));
      hint.textContent = "Looking …";
      await ready;
      if (mine !== turn) return;
      if (kind.value === "text" && !index.value) { hint.textContent = ""; return put(results, emptyState("No text index", "There is nothing to search in. Regular expressions need no index.")); }
      const begun = performance.now();
      try {
        if (kind.value === "text") {
          const path = `/v1/search/${encodeURIComponent(index.value)}?q=${encodeURIComponent(q)}&limit=${PAGE}&offset=${offset}`;
          const found = await json(path, { signal });
          if (mine !== turn) return;
          hint.textContent = `${count(found.total)} in ${micros((performance.now() - begun) * 1000)}`;
          const mark = marker(q);
          put(results, found.total ? found.documents.map((d) => hit(d.id, Object.entries(d.fields ?? {}).map(([name, value]) => [name, shown(around(text(value), mark), { max: FIELD_MAX + 8, mark })])))
            : emptyState("Nothing found", "No document matches the query."),
            h("div", { class: "actions" }, offset > 0 && button("Back", () => run(Math.max(0, offset - PAGE)), { class: "small" }), found.next && button("Next", () => run(offset + PAGE), { class: "small" })));
        } else {
          const lines = kind.value === "values";
          const path = `/v1/grep?pattern=${encodeURIComponent(q)}&in=${kind.value}&limit=${GREP_LIMIT}${prefix.value ? `&prefix=${encodeURIComponent(prefix.value)}` : ""}${nocase.checked ? "&nocase" : ""}${lines ? "&lines" : ""}`;
          const { matches } = await json(path, { signal });
          if (mine !== turn) return;
          const took = micros((performance.now() - begun) * 1000);
          hint.textContent = `${count(matches.length)}${matches.length === GREP_LIMIT ? " or more" : ""} in ${took}`;
          const rows = matches.map((m) => (typeof m === "string" ? { key: m } : m));
          const texts = rows.map((row) => text(lines ? row.line : row.key).slice(0, 400));
          const spans = await places(q, nocase.checked, texts);
          if (mine !== turn) return;
          put(results, rows.length ? rows.map((row, i) => {
            const marked = shown(texts[i], { max: 400, mark: (value) => cut(value, spans?.[i] ?? []) });
            return lines ? hit(row.key, [[row.field ? text(row.field) : "value", marked]]) : h("div", { class: "hit" }, marked);
          }) : emptyState("Nothing found", lines ? "No value matches the expression." : "No key matches the expression."));
        }
      } catch (e) { if (mine === turn) { hint.textContent = ""; failed(results, e); } }
    };
    const hit = (id, fields) => h("article", { class: "hit" }, h("h3", { class: "mono" }, shown(id, { max: 200 })), h("dl", {}, fields.map(([name, value]) => [h("dt", {}, shown(name, { max: 60 })), h("dd", {}, value)])));

    const about = async () => {
      const isText = kind.value === "text";
      indexField.hidden = !isText;
      prefixField.hidden = caseField.hidden = isText;
      if (!isText) {
        try {
          const list = asMap(await command(["RX.STATS"], { signal }));
          return put(info, h("div", {}, table([{ name: "Figure", cell: ([n]) => n }, { name: "", class: "num", cell: ([, v]) => (typeof v === "object" ? "–" : String(v)) }], Object.entries(list), { caption: "Regular expressions", empty: ["No figures", "No search with an expression has run yet."] })));
        } catch (e) { return failed(info, e); }
      }
      if (!index.value) return put(info, emptyState("No text index", "FT.CREATE name ON HASH PREFIX 1 mail: SCHEMA subject TEXT makes one over the hashes under a prefix."));
      try {
        const facts = asMap(await command(["FT.INFO", index.value], { signal }));
        const rows = ["num_docs", "num_records", "indexing", "percent_indexed", "hash_indexing_failures"].filter((name) => facts[name] !== undefined).map((name) => [name.replaceAll("_", " "), String(facts[name])]);
        const errors = asMap(facts["Index Errors"]);
        if (+facts.hash_indexing_failures > 0) rows.push(["last indexing error", `${text(errors["last indexing error key"])}: ${text(errors["last indexing error"])}`]);
        for (const raw of facts.attributes ?? []) { const a = asMap(raw); rows.push([h("span", {}, "field ", h("code", {}, a.attribute ?? a.identifier ?? "?")), String(a.type ?? "")]); }
        put(info, table([{ name: "Fact", cell: ([n]) => n }, { name: "", class: "num", cell: ([, v]) => v }], rows, { caption: "Index" }));
      } catch (e) { failed(info, e); }
    };
    kind.onchange = () => { about(); put(results); hint.textContent = ""; run(0); };
    index.onchange = about;
    ready = command(["FT._LIST"], { signal }).then((names) => { put(index, (names ?? []).map((name) => h("option", { value: text(name) }, text(name)))); }).catch((e) => failed(info, e));
    await ready;
    await about();
    run(0);
  },
};
