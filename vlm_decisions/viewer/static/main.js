// Puts the parts together: one connection feeds the table, the picture and the rest.

import { $, attribute, say } from "./dom.js";
import { Events } from "./events.js";
import { askForm, editForm } from "./forms.js";
import { seconds } from "./format.js";
import { Live } from "./live.js";
import { Picture } from "./picture.js";
import { drawSystem, Health } from "./system.js";
import { Table } from "./table.js";

const DRAW_MS = 200;
const SPARK_MS = 500;
const FILTER_FROM = 10;

const now = () => performance.now() / 1000;
const table = new Table($("rows"), editForm());
const events = new Events();
const health = new Health();
let system = null;
let link = { ok: false, message: "" };
let hello = null;
let connected = false;
let again = "";

const live = new Live({
  hello(message) {
    hello = message;
    connected = true;
    table.clear();
    events.clear();
    system = null;
    document.title = `Decisions of ${message.name}`;
  },
  state(message) {
    const t = now();
    if (message.questions) {
      table.questions(message.questions);
      say($("count"), message.questions.length ? String(message.questions.length) : "");
      $("no-questions").hidden = message.questions.length > 0;
      $("filter-box").hidden = message.questions.length < FILTER_FROM;
    }
    if (message.history) table.history(message.history, t);
    for (const row of message.rows ?? []) {
      if (row.id.startsWith("camera_")) health.take(row);
      else table.take(row, t);
    }
    if (message.system) {
      system = message.system;
      drawSystem(system);
    }
    if (message.link) link = message.link;
    if (message.events) events.take(message.events);
    draw();
    if (message.history) table.sparks(t);
  },
  picture: (blob) => picture.show(blob),
  closed(reason, waitMs) {
    connected = false;
    again = `${reason ? `The viewer closed the connection: ${reason}.` : "The viewer does not answer."}`
      + ` Trying again in ${seconds(waitMs / 1000)}.`;
    draw();
  },
});
const picture = new Picture((channel) => live.watch(channel));
picture.choose();
askForm();
$("filter").addEventListener("input", ({ target }) => table.filter(target.value));

function trouble() {
  if (!connected) return hello || again ? again : "";
  if (!link.ok) return link.message;
  if (system?.condition) return `Answers are unknown: ${system.condition}.`;
  return link.message;
}

function draw() {
  const why = trouble();
  const bad = !connected || !link.ok;
  const state = bad ? (connected ? "wait" : "lost") : system?.condition ? "warn" : "live";
  attribute($("link"), "data-state", state);
  say($("link-text"), { live: "Live", warn: "No answers", wait: "Waiting", lost: "Not connected" }[state]);
  $("banner").hidden = !why;
  attribute($("banner"), "data-state", state);
  say($("banner"), why);
  say($("about"), hello ? [hello.name, system?.model, system?.device].filter(Boolean).join(" · ") : "connecting");
  table.draw(now(), system?.max_age_s ?? 2, Boolean(system?.condition) || bad);
  picture.check();
}

setInterval(draw, DRAW_MS);
setInterval(() => { if (!document.hidden) table.sparks(now()); }, SPARK_MS);
