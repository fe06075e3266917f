// One moment of the timeline: the pictures next to it, and the numbers of every question.

import { $, h, say } from "./dom.js";
import { probability, seconds, time } from "./format.js";
import { request } from "./live.js";

const NEAR_S = 60; // pictures further away say nothing of the moment

function picture({ number, t, view }, at) {
  const off = t - at;
  const when = Math.abs(off) < 0.05 ? "then" : `${seconds(Math.abs(off))} ${off < 0 ? "before" : "after"}`;
  return h("li", {}, h("figure", {},
    h("img", { src: `/api/pictures/${number}`, alt: `${view ? `${view}, ` : ""}camera at ${time(t)}`, width: 200 }),
    h("figcaption", { class: "small muted" }, view ? `${view}, ${when}` : when)));
}

function numbers(row, chosen) {
  const options = (row.options ?? []).map((option, i) => `${option} ${probability(row.probabilities[i])}`).join(", ");
  const wrong = row.truth != null && row.answer != null && row.answer !== "unknown" && row.answer !== row.truth;
  const cells = [
    row.answer ?? "–", probability(row.p), probability(row.p_raw), row.age == null ? "–" : seconds(row.age),
    row.tier == null ? "–" : String(row.tier), row.truth ?? "–",
  ];
  return h("tr", { class: [row.id === chosen && "chosen", wrong && "wrong"].filter(Boolean).join(" ") },
    h("th", { scope: "row" }, h("span", { class: "mono" }, row.id),
      h("span", { class: "small muted more" }, [options, row.answer === "unknown" ? row.reason : ""].filter(Boolean).join("; "))),
    ...cells.map((text) => h("td", {}, text)));
}

export class Moment {
  constructor() {
    this.box = $("moment");
    $("moment-close").addEventListener("click", () => {
      this.box.hidden = true;
      $("timeline-cursor").focus();
    });
  }

  /** Show the moment `t` (epoch, seconds); `id`: the question that was pointed at, or empty for all. */
  async show(t, id) {
    const view = id.includes("/") ? `&view=${encodeURIComponent(id.split("/")[0])}` : "";
    let found;
    try {
      found = await request("GET", `/api/moment?t=${t}${view}`);
    } catch (error) {
      say($("said"), error.message);
      return;
    }
    const near = found.pictures.filter((one) => Math.abs(one.t - t) <= NEAR_S);
    const rows = id ? found.rows.toSorted((a, b) => (b.id === id) - (a.id === id)) : found.rows;
    say($("moment-title"), `At ${time(t)}`);
    $("moment-pictures").replaceChildren(...near.map((one) => picture(one, t)));
    $("moment-none").hidden = near.length > 0;
    $("moment-rows").replaceChildren(...rows.map((row) => numbers(row, id)));
    this.box.hidden = false;
    say($("said"), `Shown below: ${near.length} pictures and ${rows.length} answers at ${time(t)}.`);
  }
}
