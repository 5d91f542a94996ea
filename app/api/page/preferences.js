// What the console keeps in the browser: the key for this tab, user, persona and tools for longer.

import { byId, element } from "/page/elements.js";

const WEATHER = [
  {
    name: "get_weather",
    description: "Tell the weather of a city",
    input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];

export const identity = () => ({
  key: sessionStorage.getItem("fermata.key") || "",
  user: localStorage.getItem("fermata.user") || "",
});
export const persona = () => localStorage.getItem("fermata.persona") || "";
export const tools = () => JSON.parse(localStorage.getItem("fermata.tools") || JSON.stringify(WEATHER));

// Opens the dialog; `saved` is called when something was saved. What is typed into one that is open stays.
export function openPreferences(saved, reason = "") {
  const dialog = byId("settings-dialog");
  if (dialog.open) return complain(reason);
  byId("key").value = identity().key;
  byId("user").value = identity().user;
  byId("persona").value = persona();
  byId("tools").value = JSON.stringify(tools(), null, 2);
  complain(reason);
  byId("settings-form").onsubmit = (event) => {
    event.preventDefault();
    if (!save()) return;
    dialog.close();
    saved();
  };
  byId("settings-cancel").onclick = () => dialog.close();
  dialog.showModal();
}

export function offerPersonas(personas) {
  const chosen = persona();
  const options = personas.map((one) =>
    element("option", { value: one.persona_id }, one.is_default ? `${one.name} (the default)` : one.name),
  );
  byId("persona").replaceChildren(element("option", { value: "" }, "The default"), ...options);
  byId("persona").value = chosen;
}

function save() {
  let wanted;
  try {
    wanted = JSON.parse(byId("tools").value || "[]");
  } catch (error) {
    complain(`The tools are not JSON: ${error.message}`);
    return false;
  }
  if (!Array.isArray(wanted)) {
    complain("The tools must be a list.");
    return false;
  }
  keep(sessionStorage, "fermata.key", byId("key").value.trim());
  keep(localStorage, "fermata.user", byId("user").value.trim());
  keep(localStorage, "fermata.persona", byId("persona").value);
  keep(localStorage, "fermata.tools", JSON.stringify(wanted));
  return true;
}

function keep(store, name, value) {
  if (value) store.setItem(name, value);
  else store.removeItem(name);
}

function complain(text) {
  byId("settings-fault").textContent = text;
  byId("settings-fault").hidden = !text;
}
