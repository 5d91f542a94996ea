// The console: one chat at a time. What the page shows is what the service has stored, and what its streams bring.

import { byId, element } from "/page/elements.js";
import { pauseForm } from "/page/pause.js";
import { identity, offerPersonas, openPreferences, persona, tools } from "/page/preferences.js";
import { Refusal, Service } from "/page/service.js";
import { Transcript } from "/page/transcript.js";

const PHASES = { planned: "Preparing…", executing: "Thinking…", degraded: "Going on with less…" };
const VALID = /^[A-Za-z0-9._:-]{1,128}$/;
const service = new Service(identity);
const transcript = new Transcript(byId("log"));
let chat = "";
let untitled = true;
let running = {};
// Grows with every chat that is opened: what belongs to an older one stops.
let epoch = 0;

// Chats ---------------------------------------------------------------------------------------------------------------

function freshName() {
  const random = crypto.getRandomValues(new Uint8Array(8));
  return `chat-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function newChat() {
  location.hash = freshName();
}

async function openChat(id) {
  chat = id;
  epoch += 1;
  localStorage.setItem("fermata.chat", id);
  document.body.classList.remove("chats-open");
  transcript.clear();
  busy(false);
  say("");
  const mine = epoch;
  loading(true);
  const listed = guarded(listChats);
  await guarded(() => showChat(id));
  if (mine === epoch) loading(false);
  await listed;
}

async function showChat(id) {
  const mine = epoch;
  const conversation = await known(`/v1/conversations/${id}`);
  if (mine !== epoch) return;
  untitled = !conversation?.title;
  if (conversation === null) transcript.hint("Nothing has been said here yet.");
  else await showStored(conversation);
}

async function known(path) {
  try {
    return await service.get(path);
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) return null;
    throw error;
  }
}

async function showStored(conversation) {
  const mine = epoch;
  const path = `/v1/conversations/${conversation.conversation_id}`;
  const stream = conversation.active_stream_id ? await known(`/v1/streams/${conversation.active_stream_id}`) : null;
  let cursor = "";
  do {
    const page = await service.get(`${path}/messages`, cursor ? { cursor, limit: 200 } : { limit: 200 });
    if (mine !== epoch) return;
    for (const message of page.items) {
      // What the running turn has said comes again from its stream.
      const comesAgain = stream && message.turn_id === stream.turn_id && message.role !== "user";
      if (!comesAgain) transcript.stored(message);
    }
    cursor = page.next_cursor;
  } while (cursor);
  if (stream) await run((mark) => service.follow(mark), { stream: stream.stream_id });
  else if (conversation.pending_pause_id) await showPause();
}

async function listChats() {
  const page = await service.get("/v1/conversations", { limit: 30 });
  byId("chat-list").replaceChildren(...page.items.map(chatEntry));
}

function chatEntry(conversation) {
  const id = conversation.conversation_id;
  const title = conversation.title || id;
  const open = element("button", { class: "open", type: "button", title: id }, title);
  if (id === chat) open.setAttribute("aria-current", "true");
  open.addEventListener("click", () => (location.hash = id));
  const erase = element("button", { class: "erase", type: "button", "aria-label": `Erase ${title}` }, "×");
  erase.addEventListener("click", () => guarded(() => eraseChat(id, title)));
  return element("li", {}, open, erase);
}

async function eraseChat(id, title) {
  if (!confirm(`Erase ${title} with everything in it?`)) return;
  await service.erase(`/v1/conversations/${id}`);
  if (id === chat) newChat();
  else await listChats();
}

// Operations ----------------------------------------------------------------------------------------------------------

async function send() {
  const text = byId("input").value;
  if (!text.trim()) return;
  const body = { input: text, tools: tools() };
  if (persona()) body.persona_id = persona();
  transcript.withoutForms();
  transcript.user(text);
  byId("input").value = "";
  const path = `/v1/conversations/${chat}`;
  const mark = {};
  await run(
    () => service.operate(`${path}/turns`, body, mark),
    mark,
    () => byId("input").value || (byId("input").value = text),
  );
  await guarded(async () => {
    if (mark.stream && untitled) await service.send("PATCH", path, { title: text.trim().slice(0, 80) });
    untitled = untitled && !mark.stream;
    await listChats();
  });
}

async function showPause() {
  const pause = await service.get(`/v1/conversations/${chat}/pending-request`);
  if (pause === null) return;
  const stream = await service.get(`/v1/streams/${pause.stream_id}`);
  waitForHost(pause, stream.last_event_id);
}

function waitForHost(pause, last) {
  say("Waiting for you.");
  const form = pauseForm(pause, async (results) => {
    const path = `/v1/streams/${pause.stream_id}/tool-results`;
    const mark = { stream: pause.stream_id, last };
    let refused = false;
    await run(
      () => service.operate(path, { pause_id: pause.pause_id, results }, mark),
      mark,
      () => (refused = true),
      () => form.remove(),
    );
    if (refused) throw new Error("refused");
  });
  transcript.form(form);
}

// Shows an operation's events. `refused` is called when it did not start, `started` when its first event is there.
async function run(operation, mark, refused = () => {}, started = () => {}) {
  const mine = epoch;
  let request = null;
  let end = null;
  mark.onCut = () => mine === epoch && say("The connection was cut; reading on…");
  running = mark;
  busy(true);
  problem(null);
  say("Sending…");
  try {
    for await (const event of operation(mark)) {
      if (mine !== epoch) return;
      started();
      const data = JSON.parse(event.data);
      if (event.event === "end") end = data;
      else if (event.event === "tool_call_request" && data.requires_external_tool_result) request = data;
      else show(event.event, data);
    }
  } catch (error) {
    if (mine !== epoch) return;
    transcript.finish();
    refused();
    problem(error);
  }
  if (mine !== epoch) return;
  transcript.finish();
  busy(false);
  say("");
  if (end?.status === "paused" && request) waitForHost(request, mark.last);
  else if (end?.status === "cancelled") say("Cancelled.");
}

function show(type, data) {
  switch (type) {
    case "text_delta":
      transcript.delta(data.text_delta || "");
      say("Answering…");
      break;
    case "system_progress":
      say(data.message);
      break;
    case "metadata_update":
      if (data.updates.execution_lifecycle) say(PHASES[data.updates.execution_lifecycle.phase] || "");
      break;
    case "tool_call_request":
      transcript.finish();
      for (const call of data.tool_calls) transcript.tool(`Uses ${call.name}`, call.arguments);
      break;
    case "tool_result_emission":
      transcript.finish();
      transcript.tool(`Result of ${data.tool_name}`, data.is_success ? data.tool_result : data.error_message);
      break;
    case "final_response":
      transcript.whole(data.final_response_text);
      break;
    case "error":
      transcript.failure(data.message, data.code);
      break;
  }
}

// What the page says about itself ----------------------------------------------------------------------------------------

function say(text) {
  byId("status").textContent = text;
}

function busy(is) {
  byId("send").disabled = is;
  byId("send").hidden = is;
  byId("stop").hidden = !is;
  document.body.toggleAttribute("data-busy", is);
}

// What is said before a chat is on the page would be wiped away with what was there.
function loading(is) {
  byId("send").disabled = is;
}

function problem(error) {
  const box = byId("problem");
  box.hidden = error === null;
  box.replaceChildren();
  if (error === null) return;
  if (error instanceof Refusal && error.status === 401) openPreferences(reload, error.message);
  const unreachable = "The service can't be reached. Is it running?";
  box.append(error instanceof TypeError ? unreachable : error.message);
  if (error instanceof Refusal) box.append(element("code", {}, `${error.status} ${error.code}`));
}

async function guarded(work) {
  try {
    await work();
  } catch (error) {
    problem(error);
  }
}

async function reload() {
  problem(null);
  const opened = openChat(chat);
  await guarded(async () => offerPersonas((await service.get("/v1/personas")).items));
  await opened;
}

// The page's controls ------------------------------------------------------------------------------------------------------

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!byId("send").disabled) send();
});
byId("input").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
});
byId("stop").addEventListener("click", () =>
  guarded(async () => running.stream && service.send("POST", `/v1/streams/${running.stream}/cancel`)),
);
byId("new").addEventListener("click", newChat);
byId("settings").addEventListener("click", () => openPreferences(reload));
byId("menu").addEventListener("click", () => {
  const open = document.body.classList.toggle("chats-open");
  byId("menu").setAttribute("aria-expanded", String(open));
});
window.addEventListener("hashchange", () => {
  const id = location.hash.slice(1);
  if (VALID.test(id)) openChat(id);
});

if (!VALID.test(location.hash.slice(1))) {
  const last = localStorage.getItem("fermata.chat") || "";
  history.replaceState(null, "", `#${VALID.test(last) ? last : freshName()}`);
}
chat = location.hash.slice(1);
reload();
