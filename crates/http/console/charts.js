// Plots over time by uPlot, and treemaps and flame graphs by hand in SVG.

import { h, svg } from "./dom.js";
import { clock, date } from "./format.js";

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
/** A plot shows at least so many seconds. */
const SPAN_MIN = 60;
/** Steps of an axis of bytes: a power of two, twice and four times. */
const BINARY = Array.from({ length: 50 }, (_, i) => 2 ** i);

const plots = new Set();
const sync = window.uPlot?.sync("time");

/** Colours changed: every plot is drawn again. */
export const repaint = () => plots.forEach((plot) => plot.rebuild());

/** A plot. `lines`: { name, colour: 1..6, fill }; `format` shows a value. Gives { node, set(columns), end() }. */
export function plot(title, lines, format, { max, binary, height = innerWidth >= 1500 ? 216 : 168 } = {}) {
  const values = lines.map((line, i) => h("span", { class: `key key-${line.colour ?? i + 1}` }, h("span", { class: "key-name" }, line.name), h("b", {}, "–")));
  const box = h("div", { class: "plot-box" });
  const node = h("figure", { class: "plot card" }, h("figcaption", {}, h("h2", {}, title), h("div", { class: "keys" }, values)), box);
  let chart = null, data = null;
  const show = (at) => lines.forEach((_, i) => {
    const value = data?.[i + 1]?.[at ?? data[0].length - 1];
    values[i].lastChild.textContent = value === null || value === undefined ? "–" : format(value);
  });
  const axis = { stroke: () => variable("--muted"), grid: { stroke: () => variable("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui", gap: 6 };
  const build = () => {
    chart?.destroy();
    chart = new window.uPlot({
      width: Math.max(box.clientWidth, 120), height, padding: [8, 8, 0, 0], legend: { show: false },
      cursor: { y: false, points: { size: 6 }, sync: { key: "time" }, drag: { x: false, y: false } },
      scales: { x: { range: (_, from, to) => [Math.min(from, to - SPAN_MIN), to] }, y: { range: (_, __, top) => [0, max ?? (top > 0 ? top * 1.12 : 1)] } },
      axes: [
        { ...axis, space: 76, size: 22, values: (_, ticks) => ticks.map((t) => (ticks[ticks.length - 1] - ticks[0] > 86400 ? date(t * 1000) : clock(t * 1000))) },
        { ...axis, space: 34, size: 78, incrs: binary && BINARY, values: (_, ticks) => ticks.map((t) => format(t)) },
      ],
      series: [{}, ...lines.map((line, i) => ({
        label: line.name, stroke: () => variable(`--series-${line.colour ?? i + 1}`), width: 1.5, points: { show: false },
        fill: line.fill ? () => variable(`--series-${line.colour ?? i + 1}-soft`) : undefined, spanGaps: false,
      }))],
      hooks: { setCursor: [(u) => data && show(u.cursor.idx)] },
    }, data ?? [[], ...lines.map(() => [])], box);
    sync?.sub(chart);
  };
  const resize = new ResizeObserver(() => chart && box.clientWidth && chart.setSize({ width: box.clientWidth, height }));
  const own = {
    node, rebuild: () => chart && build(),
    set(columns) {
      data = columns;
      if (!chart) { if (!box.isConnected || columns[0].length === 0) return; build(); resize.observe(box); }
      else chart.setData(columns);
      if (chart.cursor.idx === null || chart.cursor.idx === undefined || chart.cursor.left < 0) show();
      const last = lines.map((line, i) => `${line.name} ${values[i].lastChild.textContent}`).join(", ");
      box.setAttribute("role", "img");
      box.setAttribute("aria-label", `${title}: ${last}`);
    },
    end() { resize.disconnect(); plots.delete(own); chart?.destroy(); chart = null; },
  };
  plots.add(own);
  return own;
}

/** Lays rectangles of these sizes out in a box so that they are near to squares. */
function squarify(items, x, y, width, height, place) {
  let rest = items.filter((item) => item.value > 0).sort((a, b) => b.value - a.value);
  let area = rest.reduce((sum, item) => sum + item.value, 0);
  while (rest.length && area > 0 && width > 0 && height > 0) {
    const side = Math.min(width, height), scale = (width * height) / area;
    const worst = (sum, small, big) => Math.max((side * side * big) / (sum * sum), (sum * sum) / (side * side * small));
    let row = [], sum = 0;
    for (const item of rest) {
      const size = item.value * scale;
      if (row.length && worst(sum + size, size, row[0].value * scale) > worst(sum, row[row.length - 1].value * scale, row[0].value * scale)) break;
      row.push(item);
      sum += size;
    }
    const thick = sum / side;
    let along = 0;
    for (const item of row) {
      const length = (item.value * scale) / thick;
      if (width >= height) place(item, x, y + along, thick, length);
      else place(item, x + along, y, length, thick);
      along += length;
    }
    if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
    area -= row.reduce((all, item) => all + item.value, 0);
    rest = rest.slice(row.length);
  }
}

/** A treemap of { name, value, colour }. */
export function treemap(title, items, format, { height = 320 } = {}) {
  const node = h("div", { class: "treemap", role: "img", "aria-label": `${title}: ${items.map((i) => `${i.name} ${format(i.value)}`).join(", ")}` });
  const draw = () => {
    const width = node.clientWidth;
    if (!width) return;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
    squarify(items, 0, 0, width, height, (item, x, y, w, tall) => {
      const group = svg("g", {}, svg("title", {}, `${item.name}: ${format(item.value)}`),
        svg("rect", { x: x + 1, y: y + 1, width: Math.max(w - 2, 0), height: Math.max(tall - 2, 0), rx: 3, class: `tile tile-${item.colour}` }));
      if (w > 76 && tall > 40) {
        const room = Math.floor((w - 20) / 7);
        group.append(svg("text", { x: x + 11, y: y + 22, class: "tile-name" }, item.name.length > room ? `${item.name.slice(0, room - 1)}…` : item.name),
          svg("text", { x: x + 11, y: y + 39, class: "tile-value" }, format(item.value)));
      }
      root.append(group);
    });
    node.replaceChildren(root);
  };
  const resize = new ResizeObserver(draw);
  resize.observe(node);
  return { node, set(next) { items = next; draw(); }, end: () => resize.disconnect() };
}

/** A flame graph of a tree { name, value, children }; a click makes a frame the width of all. */
export function flame(root, format) {
  const ROW = 20;
  const node = h("div", { class: "flame" });
  const path = h("div", { class: "flame-path", role: "status" });
  const box = h("div", { class: "flame-box" });
  node.append(path, box);
  let focus = root;
  const depth = (frame) => 1 + Math.max(0, ...frame.children.map(depth));
  const hue = (name) => { let n = 7; for (const c of name) n = (n * 31 + c.codePointAt(0)) >>> 0; return n % 6; };
  const draw = () => {
    const width = box.clientWidth;
    if (!width) return;
    const rows = Math.min(depth(focus), 200);
    const picture = svg("svg", { width, height: rows * ROW, viewBox: `0 0 ${width} ${rows * ROW}` });
    const place = (frame, x, w, level) => {
      if (w < 1.5 || level >= 200) return;
      const label = `${frame.name}: ${format(frame.value)} (${((100 * frame.value) / (root.value || 1)).toFixed(1)} %)`;
      const choose = () => { focus = frame; draw(); };
      const group = svg("g", { tabindex: w > 24 ? "0" : null, role: "button", "aria-label": label, onclick: choose,
        onkeydown: (e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), choose()) },
        svg("title", {}, label), svg("rect", { x, y: level * ROW, width: Math.max(w - 1, 0.5), height: ROW - 1, rx: 2, class: `frame frame-${hue(frame.name)}` }));
      const room = Math.floor((w - 10) / 6.6);
      picture.append(group);
      // Beside the button: its name is the whole function's, and this may be cut.
      if (room >= 3) picture.append(svg("text", { x: x + 5, y: level * ROW + 14, class: "frame-name", "aria-hidden": "true" }, frame.name.length > room ? `${frame.name.slice(0, room - 1)}…` : frame.name));
      let at = x;
      for (const child of frame.children) {
        const part = frame.value ? (w * child.value) / frame.value : 0;
        place(child, at, part, level + 1);
        at += part;
      }
    };
    place(focus, 0, width, 0);
    box.replaceChildren(picture);
    path.replaceChildren(focus === root ? `All: ${format(root.value)}` : h("button", { type: "button", class: "quiet", onclick: () => { focus = root; draw(); } }, "Show all"), focus === root ? "" : ` ${focus.name}: ${format(focus.value)}`);
  };
  const resize = new ResizeObserver(draw);
  resize.observe(box);
  return { node, end: () => resize.disconnect() };
}
