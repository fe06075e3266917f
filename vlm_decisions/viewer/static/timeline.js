// The answers of the last hours, a band for each question, under one cursor; truth beside them.

import { $, attribute, h, say } from "./dom.js";
import { probability, time } from "./format.js";
import { request } from "./live.js";
import { Moment } from "./moment.js";

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

/** Draw a band [[t, answer], ...] from `from` to `to`; `options` are in the order of their colours. */
function paint(canvas, band, from, to, colour, options) {
  const pen = canvas.getContext("2d");
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
  return all ? Object.entries(held).sort((a, b) => b[1] - a[1])
    .map(([answer, s]) => `${answer} ${Math.round((100 * s) / all)} %`).join(", ") : "no answers";
}

class Band {
  constructor(id) {
    const canvas = (kind) => h("canvas", { class: kind, width: WIDTH, height: 1, role: "img", "data-id": id });
    this.canvas = canvas(null);
    this.truth = canvas("truth"); // shown where the truth is told
    this.value = h("span", { class: "value small" });
    this.score = h("span", { class: "score small muted" });
    this.element = h("li", {}, h("span", { class: "mono name", title: id }, id),
      h("span", { class: "strips" }, this.canvas), h("span", { class: "values" }, this.value, this.score));
  }

  /** `truth`: what was right, as a band, or undefined; `score`: [right answers, answers judged]. */
  draw(band, truth, score, from, to, colour) {
    this.band = band;
    this.known = truth;
    const options = [...new Set([...band, ...truth ?? []].map(([, answer]) => answer))].filter((answer) => !(answer in COLOURS)).sort();
    attribute(this.canvas, "aria-label", paint(this.canvas, band, from, to, colour, options));
    if (truth) {
      attribute(this.truth, "aria-label", `truth: ${paint(this.truth, truth, from, to, colour, options)}`);
      if (!this.truth.isConnected) this.canvas.after(this.truth);
    } else this.truth.remove();
    const [right, judged] = score ?? [0, 0];
    say(this.score, judged ? `${Math.round((100 * right) / judged)} % right` : "");
    attribute(this.score, "title", judged ? `${right} of ${judged} answers were right; unknown ones are not judged` : "");
  }

  at(t) {
    const step = stepAt(this.band ?? [], t);
    const right = stepAt(this.known ?? [], t)?.[1] ?? "unknown";
    const wrong = step && step[1] !== "unknown" && right !== "unknown" && right !== step[1];
    say(this.value, (step ? `${step[1]}${step[2] == null ? "" : ` ${probability(step[2])}`}` : "–") + (wrong ? `, truth: ${right}` : ""));
    this.value.classList.toggle("wrong", Boolean(wrong));
  }
}

export class Timeline {
  constructor() {
    this.box = $("timeline");
    this.cursor = $("timeline-cursor");
    this.bands = new Map();
    this.moment = new Moment();
    this.box.addEventListener("toggle", () => this.fetch());
    this.cursor.addEventListener("input", () => this.point());
    this.cursor.addEventListener("keydown", ({ key }) => { if (key === "Enter") this.moment.show(this.time(), ""); });
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
    $("bands").addEventListener("click", ({ target }) => {
      const canvas = target.closest("canvas");
      if (canvas) this.moment.show(this.time(), canvas.dataset.id);
    });
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
    const { now, bands, truth, scores } = this.news;
    this.to = now;
    this.from = now - Number(document.querySelector("input[name=span]:checked").value);
    const ids = Object.keys(bands);
    if ([...this.bands.keys()].join() !== ids.join()) {
      this.bands = new Map(ids.map((id) => [id, new Band(id)]));
      $("bands").replaceChildren(...[...this.bands.values()].map((band) => band.element));
    }
    for (const [id, band] of this.bands) band.draw(bands[id], truth[id], scores[id], this.from, this.to, colour);
    $("timeline-truth").hidden = !Object.keys(truth).length;
    this.point();
  }

  /** The time at the cursor: epoch, seconds. */
  time() {
    return this.from + (this.cursor.value / 1000) * (this.to - this.from);
  }

  /** Show what was known at the cursor. */
  point() {
    if (!this.news) return;
    const share = this.cursor.value / 1000;
    const t = this.time();
    $("bands").style.setProperty("--at", share);
    const text = share === 1 ? `now, ${time(t)}` : time(t);
    say($("timeline-at"), text);
    attribute(this.cursor, "aria-valuetext", text);
    for (const band of this.bands.values()) band.at(t);
  }
}
