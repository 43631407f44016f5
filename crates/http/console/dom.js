// Builds the page. What comes from the server becomes text, never markup: there is no way here to parse HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name in node && typeof value !== "string" && !(node instanceof SVGElement)) node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/** An element: `h("p", { class: "x" }, "text")`. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
/** The same in SVG. */
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** Puts other children into a node. */
export const put = (node, ...children) => {
  node.replaceChildren();
  return add(node, children);
};

/** A table. `columns`: { name, class, cell(row) }; a cell is text or a node. */
export function table(columns, rows, { caption, empty, rowClass } = {}) {
  if (!rows.length && empty) return emptyState(...empty);
  const head = h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.class }, c.name || h("span", { class: "sr" }, c.class === "end" ? "Actions" : "Value"))));
  const body = rows.map((row) =>
    h("tr", { class: rowClass?.(row) }, columns.map((c) => h("td", { class: c.class, "data-label": c.name }, c.cell(row)))));
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "sr" }, caption), h("thead", {}, head), h("tbody", {}, body)));
}

/** What stands where there is nothing yet. */
export const emptyState = (title, text, ...more) =>
  h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", {}, text), more);

/** A section with a heading. */
export const card = (title, { actions, class: extra, hint } = {}, ...children) =>
  h("section", { class: `card ${extra ?? ""}` },
    h("header", { class: "card-head" }, h("h2", {}, title), hint && h("p", { class: "hint" }, hint), actions && h("div", { class: "actions" }, actions)),
    children);

/** A label and its control. */
let ids = 0;
export function field(label, control, { class: extra, hint } = {}) {
  control.id ||= `f${++ids}`;
  return h("div", { class: `field ${extra ?? ""}` }, h("label", { for: control.id }, label), control, hint && h("p", { class: "hint" }, hint));
}

export const button = (text, onclick, props = {}) => h("button", { type: "button", onclick, ...props }, text);

/** A short message that goes by itself. */
export function toast(text, kind = "ok") {
  const node = h("p", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), kind === "bad" ? 9000 : 4000);
}

/** Asks before something that cannot be undone; resolves to true or false. */
export function confirm(title, text, action) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "dialog-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "dialog-title" }, title), h("p", {}, text),
        h("div", { class: "actions end" }, h("button", { value: "no", class: "quiet" }, "Cancel"), h("button", { value: "yes", class: "danger" }, action))));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
