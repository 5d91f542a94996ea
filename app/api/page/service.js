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

  #headers(more = {}) {
    const { key } = this.identity();
    return key ? { ...more, Authorization: `Bearer ${key}` } : more;
  }

  #address(path, query = {}) {
    const { user } = this.identity();
    const search = new URLSearchParams(user ? { ...query, user_id: user } : query).toString();
    return search ? `${path}?${search}` : path;
  }

  async #checked(response) {
    if (response.ok) return response;
    const problem = await response.json().catch(() => ({}));
    throw new Refusal(response.status, problem);
  }

  // Gives a JSON answer, or null for 204.
  async get(path, query) {
    const response = await this.#checked(await fetch(this.#address(path, query), { headers: this.#headers() }));
    return response.status === 204 ? null : response.json();
  }

  // Sends a body by POST or PATCH, and gives the JSON answer.
  async send(method, path, body = {}) {
    return (await this.#sent(method, path, body, "application/json")).json();
  }

  async #sent(method, path, body, accept) {
    const { user } = this.identity();
    const headers = this.#headers({ "Content-Type": "application/json", Accept: accept });
    const text = JSON.stringify(user ? { ...body, user_id: user } : body);
    return this.#checked(await fetch(path, { method, headers, body: text }));
  }

  async erase(path) {
    await this.#checked(await fetch(this.#address(path), { method: "DELETE", headers: this.#headers() }));
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
    const headers = this.#headers({ Accept: "text/event-stream" });
    if (mark.last) headers["Last-Event-ID"] = mark.last;
    const path = `/v1/streams/${encodeURIComponent(mark.stream)}/events`;
    const response = await this.#checked(await fetch(this.#address(path), { headers }));
    return response.status === 204 ? null : response;
  }
}
