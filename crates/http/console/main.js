// The page's frame: who is logged in, which view is shown, keys and colours.

import { command, commands, hasLogin, login, logout, parseInfo, whenAsked, Refused } from "./api.js";
import { repaint } from "./charts.js";
import { button, emptyState, field, h, put, toast } from "./dom.js";
import { day } from "./format.js";
import * as live from "./live.js";
import { overview } from "./views/overview.js";
import { history } from "./views/history.js";
import { latency } from "./views/latency.js";
import { memory } from "./views/memory.js";
import { profiles } from "./views/profiles.js";
import { slowlog } from "./views/slowlog.js";
import { clients } from "./views/clients.js";
import { keys } from "./views/keys.js";
import { terminal } from "./views/terminal.js";
import { search } from "./views/search.js";
import { imports } from "./views/imports.js";
import { users } from "./views/users.js";
import { config } from "./views/config.js";

/** A view with `needs` is shown where the server has that command. */
let VIEWS = [];
const ALL = [overview, history, latency, memory, slowlog, clients, keys, search, imports, profiles, terminal, users, config];
const app = document.getElementById("app");

let leave = () => {};
let asking = false;

/** The view of the address, and its parameters. */
function place() {
  const [id, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: VIEWS.find((view) => view.id === id) ?? overview, query: new URLSearchParams(query) };
}

function theme(next) {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (next) {
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("strand-theme", root.dataset.theme); } catch { /* For this page only then. */ }
    repaint();
  }
  return dark;
}

const logo = () => h("div", { class: "brand" }, h("img", { src: "/console/icon.svg", alt: "" }), "Strand");

function askWho(reason) {
  if (asking) return;
  asking = true;
  leave();
  live.end();
  logout();
  const user = h("input", { name: "user", autocomplete: "username", placeholder: "default", autocapitalize: "none", spellcheck: "false" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password" });
  const trouble = h("p", { class: "bad", role: "alert" }, reason ?? "");
  const form = h("form", { class: "card", onsubmit: async (e) => {
    e.preventDefault();
    login(user.value, password.value);
    asking = false;
    // A wrong password asks again, with the server's reason.
    if (await enter((text) => { asking = true; trouble.textContent = text; })) trouble.textContent = "";
  } }, logo(), field("User", user), field("Password", password), trouble, h("button", { class: "primary" }, "Log in"));
  put(app, h("main", { class: "login", id: "main" }, form));
  user.focus();
}

async function enter(refused) {
  const quiet = refused ? (whenAsked(() => {}), true) : false;
  try {
    const needed = [...new Set(ALL.map((view) => view.needs).filter(Boolean))];
    const [who, info, known] = await commands([["ACL", "WHOAMI"], ["INFO", "server"], ["COMMAND", "INFO", ...needed]]);
    const has = new Set(needed.filter((_, i) => known.result?.[i]));
    VIEWS = ALL.filter((view) => !view.needs || has.has(view.needs));
    whenAsked(askWho);
    frame(who.result ?? "default", info.result ? parseInfo(info.result) : {});
    return true;
  } catch (e) {
    if (quiet) { whenAsked(askWho); logout(); refused(e.message); return false; }
    if (e.status === 401) return false;
    put(app, h("main", { id: "main" }, emptyState("The server does not answer", e.message, h("div", { class: "actions" }, button("Try again", () => enter(), { class: "primary" })))));
    return false;
  }
}

let stage, links, liveMark;

function frame(who, server) {
  liveMark = h("span", { class: "live", role: "status" }, "Connecting");
  links = VIEWS.map((view, i) => h("a", { href: `#/${view.id}` }, view.title));
  stage = h("main", { id: "main", tabindex: "-1" });
  const toggle = button(theme() ? "Light" : "Dark", () => { theme(true); toggle.textContent = theme() ? "Light" : "Dark"; }, { class: "quiet small", title: "Change colours (t)", id: "theme" });
  put(app, h("div", { class: "shell" },
    h("header", { class: "side" }, logo(), h("nav", { class: "nav", "aria-label": "Views" }, links),
      h("div", { class: "side-foot" }, liveMark,
        h("span", { class: "who" }, `${who} · version ${server.strand_version ?? "?"}`),
        h("div", { class: "row" }, toggle, button("Keys", showKeys, { class: "quiet small who", title: "Keyboard (?)" }),
          hasLogin() && button("Log out", () => { logout(); location.reload(); }, { class: "quiet small" })))),
    stage));
  live.start((state) => {
    const made = live.latest?.info.strand_bundle ?? server.strand_bundle;
    liveMark.className = `live ${state === "live" && !made ? "on" : "off"}`;
    liveMark.textContent = made ? `Bundle of ${day(made * 1000)}` : state === "live" ? "Live" : "Not live";
  }, VIEWS.includes(history));
  show();
}

function show() {
  if (!stage?.isConnected) return;
  leave();
  const { view, query } = place();
  VIEWS.forEach((other, i) => (other === view ? links[i].setAttribute("aria-current", "page") : links[i].removeAttribute("aria-current")));
  links[VIEWS.indexOf(view)].scrollIntoView({ block: "nearest", inline: "nearest" });
  document.title = `${view.title} · Strand`;
  put(stage);
  const ends = [];
  leave = () => { ends.splice(0).forEach((end) => end()); leave = () => {}; };
  const context = {
    query,
    /** Runs when the view goes. */
    onLeave: (end) => ends.push(end),
    /** Puts nodes on the page. */
    add: (...nodes) => stage.append(...nodes.flat().filter(Boolean)),
    head: (text, ...actions) => stage.append(h("header", { class: "page-head" }, h("h1", {}, view.title), text && h("p", {}, text), actions.length > 0 && h("div", { class: "actions" }, actions))),
    /** Shows what went wrong in place of what was to be there. */
    failed: (into, e) => {
      if (e.name === "AbortError" || e.status === 401) return;
      put(into, h("p", { class: "notice", role: "alert" }, e instanceof Refused ? e.message : String(e)));
    },
    every: (ms, run) => { const timer = setInterval(run, ms); ends.push(() => clearInterval(timer)); run(); },
  };
  Promise.resolve(view.show(context)).catch((e) => { context.failed(stage, e); });
}

function showKeys() {
  const rows = [["1 – 9", "Show a view"], ["/", "Go to the first field"], ["c", "Command line"], ["t", "Light or dark"], ["?", "This list"], ["Esc", "Leave a field or a dialog"]];
  const dialog = h("dialog", { class: "dialog", "aria-label": "Keyboard" }, h("form", { method: "dialog" }, h("h2", {}, "Keyboard"),
    h("dl", {}, rows.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])), h("div", { class: "actions end" }, h("button", { class: "primary" }, "Close"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

addEventListener("keydown", (e) => {
  const typing = e.target.closest?.("input, textarea, select, dialog");
  if (e.key === "Escape" && typing?.matches("input, textarea, select")) return e.target.blur();
  if (typing || e.ctrlKey || e.metaKey || e.altKey || !stage?.isConnected) return;
  const go = (view) => { e.preventDefault(); location.hash = `#/${view.id}`; };
  if (e.key >= "1" && e.key <= "9" && VIEWS[e.key - 1]) go(VIEWS[e.key - 1]);
  else if (e.key === "c") go(terminal);
  else if (e.key === "t") document.getElementById("theme")?.click();
  else if (e.key === "?") showKeys();
  else if (e.key === "/") { const first = stage.querySelector("input:not([type=checkbox]), textarea"); if (first) { e.preventDefault(); first.focus(); } }
});
addEventListener("hashchange", () => { stage?.focus({ preventScroll: true }); scrollTo(0, 0); show(); });
addEventListener("unhandledrejection", (e) => { if (e.reason?.name !== "AbortError" && e.reason?.status !== 401) toast(e.reason?.message ?? "Something went wrong.", "bad"); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

whenAsked(askWho);
enter();
