// What is said in a chat: stored messages, and what a stream brings, in one list.

import { element } from "/page/elements.js";

export class Transcript {
  #log;
  #reply = null;

  constructor(log) {
    this.#log = log;
  }

  clear() {
    this.#log.replaceChildren();
    this.#reply = null;
  }

  hint(text) {
    this.#log.replaceChildren(element("p", { class: "hint" }, text));
  }

  user(text) {
    this.#add(element("div", { class: "message user" }, text));
  }

  // Shows a message as the service stores it.
  stored(message) {
    const text = textOf(message.content);
    if (message.role === "user") this.user(text);
    else if (message.role === "tool") this.tool(`Result of ${message.name || message.tool_call_id}`, message.content);
    else if (message.role === "assistant") {
      if (text) this.#add(element("div", { class: "message assistant" }, text));
      for (const call of message.tool_calls) this.tool(`Asks for ${call.name}`, call.arguments);
    } else if (text) this.tool(message.role, text);
  }

  tool(title, value) {
    const shown = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    this.#add(element("details", { class: "tool" }, element("summary", {}, title), element("pre", {}, shown ?? "")));
  }

  failure(text, code) {
    this.finish();
    this.#add(element("div", { class: "message failed" }, code ? `${text} (${code})` : text));
  }

  // Adds to the reply that is being written.
  delta(text) {
    this.#reply ??= this.#add(element("div", { class: "message assistant running" }));
    this.#reply.append(text);
    this.#keepInView();
  }

  // Puts the whole reply in the place of what was streamed.
  whole(text) {
    if (!text) return;
    this.#reply ??= this.#add(element("div", { class: "message assistant" }));
    this.#reply.textContent = text;
    this.#keepInView();
  }

  finish() {
    this.#reply?.classList.remove("running");
    this.#reply = null;
  }

  form(form) {
    this.finish();
    this.#add(form);
  }

  withoutForms() {
    for (const form of this.#log.querySelectorAll("form.pause")) form.remove();
  }

  #add(made) {
    this.#log.querySelector(".hint")?.remove();
    this.#log.append(made);
    this.#log.scrollTop = this.#log.scrollHeight;
    return made;
  }

  #keepInView() {
    const below = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight;
    if (below < 120) this.#log.scrollTop = this.#log.scrollHeight;
  }
}

function textOf(content) {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content);
  return content.map((part) => (part.type === "text" ? part.text : `[${part.type}]`)).join("\n");
}
