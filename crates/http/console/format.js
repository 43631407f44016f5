// Numbers, sizes, times and bytes as people read them.

import { h } from "./dom.js";

const groups = new Intl.NumberFormat("en-US");

export const count = (n) => (Number.isFinite(+n) ? groups.format(+n) : "–");

/** 12,345 as 12.3k. */
export function short(n) {
  n = +n;
  if (!Number.isFinite(n)) return "–";
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(n) >= size) return trim(n / (unit === "k" ? 1e3 : size)) + unit;
  }
  return Number.isInteger(n) || Math.abs(n) >= 100 ? count(Math.round(n)) : trim(n);
}

const trim = (n) => String(+n.toPrecision(Math.abs(n) >= 100 ? 4 : 3));

export function bytes(n) {
  n = +n;
  if (!Number.isFinite(n)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${unit === 0 ? Math.round(n) : trim(n)} ${units[unit]}`;
}

/** Microseconds. */
export function micros(us) {
  us = +us;
  if (!Number.isFinite(us)) return "–";
  if (us < 1000) return `${trim(us)} µs`;
  if (us < 1e6) return `${trim(us / 1000)} ms`;
  return `${trim(us / 1e6)} s`;
}

/** Seconds, in the two largest units, or the largest alone. */
export function seconds(s, units = 2) {
  s = Math.floor(+s);
  if (!Number.isFinite(s)) return "–";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => s >= size);
  if (first < 0) return "0 s";
  let out = [];
  for (const [size, unit] of parts.slice(first, first + units)) {
    const n = Math.floor(s / size);
    if (n) out.push(`${n} ${unit}`);
    s -= n * size;
  }
  return out.join(" ");
}

export const percent = (share) => (!Number.isFinite(share) ? "–" : share > 0 && share < 0.0001 ? "< 0.01 %" : `${trim(share * 100)} %`);
export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
export const date = (ms) => new Date(ms).toLocaleDateString([], { month: "short", day: "numeric" });
export const day = (ms) => new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "medium", hour12: false });

/** The bytes of a byte string: over the wire it is UTF-8 text, or base64: and its Base64. */
export function unwire(value) {
  if (!value.startsWith("base64:")) return new TextEncoder().encode(value);
  return Uint8Array.from(atob(value.slice(7)), (c) => c.charCodeAt(0));
}

/** Bytes as the door takes them. */
export function wire(data) {
  const s = decoded(data);
  if (s !== null && !s.startsWith("base64:")) return s;
  let raw = "";
  for (const b of data) raw += String.fromCharCode(b);
  return `base64:${btoa(raw)}`;
}

/** The text of bytes; null when they are not UTF-8. */
function decoded(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return null;
  }
}

const printed = (b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : `\\x${b.toString(16).padStart(2, "0")}`);

/** The text of a byte string from the wire. Bytes that are no text are escaped. */
export function text(value) {
  if (typeof value !== "string" || !value.startsWith("base64:")) return String(value ?? "");
  const data = unwire(value);
  return decoded(data) ?? [...data].map(printed).join("");
}

/** A byte string from the wire in quotes, as redis-cli shows it. */
export function quoted(value) {
  const data = unwire(value), s = decoded(data);
  return s !== null ? JSON.stringify(s) : `"${[...data].map((b) => (b === 0x22 || b === 0x5c ? `\\${printed(b)}` : printed(b))).join("")}"`;
}

/** The length of `data` without a UTF-8 character that is cut off at its end. */
export function wholeCharacters(data) {
  for (let back = 1; back <= Math.min(3, data.length); back += 1) {
    const b = data[data.length - back];
    if ((b & 0xc0) === 0x80) continue;
    const needs = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc0 ? 2 : 1;
    return needs > back && back < data.length ? data.length - back : data.length;
  }
  return data.length;
}

// Control characters, and what turns the direction of text or has no width.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const NAMES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

const escape = (c) => NAMES[c] ?? (c < "\u0100" ? `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}` : `\\u${c.charCodeAt(0).toString(16)}`);

/** A byte string for the page: what cannot be seen is written as an escape. `lines`: line feeds stay. */
export function shown(value, { max = 400, lines = false, mark } = {}) {
  const whole = text(value);
  const cut = whole.length > max ? whole.slice(0, max) : whole;
  const node = h("span", { class: lines ? "bytes pre" : "bytes", dir: "ltr" });
  for (const [part, marked] of mark ? mark(cut) : [[cut, false]]) {
    const into = marked ? h("mark") : node;
    let at = 0;
    for (const found of part.matchAll(HIDDEN)) {
      if (lines && found[0] === "\n") continue;
      into.append(part.slice(at, found.index), h("span", { class: "esc" }, escape(found[0])));
      at = found.index + 1;
    }
    into.append(part.slice(at));
    if (marked) node.append(into);
  }
  if (cut.length < whole.length) node.append(h("span", { class: "muted" }, ` … ${count(whole.length - cut.length)} more`));
  if (!whole) node.append(h("span", { class: "muted" }, "(empty)"));
  return node;
}
