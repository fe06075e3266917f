// Camera health, the time a group takes, what was dropped, and what diagnostics say.

import { $, h, say } from "./dom.js";
import { count, hertz, milliseconds, seconds } from "./format.js";

const CONDITIONS = ["dark", "bright", "blurred", "frozen", "occluded"];
// What a group's time is made of, in order; the rest of the stages is told below them.
const PARTS = { vision: "Vision", heads: "Heads", append: "Append", ask: "Ask", rest: "Rest" };
const OTHERS = {
  intake: "Into the queue", wait: "Wait in the queue", health: "Camera check, per frame",
  tier_1: "Tier 1, until it is out", tier_2: "Tier 2 in all", outside: "Around the model",
};
const DROPS = {
  queue: "queue full", catch_up: "to catch up", unusable: "camera unusable", reset: "time reset",
  late: "late frames", ahead: "stamps ahead", outdated: "outdated answers",
};
const TOTALS = {
  frames: "images", groups: "groups", decisions: "decisions", segments: "windows begun",
  scene_changes: "scene changes", skipped: "questions put off", errors: "errors",
};
const BREAKS = {
  gaps: "gaps in time", resized: "another size", switched: "another camera", rewinds: "time went backwards",
};
const LEVELS = ["good", "warning", "error", "no news"];

/** One quiet line while nothing is wrong with the camera; a chip for each condition that holds. */
export class Health {
  constructor() {
    this.decisions = new Map();
    this.shown = null;
  }

  take(decision) {
    this.decisions.set(decision.id.replace("camera_", ""), decision);
  }

  /** Show the camera of one view, or all of them where it is empty. */
  view(name) {
    this.prefix = name && `${name}/`;
  }

  /** `seen`: whether what is known of the camera is of now. */
  draw(seen) {
    const chosen = [...this.decisions.keys()].filter((name) => name.startsWith(this.prefix ?? ""));
    const answers = (chosen.length ? chosen : CONDITIONS)
      .map((name) => [name, seen ? this.decisions.get(name)?.answer : "unknown"]);
    const wrong = answers.filter(([, answer]) => answer === "yes").map(([name]) => name);
    const good = answers.every(([, answer]) => answer === "no");
    const shown = wrong.length ? wrong : [good ? "good" : "not known"];
    if (this.shown === shown.join()) return;
    this.shown = shown.join();
    $("health").replaceChildren(...shown.map((name) =>
      h("li", { "data-state": wrong.length ? "yes" : good ? "no" : "unknown" },
        h("span", { class: "dot", "aria-hidden": "true" }), wrong.length ? `Camera ${name}` : `Camera: ${name}`)));
  }
}

function facts(list, entries) {
  list.replaceChildren(...entries.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function stageRow(name, [p50, p95], mark) {
  return h("tr", mark ? {} : { class: "aside" },
    h("th", { scope: "row" }, ...(mark ? [mark] : []), name),
    h("td", { class: "number" }, milliseconds(p50)),
    h("td", { class: "number" }, milliseconds(p95)));
}

export function drawSystem(system) {
  const ticks = system.tick_ms;
  const parts = Object.keys(PARTS).filter((name) => name in ticks);
  const others = Object.keys(ticks).filter((name) => !(name in PARTS) && name !== "total");
  const sum = parts.reduce((total, name) => total + (ticks[name][0] ?? 0), 0);
  const [p50, p95] = ticks.total ?? [null, null];
  $("tick-total").replaceChildren(...(p50 == null ? [h("span", { class: "muted" }, "no group yet")]
    : [milliseconds(p50), h("span", { class: "muted small" }, ` p50 · ${milliseconds(p95)} p95`)]));
  $("tick-bar").replaceChildren(...parts.map((name, i) => {
    const part = h("span", { class: `stage s${i}` });
    part.style.setProperty("--share", sum ? (ticks[name][0] ?? 0) / sum : 0);
    return part;
  }));
  $("ticks").replaceChildren(
    ...parts.map((name, i) => stageRow(PARTS[name], ticks[name],
      h("span", { class: `dot s${i}`, "aria-hidden": "true" }))),
    ...others.map((name) => stageRow(OTHERS[name] ?? name, ticks[name])));
  const dropped = Object.entries(system.dropped).filter(([, n]) => n > 0);
  facts($("dropped"), [...(dropped.length ? dropped.map(([cause, n]) => [DROPS[cause] ?? cause, count(n)])
    : [["nothing", ""]]), ["waiting now", count(system.queue)]]);
  const breaks = Object.entries(system.breaks).filter(([, n]) => n > 0);
  $("breaks-title").hidden = !breaks.length;
  facts($("breaks"), breaks.map(([cause, n]) => [BREAKS[cause] ?? cause, count(n)]));
  facts($("ages"), Object.entries(system.age_ms).map(([tier, [median, most]]) =>
    [`tier ${tier}`, `${milliseconds(median)} · ${milliseconds(most)}`]));
  facts($("counts"), [...Object.entries(TOTALS).filter(([name]) => name in system.counts)
    .map(([name, words]) => [words, count(system.counts[name])]),
  ...(system.memory_mb == null ? [] : [["memory", `${count(Math.round(system.memory_mb))} MB`]])]);
  $("statuses").replaceChildren(...system.statuses.filter(({ level }) => level > 0).map((status) =>
    h("li", { "data-level": status.level }, h("strong", {}, `${status.name}, ${LEVELS[status.level] ?? ""}: `),
      status.message)));
  say($("camera-note"), system.image_rate_hz == null ? "" : `${hertz(system.image_rate_hz)} images/s`
    + (system.image_age_s > 1 ? `, the last ${seconds(system.image_age_s)} ago` : ""));
}
