import { command, commands, asMap } from "../api.js";
import { button, card, confirm, field, h, put, table, toast } from "../dom.js";
import { seconds, shown, text, unwire, wire } from "../format.js";
import { words } from "./terminal.js";

/** The rules of a user without the digests of passwords, which say nothing to a person. */
const rules = (line) => text(line).split(" ").slice(2).map((word) => (word.startsWith("#") ? "#…" : word)).join(" ");

export const users = {
  id: "users", title: "Users",
  async show({ head, add, failed }) {
    head("Who may do what");
    const list = h("div"), denied = h("div");
    const name = h("input", { autocomplete: "off", autocapitalize: "none", spellcheck: "false" }), rule = h("input", { class: "mono", autocomplete: "off", spellcheck: "false", placeholder: "on >password ~mail:* +@read" });
    const form = h("form", { class: "bar", onsubmit: async (e) => {
      e.preventDefault();
      const list = words(rule.value);
      if (!name.value || !list) return toast("Enter the name of a user, and close all quotation marks.", "bad");
      try {
        await command(["ACL", "SETUSER", name.value, ...list]);
        toast(`${name.value} is changed. ACL SAVE or CONFIG REWRITE keeps it.`);
        name.value = rule.value = "";
        load();
      } catch (error) { toast(error.message, "bad"); }
    } }, field("User", name), field("Rules", rule, { class: "wide" }), h("button", { class: "primary" }, "Set"));
    add(card("Users", { actions: button("Save to aclfile", async () => { try { await command(["ACL", "SAVE"]); toast("The users are saved."); } catch (e) { toast(e.message, "bad"); } }, { class: "small" }) }, list),
      card("Change or add a user", { hint: "These rules are added to the rules that the user has" }, form),
      card("Refused", { hint: "The newest denials (ACL LOG)" }, denied));
    const remove = async (user) => {
      if (!(await confirm("Delete this user?", `${text(user)}: connections of this user are closed.`, "Delete"))) return;
      try { toast((await command(["ACL", "DELUSER", user])) ? `${text(user)} is deleted.` : `${text(user)} did not exist any more.`); load(); } catch (e) { toast(e.message, "bad"); }
    };
    // A line is: user, its name, its rules. The name may have any bytes but a space.
    const nameOf = (line) => { const data = unwire(line); return wire(data.subarray(5, data.indexOf(0x20, 5))); };
    const load = async () => {
      try {
        const [all, me] = (await commands([["ACL", "LIST"], ["ACL", "WHOAMI"]])).map((r) => { if (r.error) throw new Error(r.error); return r.result; });
        const rows = all.map((line) => ({ name: nameOf(line), on: text(line).split(" ")[2] === "on", line }));
        put(list, table([
          { name: "User", cell: (r) => [h("b", {}, shown(r.name, { max: 80 })), r.name === me ? h("span", { class: "muted" }, " (you)") : ""] },
          { name: "State", class: "nowrap", cell: (r) => h("span", { class: `badge ${r.on ? "good" : ""}` }, r.on ? "On" : "Off") },
          { name: "Rules", cell: (r) => h("span", { class: "mono" }, shown(rules(r.line), { max: 2000 })) },
          { name: "", class: "end", cell: (r) => r.name !== "default" && [button("Edit", () => { name.value = text(r.name); rule.focus(); }, { class: "small" }), " ", button("Delete", () => remove(r.name), { class: "small", "aria-label": `Delete ${text(r.name)}` })] },
        ], rows, { caption: "Users" }));
      } catch (e) { failed(list, e); }
      try {
        const log = (await command(["ACL", "LOG", "50"])).map(asMap);
        put(denied, table([
          { name: "Before", class: "nowrap", cell: (r) => `${seconds(+r["age-seconds"])} ago` }, { name: "User", cell: (r) => shown(r.username, { max: 60 }) }, { name: "Why", cell: (r) => String(r.reason) },
          { name: "What", cell: (r) => shown(r.object, { max: 120 }) }, { name: "Where", cell: (r) => String(r.context) }, { name: "Times", class: "num", cell: (r) => String(r.count) },
        ], log, { caption: "Denials", empty: ["Nobody was refused", "Commands, keys and logins that the rules forbid appear here."] }));
      } catch (e) { failed(denied, e); }
    };
    load();
  },
};
