// The table of questions: one row each, made once and kept up to date.

import { arrows, correct, holdable, learnedButton } from "./corrections.js";
import { $, attribute, h, say } from "./dom.js";
import { hertz, milliseconds, probability, seconds } from "./format.js";
import { holds, kindOf } from "./kinds.js";
import { Spark } from "./spark.js";

const TIERS = { 0: "camera", 1: "head", 2: "model" };
const TIER_HINTS = {
  1: "Tier 1: a linear head on the vision features",
  2: "Tier 2: the language model",
};
// Behind a model's name, where it was asked again about more of the past: +window, or +VIEW.
const AGAIN = /\+(?!reuse|learned)([^+]+)/;
const CHANGED_MS = 1500;
const TOLD_S = 6;
const SORT_S = 1;
const HOLD = "Hold it down while it is true, to correct a span";

class Row {
  constructor(id, edit) {
    this.id = id;
    this.spark = new Spark();
    this.decision = null;
    this.arrived = 0;
    this.correctable = false;
    this.text = h("span", { class: "text" });
    this.name = h("span", { class: "mono muted" });
    this.reason = h("span", { class: "reason" });
    this.learned = learnedButton(id, (said) => this.tell(said));
    this.options = h("ul", { class: "options" });
    arrows(this.options);
    this.options.addEventListener("keydown", ({ key }) => { if (key === "Escape") this.propose(null); });
    this.answer = h("span", { class: "answer" });
    this.value = h("span", { class: "muted small", title: "expected value" });
    this.p = h("span", { class: "value" });
    this.fill = h("span", { class: "fill" });
    this.marks = [h("span", { class: "mark" }), h("span", { class: "mark" })];
    this.age = h("span");
    this.tier = h("span", { class: "tier" });
    this.rate = h("span");
    this.wanted = h("span", { class: "muted" });
    this.cost = h("span");
    this.button = h("button", { type: "button", class: "icon", title: "Edit or remove" },
      h("span", { "aria-hidden": "true" }, "⋯"));
    this.button.addEventListener("click", () => edit(this.question, this.button));
    this.right = ["✓", "✗"].map((sign, i) => holdable(
      h("button", { type: "button", class: "icon right" }, h("span", { "aria-hidden": "true" }, sign)),
      (held) => this.correct(i ? "no" : this.isRight(), held)));
    const cell = (name, ...children) => h("td", { role: "cell", class: name }, ...children);
    this.element = h("tr", { role: "row", "data-id": id },
      h("th", { role: "rowheader", scope: "row", class: "question" },
        this.text, h("span", { class: "under small" }, this.name, this.learned.button, this.reason), this.options),
      cell("answers", this.answer, " ", this.value),
      cell("probability", this.p,
        h("span", { class: "bar", "aria-hidden": "true" }, this.fill, ...this.marks)),
      cell("minute", this.spark.element),
      cell("age number", this.age),
      cell("tiers", this.tier),
      cell("rate number", this.rate, this.wanted),
      cell("cost number", this.cost),
      cell("edit", ...this.right, this.button));
  }

  /** A button for an option: it is the right answer; of several labels, it is (not) one of them. */
  option(name, i) {
    const button = h("button", { type: "button", tabindex: i ? "-1" : "0", disabled: !this.correctable }, h("span", {}, name), h("span", { class: "share" }));
    const severalRight = this.question.kind === "any_of";
    if (this.correctable) button.title = severalRight ? `Put ${name} right, then press ✓` : `It is ${name}. ${HOLD}`;
    if (severalRight) button.addEventListener("click", () => this.propose(name));
    else holdable(button, (held) => this.correct(name, held));
    return h("li", {}, button);
  }

  /** Turn a label over in what is said to be right; null: say what is answered. */
  propose(label) {
    if (label === null) this.proposed = null;
    else {
      this.proposed ??= new Set(this.answered());
      if (!this.proposed.delete(label)) this.proposed.add(label);
    }
    this.mark();
  }

  answered() {
    const d = this.decision;
    return this.question.options.filter((_, i) => d && holds(this.question, d, i));
  }

  /** The answer that ✓ stands for. */
  isRight() {
    if (this.question.kind !== "any_of") return "yes";
    const right = this.proposed ?? new Set(this.answered());
    return this.question.options.filter((label) => right.has(label)).join(", ") || "none";
  }

  /** Show what the buttons stand for. */
  mark() {
    const { kind, options, text } = this.question;
    const right = this.isRight();
    this.right[0].hidden = !this.correctable || !["yes_no", "any_of"].includes(kind);
    this.right[1].hidden = !this.correctable || kind !== "yes_no";
    attribute(this.options, "aria-label", `${this.correctable ? "What is right" : "Options"}: ${text}`);
    attribute(this.right[0], "aria-label", `It is ${right}: ${text}`);
    attribute(this.right[0], "title", `It is ${right}. ${HOLD}`);
    if (kind !== "any_of") return;
    const answered = this.answered();
    [...this.options.children].forEach((item, i) => {
      const is = this.proposed ? this.proposed.has(options[i]) : answered.includes(options[i]);
      attribute(item.firstChild, "aria-pressed", is);
      item.classList.toggle("proposed", is !== answered.includes(options[i]));
    });
  }

  async correct(answer, held) {
    this.tell(await correct(this.id, answer, held));
    this.propose(null);
  }

  /** Show what came of a correction, for a while. */
  tell(text) {
    this.told = { text, until: performance.now() / 1000 + TOLD_S };
    say(this.reason, text);
    attribute(this.reason, "title", text);
    say($("said"), text);
  }

  /** Offer to correct its answers, or do not: nothing would keep it. */
  offer(correctable) {
    if (this.correctable === correctable) return;
    this.correctable = correctable;
    this.options.replaceChildren(...this.question.options.map((option, i) => this.option(option, i)));
    this.propose(null);
  }

  ask(question) {
    this.question = question;
    say(this.text, question.text);
    attribute(this.text, "title", question.text);
    say(this.name, question.id);
    say(this.wanted, ` / ${hertz(question.rate_hz)} Hz`);
    attribute(this.right[1], "aria-label", `It is no: ${question.text}`);
    attribute(this.right[1], "title", `It is no. ${HOLD}`);
    attribute(this.button, "aria-label", `Edit or remove: ${question.text}`);
    this.marks.forEach((mark, i) => {
      mark.hidden = !kindOf(question).chart;
      mark.style.setProperty("--at", i ? question.exit : question.enter);
    });
    this.spark.thresholds(question);
    if (this.options.childElementCount !== question.options.length
      || question.options.some((option, i) => this.options.children[i].querySelector("span").textContent !== option)) {
      this.options.replaceChildren(...question.options.map((option, i) => this.option(option, i)));
      this.proposed = null;
    }
    this.options.hidden = !question.options.length;
    this.mark();
  }

  take(decision, now) {
    if (this.decision && this.decision.answer !== decision.answer) {
      this.element.classList.add("changed");
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.element.classList.remove("changed"), CHANGED_MS);
    }
    this.decision = decision;
    this.arrived = now;
    this.spark.add(decision.drawn, now);
  }

  /** Whether the newest answer is older at `now` than answers should be; `maxAge` s. */
  stale(now, maxAge) {
    const { age } = this.decision;
    return age == null || age + now - this.arrived > Math.max(maxAge, 2 / this.question.rate_hz);
  }

  /** Whether there is no answer to be relied on. */
  missing(now, maxAge) {
    const d = this.decision;
    return !d || (d.status !== "not_asked" && (d.answer === "unknown" || this.stale(now, maxAge)));
  }

  /**
   * Show what is known at `now`. `maxAge` s makes an answer stale, `told`: the page says for all
   * why there are no answers, `loading`: there cannot be any yet.
   */
  draw(now, maxAge, told, loading) {
    const d = this.decision;
    const unasked = d?.status === "not_asked";
    const unknown = d?.answer === "unknown" && !unasked;
    if (!d || (unknown && loading)) {
      say(this.answer, "waiting");
      attribute(this.answer, "data-kind", "none");
      this.element.classList.remove("stale", "unknown");
      for (const part of [this.p, this.age]) say(part, "–");
      this.fill.style.setProperty("--p", 0);
      say(this.rate, "0");
      for (const part of [this.tier, this.reason, this.value]) say(part, "");
      return;
    }
    const age = d.age == null ? null : d.age + now - this.arrived;
    const stale = !unasked && this.stale(now, maxAge);
    this.element.classList.toggle("stale", stale);
    this.element.classList.toggle("unknown", unknown);
    this.element.classList.toggle("told", told);
    say(this.answer, unasked ? "not asked" : d.answer);
    attribute(this.answer, "title", d.began == null ? ""
      : `began ${seconds(d.began + now - this.arrived)} ago, ± ${seconds(d.began_sd)}`);
    const own = ["yes", "no", "uncertain", "unknown"];
    attribute(this.answer, "data-kind", unasked ? "none" : own.includes(d.answer) ? d.answer : "option");
    say(this.value, d.value == null ? "" : d.value.toFixed(2));
    say(this.p, probability(d.p));
    this.fill.style.setProperty("--p", d.p ?? 0);
    say(this.age, seconds(age));
    attribute(this.age, "title", stale ? "stale: the evidence is old" : "age of the newest evidence");
    say(this.tier, unknown && d.tier !== 1 && d.tier !== 2 ? "" : TIERS[d.tier] ?? String(d.tier));
    const again = AGAIN.exec(d.model)?.[1];
    attribute(this.tier, "title", (TIER_HINTS[d.tier] ?? "") + (d.model ? ` (${d.model})` : "")
      + (again ? `, asked again about more of the past: ${again}` : ""));
    say(this.rate, hertz(now - this.arrived > 3 ? 0 : d.rate));
    // Beside the name, where there is always a line: a row must not jump when its answer is unknown.
    const reason = this.told?.until > now ? this.told.text : unasked ? d.reason : unknown ? (told ? "" : d.reason) : stale ? "stale"
      : d.contradicts.length ? `contradicts: ${d.contradicts.join(", ")}` : "";
    say(this.reason, reason);
    attribute(this.reason, "title", reason);
    [...this.options.children].forEach((item, i) => {
      const p = d.probabilities[i] ?? 0;
      item.style.setProperty("--p", p);
      item.classList.toggle("is", !unknown && !unasked && holds(this.question, d, i));
      attribute(item, "title", d.answers[i] ?? "");
      say(item.firstChild.lastChild, ` ${(d.probabilities[i] ?? 0).toFixed(2)}`);
    });
    this.mark();
  }

  /** Show what an asking costs: [tokens, milliseconds], or undefined where that is not known. */
  costs(cost) {
    const [tokens, ms] = cost ?? [0, 0];
    say(this.cost, tokens ? milliseconds(ms) : "");
    attribute(this.cost, "title", !cost ? "" : tokens ? `${tokens} tokens of the language model` : "answered by a head");
  }
}

export class Table {
  constructor(body, edit) {
    this.body = body;
    this.edit = edit;
    this.rows = new Map();
    this.order = [];
    this.sorted = 0;
    this.kept = false;
  }

  get size() {
    return this.order.length;
  }

  questions(questions) {
    const rows = new Map();
    for (const question of questions) {
      let row = this.rows.get(question.id);
      // The same name with another meaning is another question.
      if (row && !sameMeaning(row.question, question)) row = null;
      row ??= new Row(question.id, (chosen, button) => this.edit(chosen, row.spark.points, row.decision?.tier, button));
      row.ask(question);
      row.offer(this.kept);
      rows.set(question.id, row);
    }
    const focus = document.activeElement?.closest("tr");
    const next = focus && this.body.contains(focus) ? this.beside(focus.dataset.id) : null;
    this.rows = rows;
    this.order = questions.map((question) => question.id);
    const wanted = new Set([...rows.values()].map((row) => row.element));
    for (const element of [...this.body.children]) if (!wanted.has(element)) element.remove();
    this.arrange();
    if (next && !focus.isConnected) next();
    this.filter(this.wanted ?? "");
  }

  /** Put the rows into their order, touching only those that are elsewhere. */
  arrange() {
    const rows = this.order.map((id) => this.rows.get(id));
    const first = this.first ? rows.filter((row) => row.isMissing) : [];
    const wanted = [...first, ...rows.filter((row) => !first.includes(row))].map((row) => row.element);
    wanted.forEach((element, i) => {
      if (this.body.children[i] !== element) this.body.insertBefore(element, this.body.children[i] ?? null);
    });
  }

  /** Return what moves the focus to the row after that of `id`, or before, or to the table. */
  beside(id) {
    const ids = [...this.body.children].filter((element) => !element.hidden).map((element) => element.dataset.id);
    const at = ids.indexOf(id);
    const around = [...ids.slice(at + 1), ...ids.slice(0, at).reverse()];
    return () => {
      const row = around.map((other) => this.rows.get(other)).find((other) => other);
      (row?.button ?? this.body.closest("section")).focus();
    };
  }

  /** Show unknown answers first, or the questions' own order. */
  sort(first) {
    this.first = first;
    this.arrange();
  }

  /** Show the questions of one view only, or of all where it is empty. */
  view(name) {
    this.prefix = name && `${name}/`;
    this.filter(this.wanted ?? "");
  }

  filter(text) {
    this.wanted = text.trim().toLowerCase();
    for (const row of this.rows.values()) {
      const { id, text: question, options } = row.question;
      row.element.hidden = !id.startsWith(this.prefix ?? "")
        || !`${id} ${question} ${options.join(" ")}`.toLowerCase().includes(this.wanted);
    }
    const shown = [...this.rows.values()].filter((row) => !row.element.hidden).length;
    const all = this.rows.size;
    say($("count"), all === 0 ? "" : shown === all ? String(all) : `${shown} of ${all}`);
    $("no-questions").hidden = all > 0;
    $("no-match").hidden = !(all > 0 && shown === 0);
  }

  /** Begin anew with the history of a fresh connection: what is not in it is not known. */
  history(history, now) {
    for (const [id, row] of this.rows) {
      row.spark.fill(history[id] ?? [], now);
      row.decision = null;
    }
  }

  take(decision, now) {
    this.rows.get(decision.id)?.take(decision, now);
  }

  draw(now, maxAge, told, loading) {
    for (const row of this.rows.values()) {
      row.isMissing = row.missing(now, maxAge);
      if (!row.element.hidden) row.draw(now, maxAge, told, loading);
    }
    // Not while somebody is at a row: it would move away under the pointer or the focus.
    if (this.first && now - this.sorted > SORT_S && !this.body.matches(":hover, :focus-within")) {
      this.sorted = now;
      this.arrange();
    }
  }

  sparks(now) {
    for (const row of this.rows.values()) if (!row.element.hidden) row.spark.draw(now);
  }

  /** Show what each question costs: {id: [tokens, ms]}. */
  costs(costs) {
    this.body.closest("section").classList.toggle("costed", Object.keys(costs).length > 0);
    for (const [id, row] of this.rows) row.costs(costs[id]);
  }

  /** Offer to correct answers where that is kept. */
  correctable(kept) {
    this.kept = kept;
    for (const row of this.rows.values()) row.offer(kept);
  }

  /** Show what was learned: {id: {spans, words}}, of a label of an any_of by `id[label]`. */
  learned(all) {
    for (const [id, row] of this.rows) {
      const found = Object.entries(all).filter(([name]) => name === id || name.startsWith(`${id}[`));
      const words = found.map(([name, one]) => (name === id ? one.words : `${name.slice(id.length + 1, -1)}: ${one.words}`));
      row.learned.show(found.length ? { spans: Math.max(...found.map(([, one]) => one.spans)), words: words.join(". ") } : null, row.question.text);
    }
  }
}

function sameMeaning(a, b) {
  return a.text === b.text && a.kind === b.kind && a.options.join("\n") === b.options.join("\n");
}
