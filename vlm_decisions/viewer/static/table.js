// The table of questions: one row each, made once and kept up to date.

import { attribute, h, say } from "./dom.js";
import { hertz, probability, seconds } from "./format.js";
import { Spark } from "./spark.js";

const TIERS = { 0: "camera", 1: "head", 2: "model" };
const TIER_HINTS = {
  1: "Tier 1: a linear head on the vision features",
  2: "Tier 2: the language model",
};
const CHANGED_MS = 1500;

class Row {
  constructor(id, edit) {
    this.id = id;
    this.spark = new Spark();
    this.decision = null;
    this.arrived = 0;
    this.text = h("span", { class: "text" });
    this.name = h("span", { class: "mono muted small" });
    this.reason = h("span", { class: "reason small" });
    this.options = h("ul", { class: "options" });
    this.answer = h("span", { class: "answer" });
    this.p = h("span", { class: "value" });
    this.fill = h("span", { class: "fill" });
    this.marks = [h("span", { class: "mark" }), h("span", { class: "mark" })];
    this.age = h("span");
    this.tier = h("span", { class: "tier" });
    this.rate = h("span");
    this.wanted = h("span", { class: "muted" });
    this.button = h("button", { type: "button", class: "icon", title: "Edit or remove" },
      h("span", { "aria-hidden": "true" }, "⋯"));
    this.button.addEventListener("click", () => edit(this.question, this.button));
    const cell = (name, ...children) => h("td", { role: "cell", class: name }, ...children);
    this.element = h("tr", { role: "row", "data-id": id },
      h("th", { role: "rowheader", scope: "row", class: "question" },
        this.text, this.name, this.reason, this.options),
      cell("answers", this.answer),
      cell("probability", this.p,
        h("span", { class: "bar", "aria-hidden": "true" }, this.fill, ...this.marks)),
      cell("minute", this.spark.element),
      cell("age number", this.age),
      cell("tiers", this.tier),
      cell("rate number", this.rate, this.wanted),
      cell("edit", this.button));
  }

  ask(question) {
    this.question = question;
    say(this.text, question.text);
    say(this.name, question.id);
    say(this.wanted, ` / ${hertz(question.rate_hz)} Hz`);
    attribute(this.button, "aria-label", `Edit or remove: ${question.text}`);
    this.marks.forEach((mark, i) => {
      mark.hidden = question.kind !== "yes_no";
      mark.style.setProperty("--at", i ? question.exit : question.enter);
    });
    this.spark.thresholds(question);
    if (this.options.childElementCount !== question.options.length
      || question.options.some((option, i) => this.options.children[i].firstChild.textContent !== option)) {
      this.options.replaceChildren(...question.options.map((option) =>
        h("li", {}, h("span", {}, option), h("span", { class: "share" }))));
    }
    this.options.hidden = !question.options.length;
  }

  take(decision, now) {
    if (this.decision && this.decision.answer !== decision.answer) {
      this.element.classList.add("changed");
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.element.classList.remove("changed"), CHANGED_MS);
    }
    this.decision = decision;
    this.arrived = now;
    this.spark.add(decision.p, now);
  }

  /** Show what is known at `now`; `maxAge` s makes an answer stale, `told`: the reason is shown. */
  draw(now, maxAge, told) {
    const d = this.decision;
    if (!d) {
      say(this.answer, "waiting");
      attribute(this.answer, "data-kind", "none");
      say(this.p, "–");
      say(this.age, "–");
      say(this.rate, "0");
      say(this.tier, "");
      return;
    }
    const age = d.age == null ? null : d.age + now - this.arrived;
    const unknown = d.answer === "unknown";
    const stale = age == null || age > Math.max(maxAge, 2 / this.question.rate_hz);
    this.element.classList.toggle("stale", stale);
    this.element.classList.toggle("unknown", unknown);
    say(this.answer, d.answer);
    const own = ["yes", "no", "uncertain", "unknown"];
    attribute(this.answer, "data-kind", own.includes(d.answer) ? d.answer : "option");
    say(this.p, probability(d.p));
    this.fill.style.setProperty("--p", d.p ?? 0);
    say(this.age, seconds(age));
    attribute(this.age, "title", stale ? "stale: the evidence is old" : "age of the newest evidence");
    say(this.tier, unknown && d.tier !== 1 && d.tier !== 2 ? "" : TIERS[d.tier] ?? String(d.tier));
    attribute(this.tier, "title", (TIER_HINTS[d.tier] ?? "") + (d.model ? ` (${d.model})` : ""));
    say(this.rate, hertz(now - this.arrived > 3 ? 0 : d.rate));
    say(this.reason, unknown && !told ? d.reason : "");
    [...this.options.children].forEach((item, i) => {
      const p = d.probabilities[i] ?? 0;
      item.style.setProperty("--p", p);
      item.classList.toggle("is", !unknown && this.question.options[i] === d.answer);
      say(item.lastChild, d.probabilities.length ? ` ${p.toFixed(2)}` : "");
    });
  }
}

export class Table {
  constructor(body, edit) {
    this.body = body;
    this.edit = edit;
    this.rows = new Map();
    this.order = [];
  }

  get size() {
    return this.order.length;
  }

  clear() {
    this.rows.clear();
    this.body.replaceChildren();
    this.order = [];
  }

  questions(questions) {
    const rows = new Map();
    for (const question of questions) {
      let row = this.rows.get(question.id);
      // The same name with another meaning is another question.
      if (row && (row.question.text !== question.text || row.question.kind !== question.kind)) row = null;
      row ??= new Row(question.id, this.edit);
      row.ask(question);
      rows.set(question.id, row);
    }
    this.rows = rows;
    this.order = questions.map((question) => question.id);
    const wanted = [...rows.values()].map((row) => row.element);
    for (const element of [...this.body.children]) if (!wanted.includes(element)) element.remove();
    wanted.forEach((element, i) => {
      if (this.body.children[i] !== element) this.body.insertBefore(element, this.body.children[i] ?? null);
    });
    this.filter(this.wanted ?? "");
  }

  filter(text) {
    this.wanted = text.trim().toLowerCase();
    for (const row of this.rows.values()) {
      const { id, text: question, options } = row.question;
      row.element.hidden = !`${id} ${question} ${options.join(" ")}`.toLowerCase().includes(this.wanted);
    }
  }

  history(history, now) {
    for (const [id, points] of Object.entries(history)) this.rows.get(id)?.spark.fill(points, now);
  }

  take(decision, now) {
    this.rows.get(decision.id)?.take(decision, now);
  }

  draw(now, maxAge, told) {
    for (const row of this.rows.values()) if (!row.element.hidden) row.draw(now, maxAge, told);
  }

  sparks(now) {
    for (const row of this.rows.values()) if (!row.element.hidden) row.spark.draw(now);
  }
}
