// The live connection: messages in, acknowledged one by one, and again from the start if it ends.

const AGAIN_MS = [500, 1000, 2000, 4000];

export class Live {
  /** handlers: hello(message), state(message), picture(blob) -> promise, closed(reason, againMs) */
  constructor(handlers) {
    this.handlers = handlers;
    this.failures = 0;
    this.watched = null;
    this.open();
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.socket = new WebSocket(`${scheme}//${location.host}/live`);
    this.socket.binaryType = "blob";
    this.socket.onopen = () => this.send({ watch: this.watched });
    this.socket.onmessage = (event) => this.take(event.data);
    this.socket.onclose = (event) => {
      const wait = AGAIN_MS[Math.min(this.failures++, AGAIN_MS.length - 1)];
      this.handlers.closed(event.reason, wait);
      setTimeout(() => this.open(), wait);
    };
  }

  async take(data) {
    if (data instanceof Blob) {
      await this.handlers.picture(data);
      this.send({ got: "picture" });
      return;
    }
    const message = JSON.parse(data);
    this.failures = 0;
    if (message.type === "hello") this.handlers.hello(message);
    else {
      this.handlers.state(message);
      this.send({ got: "state" });
    }
  }

  watch(channel) {
    this.watched = channel;
    this.send({ watch: channel });
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
}

/** Send a request; returns the reply, or throws an Error with the server's words and `field`. */
export async function request(method, path, body) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Error("The viewer does not answer.");
  }
  let reply = {};
  try {
    reply = await response.json();
  } catch { /* said below */ }
  if (!response.ok) {
    const error = new Error(reply.error || `The viewer answered ${response.status}.`);
    error.field = reply.field;
    throw error;
  }
  return reply;
}
