// Server-Sent Events over fetch: a parser that takes the text as it is cut, and the reading of one response.

// Splits text into events. An event is {id, event, data}; comments and fields without meaning are left out.
export class EventParser {
  #rest = "";
  #event = "";
  #id = "";
  #data = [];

  // Takes a piece of text, cut anywhere; gives the events that are complete.
  push(text) {
    const found = [];
    this.#rest += text;
    for (;;) {
      const stop = this.#rest.search(/[\r\n]/);
      // A CR at the very end may be half of a CRLF: wait for what comes.
      if (stop < 0 || (this.#rest[stop] === "\r" && stop === this.#rest.length - 1)) return found;
      const line = this.#rest.slice(0, stop);
      this.#rest = this.#rest.slice(this.#rest.startsWith("\r\n", stop) ? stop + 2 : stop + 1);
      if (line === "") this.#finish(found);
      else this.#take(line);
    }
  }

  #take(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.#event = value;
    else if (name === "id") this.#id = value;
    else if (name === "data") this.#data.push(value);
  }

  #finish(found) {
    if (this.#data.length) found.push({ id: this.#id, event: this.#event || "message", data: this.#data.join("\n") });
    this.#event = "";
    this.#data = [];
  }
}

// Gives a response's events until it ends or breaks; the caller tells by the event `end` whether it was whole.
export async function* readEvents(response) {
  const parser = new EventParser();
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
