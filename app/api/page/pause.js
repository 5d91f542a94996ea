// The pause as a form: one field for each call that lacks a result, filled with a skeleton, and a box for failures.

import { element } from "/page/elements.js";

// `pause` is {pause_id, rationale, tool_calls, missing?}. `answer(results)` is called with what was filled in; it may
// throw, and the form then stays as it is.
export function pauseForm(pause, answer) {
  const calls = pause.tool_calls.filter((call) => !pause.missing || pause.missing.includes(call.id));
  const fields = calls.map(callField);
  const send = element("button", { type: "submit" }, calls.length > 1 ? "Send the results" : "Send the result");
  const form = element(
    "form",
    { class: "pause", "aria-label": "The turn waits for you" },
    element("h2", {}, "The turn waits for you"),
    element("p", { class: "note" }, pause.rationale || "Run these tools and send what they give."),
    ...fields.map((field) => field.element),
    element("div", { class: "row" }, send),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
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
    result: () => {
      const told = { tool_call_id: call.id, tool_name: call.name };
      if (!failed.checked) return { ...told, output: valueOf(output.value) };
      return { ...told, output: null, is_error: true, error_message: output.value.trim() || "The call failed." };
    },
  };
}

// What reads as JSON is sent as JSON, anything else as the text that it is.
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
