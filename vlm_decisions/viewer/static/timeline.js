// The answers of the last hours, a band for each question, under one cursor.

import { $, attribute, h, say } from "./dom.js";
import { probability, time } from "./format.js";
import { request } from "./live.js";

const AGAIN_MS = 5000;
const WIDTH = 1200; // pixels of a band's canvas; the page makes it as wide as there is room
const OPTIONS = ["--option", "--s1", "--s2", "--s5", "--s0", "--s3"]; // in turn, by the option's place
const COLOURS = { yes: "--yes", no: "--band-no", uncertain: "--band-uncertain", unknown: "--sunk" };

/** The step of a band that holds at `t`, or null before the first. */
export function stepAt(band, t) {
  let found = null;
  for (const step of band) {
    if (step[0] > t) break;
    found = step;
  }
  return found;
}

class Band {
  constructor(id) {
    this.canvas = h("canvas", { width: WIDTH, height: 1, role: "img" });
    this.value = h("span", { class: "value small" });
    this.element = h("li", {}, h("span", { class: "mono name", title: id }, id), this.canvas, this.value);
  }

  draw(band, from, to, colour) {
    this.band = band;
    const options = [...new Set(band.map(([, answer]) => answer))].filter((answer) => !(answer in COLOURS)).sort();
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, WIDTH, 1);
    const held = {};
    band.forEach(([t, answer], i) => {
      const [begin, end] = [Math.max(t, from), Math.min(band[i + 1]?.[0] ?? to, to)];
      if (end <= begin) return;
      held[answer] = (held[answer] ?? 0) + end - begin;
      pen.fillStyle = colour(COLOURS[answer] ?? OPTIONS[options.indexOf(answer) % OPTIONS.length]);
      const x = ((begin - from) / (to - from)) * WIDTH;
      pen.fillRect(x, 0, Math.max(1, ((end - begin) / (to - from)) * WIDTH), 1);
    });
    const all = Object.values(held).reduce((sum, s) => sum + s, 0);
    attribute(this.canvas, "aria-label", all ? Object.entries(held).sort((a, b) => b[1] - a[1])
      .map(([answer, s]) => `${answer} ${Math.round((100 * s) / all)} %`).join(", ") : "no answers");
  }

  at(t) {
    const step = stepAt(this.band ?? [], t);
    say(this.value, step ? `${step[1]}${step[2] == null ? "" : ` ${probability(step[2])}`}` : "–");
  }
}

export class Timeline {
  constructor() {
    this.box = $("timeline");
    this.cursor = $("timeline-cursor");
    this.bands = new Map();
    this.box.addEventListener("toggle", () => this.fetch());
    this.cursor.addEventListener("input", () => this.point());
    for (const input of document.getElementsByName("span")) input.addEventListener("change", () => this.draw());
    const follow = (event) => {
      const canvas = event.target.closest("canvas");
      if (!canvas || (event.type === "pointermove" && !event.buttons)) return;
      const { left, width } = canvas.getBoundingClientRect();
      this.cursor.value = Math.round((1000 * (event.clientX - left)) / width);
      this.point();
    };
    $("bands").addEventListener("pointerdown", follow);
    $("bands").addEventListener("pointermove", follow);
    setInterval(() => { if (!document.hidden) this.fetch(); }, AGAIN_MS);
  }

  async fetch() {
    if (!this.box.open) return;
    try {
      this.news = await request("GET", "/api/timeline");
    } catch {
      return; // the state of the connection is said elsewhere
    }
    this.draw();
  }

  draw() {
    if (!this.news) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name);
    this.to = this.news.now;
    this.from = this.to - Number(document.querySelector("input[name=span]:checked").value);
    const ids = Object.keys(this.news.bands);
    if ([...this.bands.keys()].join() !== ids.join()) {
      this.bands = new Map(ids.map((id) => [id, new Band(id)]));
      $("bands").replaceChildren(...[...this.bands.values()].map((band) => band.element));
    }
    for (const [id, band] of this.bands) band.draw(this.news.bands[id], this.from, this.to, colour);
    this.point();
  }

  /** Show what was known at the cursor. */
  point() {
    if (!this.news) return;
    const share = this.cursor.value / 1000;
    const t = this.from + share * (this.to - this.from);
    $("bands").style.setProperty("--at", share);
    const text = share === 1 ? `now, ${time(t)}` : time(t);
    say($("timeline-at"), text);
    attribute(this.cursor, "aria-valuetext", text);
    for (const band of this.bands.values()) band.at(t);
  }
}
