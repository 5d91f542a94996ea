// The pause as a form: one field for each call that lacks a result, filled with a skeleton, and a box for failures. A call
// that waits for a person's word gets a choice in their place: let it run, as it is or with other arguments, or not.

import { element } from "/page/elements.js";

// `pause` is {pause_id, rationale, tool_calls, missing?}. `answer(results)` is called with what was filled in; it may
// throw, and the form then stays as it is.
export function pauseForm(pause, answer) {
  const calls = pause.tool_calls.filter((call) => !pause.missing || pause.missing.includes(call.id));
  const fields = calls.map((call) => (call.kind === "approval" ? approvalField(call) : callField(call)));
  const noun = calls.every((call) => call.kind === "approval") ? "decision" : "result";
  const send = element("button", { type: "submit" }, calls.length > 1 ? `Send the ${noun}s` : `Send the ${noun}`);
  const form = element(
    "form",
    { class: "pause", "aria-label": "The turn waits for you" },
    element("h2", {}, "The turn waits for you"),
    element("p", { class: "note" }, pause.rationale || (noun === "decision" ? "May these tools be run?" : "Run these tools and send what they give.")),
    ...fields.map((field) => field.element),
    element("div", { class: "row" }, send),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!fields.every((field) => field.check())) return;
    send.disabled = true;
    try {
      await answer(fields.map((field) => field.result()));
    } catch {
      send.disabled = false;
    }
  });
  return form;
}

function callField(call) {
  const id = `call-${call.id}`;
  const skeleton = JSON.stringify({ ...call.arguments, result: "" }, null, 2);
  const output = element("textarea", { id, rows: String(skeleton.split("\n").length + 1), spellcheck: "false" });
  output.value = skeleton;
  const label = element("label", { for: id }, "Result (JSON or text)");
  const failed = element("input", { type: "checkbox", id: `${id}-failed` });
  failed.addEventListener("change", () => {
    label.textContent = failed.checked ? "What went wrong" : "Result (JSON or text)";
    if (failed.checked && output.value === skeleton) output.value = "";
    else if (!failed.checked && output.value === "") output.value = skeleton;
  });
  return {
    element: element(
      "fieldset",
      { class: "call" },
      element("legend", {}, call.name),
      element("pre", { "aria-label": "Arguments" }, JSON.stringify(call.arguments, null, 2)),
      label,
      output,
      element("label", { class: "check", for: `${id}-failed` }, failed, "The call failed"),
    ),
    check: () => true,
    result: () => {
      const told = { tool_call_id: call.id, tool_name: call.name };
      if (!failed.checked) return { ...told, output: valueOf(output.value) };
      return { ...told, output: null, is_error: true, error_message: output.value.trim() || "The call failed." };
    },
  };
}

function approvalField(call) {
  const id = `call-${call.id}`;
  const given = JSON.stringify(call.arguments, null, 2);
  const yes = element("input", { type: "radio", name: id, id: `${id}-yes`, required: "" });
  const no = element("input", { type: "radio", name: id, id: `${id}-no` });
  const args = element("textarea", { id, rows: String(given.split("\n").length + 1), spellcheck: "false" });
  const reason = element("input", { type: "text", id: `${id}-reason`, maxlength: "4096", autocomplete: "off" });
  args.value = given;
  args.addEventListener("input", () => args.setCustomValidity(""));
  const shown = () => {
    args.disabled = no.checked;
    reason.disabled = !no.checked;
  };
  yes.addEventListener("change", shown);
  no.addEventListener("change", shown);
  shown();
  return {
    element: element(
      "fieldset",
      { class: "call" },
      element("legend", {}, call.name),
      element("label", { for: id }, "Arguments (JSON), which you may change"),
      args,
      element("label", { class: "check", for: `${id}-yes` }, yes, "Run it"),
      element("label", { class: "check", for: `${id}-no` }, no, "Don’t run it"),
      element("label", { for: `${id}-reason` }, "Why not (the model reads it)"),
      reason,
    ),
    check: () => {
      if (no.checked || isObject(valueOf(args.value))) return true;
      args.setCustomValidity("Arguments are a JSON object.");
      args.reportValidity();
      return false;
    },
    result: () => {
      const told = { tool_call_id: call.id, tool_name: call.name };
      const why = reason.value.trim();
      if (no.checked) return { ...told, approval: { approved: false, ...(why && { reason: why }) } };
      const changed = valueOf(args.value);
      const same = JSON.stringify(changed) === JSON.stringify(call.arguments);
      return { ...told, approval: { approved: true, ...(!same && { arguments: changed }) } };
    },
  };
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// What reads as JSON is sent as JSON, anything else as the text that it is.
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
