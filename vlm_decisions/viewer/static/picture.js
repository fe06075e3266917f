// The live picture; nothing is sent while the page is hidden or the picture is off.

import { $, attribute, say } from "./dom.js";

export class Picture {
  constructor(watch) {
    this.watch = watch;
    this.image = $("picture");
    this.times = [];
    for (const input of document.getElementsByName("channel")) {
      input.addEventListener("change", () => this.choose());
    }
    $("view").addEventListener("change", () => this.choose());
    document.addEventListener("visibilitychange", () => this.choose());
    $("full").hidden = !document.fullscreenEnabled;
    $("full").addEventListener("click", () => {
      if (document.fullscreenElement) document.exitFullscreen();
      else $("frame").requestFullscreen();
    });
    $("snapshot").addEventListener("click", () => this.save());
  }

  /** Save what is shown now. */
  save() {
    if (!this.image.src) {
      say($("said"), "There is no picture yet.");
      return;
    }
    const link = document.createElement("a");
    link.href = this.image.src;
    link.download = `picture-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.jpg`;
    link.click();
  }

  /** Show one camera's whole picture, with nothing drawn on it. */
  plain() {
    const select = $("view");
    if (!select.value && select.options.length > 1) { // all of them are shown, which has no region
      select.selectedIndex = 1;
      select.dispatchEvent(new Event("change"));
    }
    document.querySelector("input[name=channel][value=camera]").checked = true;
    this.choose();
  }

  choose() {
    const chosen = document.querySelector("input[name=channel]:checked").value;
    const view = $("view").value;
    const channel = chosen && view ? `${chosen}/${view}` : chosen;
    this.channel = channel;
    say($("no-picture"), channel ? "No picture yet" : "The picture is off");
    if (!channel) this.clear();
    this.watch(document.hidden || !channel ? null : channel);
  }

  /** Offer the views there are: each by itself, or all of them. */
  views(names) {
    const select = $("view");
    if (names.join() === this.offered) return;
    this.offered = names.join();
    const before = select.value;
    const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });
    select.replaceChildren(option("", "All views"), ...names.map((name) => option(name, name)));
    select.value = names.includes(before) ? before : "";
    $("view-box").hidden = !names.length;
    if (select.value !== before) select.dispatchEvent(new Event("change"));
  }

  clear() {
    attribute($("frame"), "data-empty", "yes");
    this.times = [];
    say($("picture-note"), "");
  }

  async show(blob) {
    if (!this.channel) return;
    const url = URL.createObjectURL(blob);
    const next = new Image();
    next.src = url;
    try {
      await next.decode();
    } catch {
      URL.revokeObjectURL(url);
      return;
    }
    const old = this.image.src;
    this.image.src = url;
    attribute(this.image, "alt", this.channel.startsWith("overlay")
      ? "Live camera picture with the answers drawn on it" : "Live camera picture");
    if (old.startsWith("blob:")) URL.revokeObjectURL(old);
    attribute($("frame"), "data-empty", "no");
    $("frame").style.setProperty("--aspect", `${next.naturalWidth} / ${next.naturalHeight}`);
    const now = performance.now();
    this.times = [...this.times.filter((t) => now - t < 5000), now];
    const rate = this.times.length > 2 ? (this.times.length - 1) / ((now - this.times[0]) / 1000) : null;
    say($("picture-note"), `${next.naturalWidth} × ${next.naturalHeight}`
      + (rate ? `, shown ${rate.toFixed(1)} times/s` : ""));
    this.shown = now;
  }

  /** Say so where the picture stands still. */
  check() {
    const still = this.shown && performance.now() - this.shown > 2500;
    $("frame").classList.toggle("still", Boolean(still));
  }
}
