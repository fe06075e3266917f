// What happened, newest first.

import { $, h } from "./dom.js";
import { time } from "./format.js";

const SHOWN = 100;
const CHIPS = 3;
const CHIP_MS = 8000;

export class Events {
  constructor() {
    this.list = $("events");
    this.items = new Map();
    $("aloud").addEventListener("change", ({ target }) => {
      this.list.setAttribute("aria-live", target.checked ? "polite" : "off");
    });
  }

  /** Show over the picture what is of this view; of none, what is of all. */
  view(name) {
    this.of = name ? `${name}/` : "";
    $("chips").replaceChildren();
  }

  clear() {
    this.items.clear();
    this.list.replaceChildren();
  }

  /** Take events, new ones and those that go on; `fresh`: they are the past, as a page finds it. */
  take(events, fresh) {
    const shown = events.filter(({ ids }) => !this.of || ids.some((id) => id.startsWith(this.of) || !id.includes("/")));
    if (!fresh) for (const event of shown.slice(-CHIPS)) this.chip(event);
    for (const event of events) {
      const who = event.ids.length > 3
        ? [h("span", {}, `${event.ids.length} questions`)]
        : event.ids.flatMap((id, i) => [i ? ", " : "", h("span", { class: "mono" }, id)]);
      const item = h("li", { "data-level": event.level, "data-kind": event.kind },
        h("time", { datetime: new Date(event.t * 1000).toISOString() }, time(event.t)),
        h("span", { title: event.ids.join(", ") }, ...who, " ", h("span", { class: "what" }, event.text)));
      const old = this.items.get(event.n);
      if (old) old.replaceWith(item);
      else this.list.prepend(item);
      this.items.set(event.n, item);
    }
    while (this.list.childElementCount > SHOWN) this.list.lastElementChild.remove();
    for (const n of [...this.items.keys()].slice(0, -SHOWN)) this.items.delete(n);
    $("no-events").hidden = this.list.childElementCount > 0;
  }

  /** Show an event over the picture for a while. */
  chip(event) {
    const chip = h("li", { "data-level": event.level, "data-n": event.n },
      h("span", { class: "mono" }, event.ids.length > 1 ? `${event.ids.length} questions` : event.ids[0]), " ", event.text);
    const chips = $("chips");
    const old = [...chips.children].find((other) => other.dataset.n === String(event.n));
    if (old) old.replaceWith(chip);
    else chips.append(chip);
    while (chips.childElementCount > CHIPS) chips.firstElementChild.remove();
    setTimeout(() => chip.remove(), CHIP_MS);
  }
}
