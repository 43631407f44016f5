import { command } from "../api.js";
import { flame } from "../charts.js";
import { button, card, emptyState, field, h, put } from "../dom.js";
import { bytes, count, micros, percent } from "../format.js";
import * as live from "../live.js";

/** Stacks that differ, shown in the table. */
const ROWS_MAX = 20;
const SECOND_MS = 1000;
const KINDS = {
  heap: { title: "Memory in use", format: bytes, about: "Where the memory in use was allocated. One allocation in 4 MiB is sampled." },
  allocs: { title: "All allocations", format: bytes, about: "Where all memory since the start was allocated, freed or not." },
  cpu: { title: "Processor time", format: (ns) => micros(ns / 1000), about: "Where processor time went while the profile was taken: 99 samples a second of each busy core." },
};

/** Folded stacks, a line each: the functions from the outermost on with semicolons between, a blank, a number. */
export function parseFolded(text) {
  const stacks = [];
  for (const line of text.split("\n")) {
    const blank = line.lastIndexOf(" "), value = Number(line.slice(blank + 1));
    if (blank > 0 && value > 0) stacks.push({ frames: line.slice(0, blank).split(";"), value });
  }
  return stacks;
}

/** The stacks as a tree for a flame graph: equal beginnings are one frame. */
export function treeOf(stacks) {
  const root = { name: "All", value: 0, children: [], known: new Map() };
  for (const { frames, value } of stacks) {
    let at = root;
    at.value += value;
    for (const name of frames) {
      let next = at.known.get(name);
      if (!next) { next = { name, value: 0, children: [], known: new Map() }; at.known.set(name, next); at.children.push(next); }
      next.value += value;
      at = next;
    }
  }
  return root;
}

/** The functions by what they took themselves. */
function leaves(stacks) {
  const own = new Map();
  for (const { frames, value } of stacks) own.set(frames.at(-1), (own.get(frames.at(-1)) ?? 0) + value);
  return [...own].map(([name, value]) => ({ name, value })).sort((a, b) => b.value - a.value).slice(0, ROWS_MAX);
}

export const profiles = {
  id: "profiles", title: "Profiles", needs: "DIAG",
  show({ head, add, onLeave, failed }) {
    head("Where memory was allocated, and where processor time goes");
    const kind = h("select", {}, Object.entries(KINDS).map(([value, { title }]) => h("option", { value }, title)));
    const seconds = h("input", { type: "number", min: "1", max: "60", value: "5" });
    const length = field("Seconds", seconds, { class: "thin" }), box = h("div");
    let shown = null, gone = false;
    onLeave(() => { gone = true; shown?.end(); });
    const take = async () => {
      const { format, about } = KINDS[kind.value];
      start.disabled = true;
      try {
        let text;
        if (kind.value === "cpu") {
          const wait = Math.min(60, Math.max(1, Math.round(+seconds.value) || 5));
          const id = await command(["DIAG", "PROFILE", "CPU", "START", "SECONDS", String(wait)]);
          for (let left = wait; left > 0 && !gone; left -= 1) {
            put(box, h("p", { class: "hint", role: "status" }, `Sampling: ${left} s left.`));
            await new Promise((done) => setTimeout(done, SECOND_MS));
          }
          text = await command(["DIAG", "PROFILE", "CPU", "STOP", String(id), "FOLDED"]);
        } else {
          put(box, h("p", { class: "hint", role: "status" }, "Reading the allocator's samples."));
          text = await command(["DIAG", "PROFILE", kind.value.toUpperCase(), "FOLDED"]);
        }
        if (gone) return;
        const stacks = parseFolded(text), root = treeOf(stacks);
        shown?.end();
        if (!stacks.length) { put(box, emptyState("No samples", "The profile has no samples. The server does little, or has allocated little since it started.")); return; }
        shown = flame(root, format);
        const rows = leaves(stacks).map((row) => h("tr", {}, h("td", {}, h("code", {}, row.name)), h("td", { class: "num" }, format(row.value)), h("td", { class: "num" }, percent(row.value / root.value))));
        put(box, card("Flame graph", { hint: `${about} ${count(stacks.length)} different stacks. Click a function to show it at full width.` }, shown.node),
          card("Functions by self cost", {}, h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Functions" },
            h("table", {}, h("caption", { class: "sr" }, "Functions"), h("thead", {}, h("tr", {}, ["Function", "Self", "Share"].map((name, i) => h("th", { scope: "col", class: i ? "num" : null }, name)))), h("tbody", {}, rows)))));
      } catch (e) {
        shown?.end();
        if (!gone) failed(box, e);
      } finally { start.disabled = false; }
    };
    const start = button("Take a profile", take, { class: "primary" });
    const choose = () => { length.hidden = kind.value !== "cpu"; };
    kind.onchange = choose;
    choose();
    add(h("div", { class: "bar" }, field("Profile", kind), length, start), box);
    // A bundle has the profiles of memory.
    if (live.latest?.info.strand_bundle) kind.querySelector("[value=cpu]").remove();
    return take();
  },
};
