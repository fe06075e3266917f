// A minute of a probability as a small line; gaps where nothing was known.

import { attribute, svg } from "./dom.js";
import { levels } from "./kinds.js";

export const SPAN_S = 60;
const STEP_S = 0.5;
const WIDTH = 120;
const HEIGHT = 28;
const EDGE = 2;

const x = (age) => WIDTH - (age / SPAN_S) * WIDTH;
const y = (p) => HEIGHT - EDGE - p * (HEIGHT - 2 * EDGE);

export class Spark {
  constructor() {
    this.points = []; // [seconds on the page's clock, p or null]
    this.lines = svg("g");
    this.area = svg("path", { class: "area" });
    this.line = svg("path", { class: "line", "vector-effect": "non-scaling-stroke" });
    this.element = svg("svg", {
      class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
      role: "img", "aria-label": "no values yet",
    }, this.lines, this.area, this.line);
    this.labelled = 0;
  }

  thresholds(question) {
    this.lines.replaceChildren(...levels(question).map((p) =>
      svg("line", { class: "threshold", x1: 0, x2: WIDTH, y1: y(p), y2: y(p) })));
  }

  fill(history, now) {
    this.points = history.map(([age, p]) => [now + age, p]);
  }

  add(p, now) {
    const last = this.points.at(-1);
    if (last && now - last[0] < STEP_S && (last[1] === null) === (p === null)) last[1] = p;
    else this.points.push([now, p]);
  }

  draw(now) {
    while (this.points.length && now - this.points[0][0] > SPAN_S) this.points.shift();
    const runs = [];
    let run = null;
    let before = null;
    for (const [t, p] of this.points) {
      if (p === null) run = null;
      else {
        if (!run || t - before > 5) runs.push((run = []));
        run.push([x(now - t), y(p)]);
        before = t;
      }
    }
    const last = this.points.at(-1);
    if (run?.length && last && now - last[0] < 1) run.push([WIDTH, run.at(-1)[1]]);
    const trace = (points) => points.map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`).join("L");
    const lines = runs.filter((points) => points.length > 1);
    this.line.setAttribute("d", lines.map((points) => `M${trace(points)}`).join(""));
    this.area.setAttribute("d", lines.map((points) =>
      `M${points[0][0].toFixed(1)} ${HEIGHT}L${trace(points)}L${points.at(-1)[0].toFixed(1)} ${HEIGHT}Z`).join(""));
    if (now - this.labelled > 5) {
      this.labelled = now;
      const known = this.points.map(([, p]) => p).filter((p) => p !== null);
      attribute(this.element, "aria-label", known.length
        ? `between ${Math.min(...known).toFixed(2)} and ${Math.max(...known).toFixed(2)}`
        : "no values in the last minute");
    }
  }
}
