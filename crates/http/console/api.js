// The HTTP door: commands, streams and who asks. Credentials are sent by this module alone, as a header that no other site
// can make a browser send; there is no cookie.

/** Longest response that a page takes; a longer one is cut off and said so. */
const RESPONSE_BYTES_MAX = 12 << 20;

let token = null;
let onLogin = () => {};

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Called when the server wants to know who asks. */
export const whenAsked = (run) => { onLogin = run; };

export function login(user, password) {
  const data = new TextEncoder().encode(`${user || "default"}:${password}`);
  token = `Basic ${btoa(String.fromCharCode(...data))}`;
}
export const logout = () => { token = null; };
export const hasLogin = () => token !== null;

export async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = token;
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "omit", cache: "no-store", redirect: "error" });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Refused(0, "The server does not answer.");
  }
  if (response.ok) return response;
  let problem = {};
  try { problem = await response.json(); } catch { /* The status says enough. */ }
  if (response.status === 401) onLogin(problem.detail);
  throw new Refused(response.status, problem.detail ?? response.statusText);
}

async function limited(response) {
  const reader = response.body.getReader();
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > RESPONSE_BYTES_MAX) {
      reader.cancel();
      throw new Refused(0, `The response has more than ${RESPONSE_BYTES_MAX >> 20} MiB, too much for a page. strand cli shows all of it.`);
    }
    parts.push(value);
  }
  return new Blob(parts).text();
}

// Integers beyond what a number holds stay text.
const exact = (_, value, context) =>
  typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? context.source : value;

/** Runs commands; each result is { result } or { error }. */
export async function commands(list, { db = 0, signal } = {}) {
  const body = list.map((args) => JSON.stringify(args)).join("\n");
  const response = await request(`/v1/commands${db ? `?db=${db}` : ""}`, {
    method: "POST", body, signal, headers: { "Content-Type": "application/x-ndjson" },
  });
  const lines = (await limited(response)).split("\n").filter(Boolean).map((line) => JSON.parse(line, exact));
  const broken = lines.find((line) => line.problem);
  if (broken) throw new Refused(broken.problem.status, broken.problem.detail);
  return lines;
}

/** Runs one command and gives its result; an error reply is thrown. */
export async function command(args, options) {
  const [line] = await commands([args], options);
  if (line.error !== undefined) throw new Refused(400, line.error);
  return line.result;
}

export async function json(path, options) {
  return JSON.parse(await limited(await request(path, options)), exact);
}

/** Saves what a path answers as a file. */
export async function download(path, name) {
  const url = URL.createObjectURL(await (await request(path)).blob());
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name });
  link.click();
  // The browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Server-sent events of a path, until `signal`; each event's data is parsed as JSON. */
export async function events(path, onEvent, signal) {
  const response = await request(path, { signal, headers: { Accept: "text/event-stream" } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    pending += value;
    if (pending.length > RESPONSE_BYTES_MAX) throw new Refused(0, "An event is too long.");
    const whole = pending.split("\n\n");
    pending = whole.pop();
    for (const event of whole) {
      const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
      if (data) onEvent(JSON.parse(data));
    }
  }
}

/** A reply that is a map, whatever the protocol made of it. */
export const asMap = (reply) => {
  if (!Array.isArray(reply)) return reply ?? {};
  const map = {};
  for (let i = 0; i + 1 < reply.length; i += 2) map[reply[i]] = reply[i + 1];
  return map;
};

/** The text of INFO as { name: value }, and { name: { field: value } } for what has fields. */
export function parseInfo(text) {
  const info = {};
  for (const line of text.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (line.startsWith("#") || colon < 0) continue;
    const [name, value] = [line.slice(0, colon), line.slice(colon + 1)];
    info[name] = /^[a-z0-9_.]+=/.test(value) && /^(db\d|cmdstat_|errorstat_|latency_percentiles)/.test(name)
      ? Object.fromEntries(value.split(",").map((part) => part.split("=").map((s, i) => (i ? +s : s))))
      : value;
  }
  return info;
}
