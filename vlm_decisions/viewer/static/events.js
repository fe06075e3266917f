// What happened, newest first.

import { $, h } from "./dom.js";
import { time } from "./format.js";

const SHOWN = 100;
const KINDS = { answer: "answer", unknown: "unknown", answered: "answered", camera: "camera", event: "event" };

export class Events {
  constructor() {
    this.list = $("events");
    this.items = new Map();
    $("aloud").addEventListener("change", ({ target }) => {
      this.list.setAttribute("aria-live", target.checked ? "polite" : "off");
    });
  }

  clear() {
    this.items.clear();
    this.list.replaceChildren();
  }

  take(events) {
    for (const event of events) {
      const who = event.ids.length > 3
        ? [h("span", {}, `${event.ids.length} questions`)]
        : event.ids.flatMap((id, i) => [i ? ", " : "", h("span", { class: "mono" }, id)]);
      const item = h("li", { "data-level": event.level, "data-kind": KINDS[event.kind] ?? "other" },
        h("time", { datetime: new Date(event.t * 1000).toISOString() }, time(event.t)),
        h("span", { title: event.ids.join(", ") }, ...who, " ", event.text));
      const old = this.items.get(event.n);
      if (old) old.replaceWith(item);
      else this.list.prepend(item);
      this.items.set(event.n, item);
    }
    while (this.list.childElementCount > SHOWN) this.list.lastElementChild.remove();
    for (const n of [...this.items.keys()].slice(0, -SHOWN)) this.items.delete(n);
    $("no-events").hidden = this.list.childElementCount > 0;
  }
}
