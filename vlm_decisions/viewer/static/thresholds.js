// The two thresholds on the recent values: dragged, moved by keys, and tried on what has been seen.

import { attribute, h, say, svg } from "./dom.js";
import { kindOf } from "./kinds.js";
import { SPAN_S } from "./spark.js";

const WIDTH = 400;
const HEIGHT = 110;
const STEP = 0.01;

const y = (p) => HEIGHT * (1 - p);
const round = (p) => Math.round(Math.min(1, Math.max(0, p)) / STEP) * STEP;

/** How often an answer changes along `points` [t, p or null] with these thresholds. */
export function changes(points, enter, exit) {
  let answer = null;
  let count = 0;
  for (const [, p] of points) {
    if (p === null) continue;
    const next = p >= enter ? "yes" : p <= exit ? "no" : answer;
    if (answer !== null && next !== answer) count += 1;
    answer = next;
  }
  return count;
}

const times = (n) => (n === 1 ? "once" : n === 2 ? "twice" : `${n} times`);

export class Thresholds {
  constructor(box, note, enter, exit) {
    Object.assign(this, { box, note, points: [], inputs: { enter, exit } });
    this.line = svg("path", { class: "line", "vector-effect": "non-scaling-stroke" });
    this.handles = Object.fromEntries([["enter", "yes"], ["exit", "no"]].map(([name, label]) => {
      const handle = h("div", {
        class: `handle ${name}`, role: "slider", tabindex: "0", "aria-label": `Threshold for ${label}`, "aria-orientation": "vertical",
        "aria-valuemin": "0", "aria-valuemax": "1",
      }, h("span", {}, label));
      handle.addEventListener("pointerdown", (event) => {
        handle.setPointerCapture(event.pointerId);
        handle.focus();
        event.preventDefault();
      });
      handle.addEventListener("pointermove", (event) => {
        if (!handle.hasPointerCapture(event.pointerId)) return;
        const { top, height } = this.plot.getBoundingClientRect();
        this.set(name, round(1 - (event.clientY - top) / height));
      });
      handle.addEventListener("keydown", (event) => {
        const step = { ArrowUp: STEP, ArrowRight: STEP, ArrowDown: -STEP, ArrowLeft: -STEP, PageUp: 0.1, PageDown: -0.1 };
        if (!(event.key in step)) return;
        event.preventDefault();
        this.set(name, round(Number(this.inputs[name].value) + step[event.key]));
      });
      this.inputs[name].addEventListener("input", () => this.draw());
      return [name, handle];
    }));
    this.plot = h("div", { class: "plot" }, svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true",
    }, this.line), this.handles.enter, this.handles.exit);
    box.append(this.plot);
  }

  /** Show a question with its recent values: [[seconds, p or null], ...], the newest last. */
  show(question, points) {
    this.question = question;
    this.points = points.filter((point) => point);
    const shown = kindOf(question).chart;
    this.box.hidden = this.note.hidden = !shown;
    if (!shown) return;
    const end = this.points.at(-1)?.[0] ?? 0;
    let drawn = "";
    let pen = "M";
    for (const [t, p] of this.points) {
      if (p !== null) drawn += `${pen}${(WIDTH * (1 - (end - t) / SPAN_S)).toFixed(1)} ${y(p).toFixed(1)}`;
      pen = p === null ? "M" : "L";
    }
    this.line.setAttribute("d", drawn);
    this.draw();
  }

  set(name, value) {
    this.inputs[name].value = Number(value.toFixed(2));
    this.draw();
  }

  draw() {
    const [enter, exit] = ["enter", "exit"].map((name) => Number(this.inputs[name].value));
    for (const [name, p] of [["enter", enter], ["exit", exit]]) {
      this.handles[name].style.setProperty("--at", Math.min(1, Math.max(0, p)));
      attribute(this.handles[name], "aria-valuenow", p);
    }
    const known = this.points.filter(([, p]) => p !== null).length;
    const now = changes(this.points, this.question.enter, this.question.exit);
    say(this.note, known < 2 ? "No values in the last minute to try them on."
      : !(enter > exit) ? "“Yes from” must be above “No up to”."
        : `In the last minute the answer would have changed ${times(changes(this.points, enter, exit))}`
          + (enter === this.question.enter && exit === this.question.exit ? "." : `; with the old values ${times(now)}.`));
  }
}
