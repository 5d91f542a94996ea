// What the console asks of the service: JSON calls, operations as events, and reading on after a cut.

import { readEvents } from "/page/events.js";

const FIRST_WAIT = 300;
const LONGEST_WAIT = 5000;

// A refusal: the fields of the problem document, or the status alone when there is none.
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail || `The service answered ${status}.`);
    this.status = status;
    this.code = problem.code || "";
    this.problem = problem;
  }
}

export class Service {
  // `identity()` gives {key, user}: both may be empty.
  constructor(identity) {
    this.identity = identity;
  }

  // Where another key was kept meanwhile, the refusal of the one before says nothing: it is asked again.
  async #ask(method, path, { query = {}, headers = {}, body } = {}) {
    const { key, user } = this.identity();
    const owner = user ? { user_id: user } : {};
    const search = body ? "" : new URLSearchParams({ ...query, ...owner }).toString();
    const response = await fetch(search ? `${path}?${search}` : path, {
      method,
      headers: key ? { ...headers, Authorization: `Bearer ${key}` } : headers,
      body: body && JSON.stringify({ ...body, ...owner }),
    });
    if (response.ok) return response;
    const problem = await response.json().catch(() => ({}));
    if (response.status === 401 && key !== this.identity().key) return this.#ask(method, path, { query, headers, body });
    throw new Refusal(response.status, problem);
  }

  // Gives a JSON answer, or null for 204.
  async get(path, query) {
    const response = await this.#ask("GET", path, { query });
    return response.status === 204 ? null : response.json();
  }

  // Sends a body by POST or PATCH, and gives the JSON answer.
  async send(method, path, body = {}) {
    return (await this.#sent(method, path, body, "application/json")).json();
  }

  #sent(method, path, body, accept) {
    return this.#ask(method, path, { headers: { "Content-Type": "application/json", Accept: accept }, body });
  }

  async erase(path) {
    await this.#ask("DELETE", path);
  }

  // Posts what starts an operation and gives all its events, over as many connections as it takes.
  async *operate(path, body, mark) {
    const response = await this.#sent("POST", path, body, "text/event-stream");
    mark.stream = response.headers.get("X-Stream-Id");
    mark.conversation = response.headers.get("X-Conversation-Id");
    yield* this.#whole(response, mark);
  }

  // Gives the events of a stream after `mark.last`, until its end.
  async *follow(mark) {
    yield* this.#whole(null, mark);
  }

  // `mark` is {stream, last, onCut}: where the reading stands. A response that closes after an `end` is whole; one that
  // closes or breaks before it was cut, and is read on from the last event.
  async *#whole(response, mark) {
    let wait = FIRST_WAIT;
    for (;;) {
      let ended = false;
      try {
        response ??= await this.#reopen(mark);
        if (response === null) return;
        for await (const event of readEvents(response)) {
          wait = FIRST_WAIT;
          if (event.id) mark.last = event.id;
          ended = event.event === "end";
          yield event;
        }
        if (ended) return;
      } catch (error) {
        if (error instanceof Refusal && error.status < 500 && error.status !== 429) throw error;
      }
      response = undefined;
      mark.onCut?.();
      await new Promise((resume) => setTimeout(resume, wait));
      wait = Math.min(2 * wait, LONGEST_WAIT);
    }
  }

  // Gives null when nothing follows what was read.
  async #reopen(mark) {
    const headers = { Accept: "text/event-stream" };
    if (mark.last) headers["Last-Event-ID"] = mark.last;
    const response = await this.#ask("GET", `/v1/streams/${encodeURIComponent(mark.stream)}/events`, { headers });
    return response.status === 204 ? null : response;
  }
}
