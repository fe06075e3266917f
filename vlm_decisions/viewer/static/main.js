// Puts the parts together: one connection feeds the table, the picture and the rest.

import { $, attribute, say } from "./dom.js";
import { Events } from "./events.js";
import { askForm, editForm } from "./forms.js";
import { seconds } from "./format.js";
import { Live } from "./live.js";
import { Picture } from "./picture.js";
import { drawSystem, Health } from "./system.js";
import { Region } from "./region.js";
import { Table } from "./table.js";
import { Timeline } from "./timeline.js";

const DRAW_MS = 200;
const SPARK_MS = 500;
const FILTER_FROM = 10;
const SAY_MS = 1500;

const now = () => performance.now() / 1000;
const edit = editForm((id) => table.beside(id), () => (hello?.kind === "ros" ? hello.name : ""));
const table = new Table($("rows"), edit.open);
const events = new Events();
const health = new Health();
const forgetAsk = askForm();
new Timeline();
let system = null;
let state = null;
let hello = null;
let connected = false;
let again = "";

function forget() {
  forgetAsk();
  edit.clear();
}

const live = new Live({
  hello(message) {
    if (hello) forget(); // said of another time: not at the first connection
    hello = message;
    connected = true;
    events.clear();
    system = state = null;
    document.title = `Decisions of ${message.name}`;
  },
  state(message) {
    const t = now();
    if (message.questions) {
      table.questions(message.questions);
      $("filter-box").hidden = message.questions.length < FILTER_FROM;
    }
    if (message.history) table.history(message.history, t);
    for (const row of message.rows ?? []) {
      if (row.id.split("/").at(-1).startsWith("camera_")) health.take(row);
      else table.take(row, t);
    }
    if (message.system) {
      system = message.system;
      drawSystem(system);
      table.costs(system.costs);
      picture.views(Object.keys(system.views).filter(Boolean));
      table.learned(system.learned);
      table.correctable(system.corrections);
      say($("mark"), system.mark);
      $("mark").hidden = !system.mark;
    }
    if (message.state) {
      if (state?.kind === "no_node" && message.state.kind !== "no_node") forget(); // said of another time
      state = message.state;
    }
    if (message.events) events.take(message.events, Boolean(message.history));
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
new Region(() => picture.plain(), () => ({ view: $("view").value, image: system?.views[$("view").value]?.topic ?? "" }));
$("filter").addEventListener("input", ({ target }) => table.filter(target.value));
$("view").addEventListener("change", ({ target }) => {
  table.view(target.value);
  health.view(target.value);
  events.view(target.value);
});
$("unknown-first").addEventListener("change", ({ target }) => table.sort(target.checked));
document.addEventListener("click", ({ target }) => {
  if (!$("save").contains(target) || target.closest("a, button")) $("save").open = false;
});

// The whole page in one word for those who cannot see it: only a state that lasts is said.
let said = "";
let saying = null;
function announce(label) {
  if (label === saying?.label) return;
  clearTimeout(saying?.timer);
  const timer = setTimeout(() => {
    if (label !== said && (said || label !== "Live")) say($("said"), `${label}.`);
    said = label;
  }, SAY_MS);
  saying = { label, timer };
}

const CONNECTING = { kind: "loading", label: "Connecting", message: "", remedy: "" };

function draw() {
  const shown = connected ? state ?? CONNECTING
    : again ? { kind: "lost", label: "Not connected", message: again, remedy: "" } : CONNECTING;
  attribute($("link"), "data-state", shown.kind);
  say($("link-text"), shown.label);
  $("banner").hidden = !shown.message;
  attribute($("banner"), "data-state", shown.kind);
  say($("banner-text"), shown.message);
  say($("banner-remedy"), shown.remedy);
  announce(shown.label.replace(/,? ?\d+ of \d+ unknown/, (found) => (found[0] === "," ? "" : "Some answers are unknown")));
  say($("about"), hello ? [hello.name, system?.model, system?.device].filter(Boolean).join(" · ") : "connecting");
  const answering = ["live", "overloaded", "unknown"].includes(shown.kind);
  table.draw(now(), system?.max_age_s ?? 2, !answering, shown.kind === "loading");
  health.draw(answering || shown.kind === "unusable");
  picture.check();
}

setInterval(draw, DRAW_MS);
setInterval(() => { if (!document.hidden) table.sparks(now()); }, SPARK_MS);
