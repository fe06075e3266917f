// The thresholds on the recent values: dragged, moved by keys, and tried on what has been seen.

import { attribute, h, say, svg } from "./dom.js";
import { kindOf } from "./kinds.js";
import { SPAN_S } from "./spark.js";

const WIDTH = 400;
const HEIGHT = 110;
const STEP = 0.01; // of the height

const y = (share) => HEIGHT * (1 - share);
const round = (share) => Math.round(Math.min(1, Math.max(0, share)) / STEP) * STEP;

/**
 * How often an answer changes along `points` [t, value or null]. `bands`: [down, up] of each
 * threshold, in rising order: the answer rises over it at `up` and falls below it at `down`.
 */
export function changes(points, bands) {
  let held = null;
  let count = 0;
  for (const [, value] of points) {
    if (value === null) continue;
    const least = bands.filter(([, up]) => value >= up).length;
    const most = bands.filter(([down]) => value > down).length;
    const next = held === null ? (least === most ? least : null) : Math.min(Math.max(held, least), most);
    if (held !== null && next !== held) count += 1;
    held = next;
  }
  return count;
}

const times = (n) => (n === 1 ? "once" : n === 2 ? "twice" : `${n} times`);

export class Thresholds {
  /** `enter`, `exit`: fields of the two thresholds; `levels`: field of those between the levels of a score. */
  constructor(box, note, enter, exit, levels) {
    Object.assign(this, { box, note, points: [], enter, exit, levels, handles: [] });
    this.line = svg("path", { class: "line", "vector-effect": "non-scaling-stroke" });
    this.plot = h("div", { class: "plot" }, svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true",
    }, this.line));
    box.append(this.plot);
    for (const input of [enter, exit, levels]) input.addEventListener("input", () => this.draw());
  }

  /** A line to be moved: `get()` and `set(value)` its value, from `low` to `high`. */
  handle(name, label, text, low, high, get, set) {
    const element = h("div", {
      class: `handle ${name}`, role: "slider", tabindex: "0", "aria-label": label, "aria-orientation": "vertical",
      "aria-valuemin": low, "aria-valuemax": high,
    }, h("span", {}, text));
    const share = () => (get() - low) / (high - low);
    const move = (to) => {
      set(Number((low + round(to) * (high - low)).toFixed(2)));
      this.draw();
    };
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      element.focus();
      event.preventDefault();
    });
    element.addEventListener("pointermove", (event) => {
      if (!element.hasPointerCapture(event.pointerId)) return;
      const { top, height } = this.plot.getBoundingClientRect();
      move(1 - (event.clientY - top) / height);
    });
    element.addEventListener("keydown", (event) => {
      const step = { ArrowUp: STEP, ArrowRight: STEP, ArrowDown: -STEP, ArrowLeft: -STEP, PageUp: 0.1, PageDown: -0.1 };
      if (!(event.key in step)) return;
      event.preventDefault();
      move(share() + step[event.key]);
    });
    return { element, get, share };
  }

  /** Show a question with its recent values: [[seconds, share of the height or null], ...], the newest last. */
  show(question, points) {
    this.question = question;
    this.points = points.filter((point) => point);
    const shown = kindOf(question).chart || question.values.length > 0;
    this.box.hidden = this.note.hidden = !shown;
    for (const { element } of this.handles) element.remove();
    if (!shown) return;
    this.handles = question.values.length ? this.between(question) : [
      this.handle("enter", "Threshold for yes", "yes", 0, 1, () => Number(this.enter.value), (value) => { this.enter.value = value; }),
      this.handle("exit", "Threshold for no", "no", 0, 1, () => Number(this.exit.value), (value) => { this.exit.value = value; }),
    ];
    this.plot.append(...this.handles.map(({ element }) => element));
    const end = this.points.at(-1)?.[0] ?? 0;
    let drawn = "";
    let pen = "M";
    for (const [t, share] of this.points) {
      if (share !== null) drawn += `${pen}${(WIDTH * (1 - (end - t) / SPAN_S)).toFixed(1)} ${y(share).toFixed(1)}`;
      pen = share === null ? "M" : "L";
    }
    this.line.setAttribute("d", drawn);
    this.draw();
  }

  /** The handles of a score: one between each two levels. */
  between({ options, values }) {
    return values.slice(1).map((_, i) => this.handle(
      "", `Threshold between ${options[i]} and ${options[i + 1]}`, options[i + 1], values[0], values.at(-1), () => this.levelled()[i],
      (value) => { this.levels.value = this.levelled().map((one, at) => (at === i ? value : one)).join(", "); }));
  }

  /** The thresholds between the levels: those in the field, or half way where there are not as many. */
  levelled() {
    const given = this.levels.value.split(/[\s,;]+/).filter(Boolean).map(Number);
    return given.length === this.question.values.length - 1 && given.every(Number.isFinite) ? given : half(this.question.values);
  }

  draw() {
    const question = this.question;
    if (!question || this.box.hidden) return;
    for (const handle of this.handles) {
      handle.element.style.setProperty("--at", Math.min(1, Math.max(0, handle.share())));
      attribute(handle.element, "aria-valuenow", Number(handle.get().toFixed(2)));
    }
    const [enter, exit] = [Number(this.enter.value), Number(this.exit.value)];
    const { values } = question;
    const points = values.length
      ? this.points.map(([t, share]) => [t, share === null ? null : values[0] + share * (values.at(-1) - values[0])]) : this.points;
    const known = points.filter(([, value]) => value !== null).length;
    const levels = values.length ? this.levelled() : [];
    const wrong = !(enter > exit) ? "“Yes from” must be above “No up to”."
      : levels.some((level, i) => i && level <= levels[i - 1]) ? "The thresholds must rise." : "";
    const now = changes(points, bands(question, enter, exit, levels));
    const old = changes(points, bands(question, question.enter, question.exit, question.thresholds.length ? question.thresholds : half(values)));
    const same = enter === question.enter && exit === question.exit
      && (!values.length || levels.join() === (question.thresholds.length ? question.thresholds : half(values)).join());
    say(this.note, known < 2 ? "No values in the last minute to try them on." : wrong
      || `In the last minute the answer would have changed ${times(now)}${same ? "." : `; with the old values ${times(old)}.`}`);
  }
}

const half = (values) => values.slice(1).map((value, i) => (value + values[i]) / 2);

/** Where an answer rises and falls: see `changes`. */
function bands({ values }, enter, exit, levels) {
  if (!values.length) return [[exit, enter]];
  const width = (enter - exit) / 2;
  return levels.map((at, i) => [at - width * (values[i + 1] - values[i]), at + width * (values[i + 1] - values[i])]);
}
