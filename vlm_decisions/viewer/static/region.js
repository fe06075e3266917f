// A region drawn on the picture, by mouse, finger or keys: it becomes a view of its own.

import { line } from "./copy.js";
import { $, attribute, say } from "./dom.js";
import { complain } from "./forms.js";
import { request } from "./live.js";

const EDGES = ["left", "top", "right", "bottom"];
const STEP = 0.01;
const LEAST = 0.01; // of the picture's width and height; less than that is a slip
const KEYS = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const rounded = (value) => Math.round(value * 1000) / 1000;

/** The entry of a view in a file of questions; `image`: its topic, empty for the node's own. */
function yaml(name, image, region) {
  const fields = [...(image ? [`image: ${image}`] : []), `region: [${region.map(rounded).join(", ")}]`];
  return `views: {${name || "name"}: {${fields.join(", ")}}}`;
}

export class Region {
  /** `whole()` has the picture show all of a camera; `seen()` returns {view, image} that is shown. */
  constructor(whole, seen) {
    Object.assign(this, { whole, seen, form: $("region"), layer: $("region-layer"), box: $("region-box") });
    this.inputs = EDGES.map((edge) => $(`region-${edge}`));
    this.copied = line("Its entry in a file of questions", "", "region-yaml");
    this.form.append(this.copied.element);
    $("region-open").addEventListener("click", () => this.open(this.form.hidden));
    $("region-cancel").addEventListener("click", () => this.open(false));
    this.form.addEventListener("keydown", ({ key }) => { if (key === "Escape") this.open(false); });
    this.form.addEventListener("submit", (event) => this.add(event));
    for (const input of [...this.inputs, $("region-name")]) input.addEventListener("input", () => this.draw());
    this.layer.addEventListener("pointerdown", (event) => this.begin(event));
    this.layer.addEventListener("pointermove", (event) => this.follow(event));
    for (const end of ["pointerup", "pointercancel"]) this.layer.addEventListener(end, () => { this.from = null; });
    this.box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.place()).observe($("frame"));
    $("picture").addEventListener("load", () => this.place());
  }

  open(wanted) {
    this.form.hidden = this.layer.hidden = !wanted;
    attribute($("region-open"), "aria-expanded", wanted);
    complain(this.form, $("region-error"), null);
    if (!wanted) {
      $("region-open").focus();
      return;
    }
    this.whole();
    say($("region-result"), "");
    this.set([0.25, 0.25, 0.75, 0.75]);
    this.place();
    this.box.focus({ preventScroll: true });
  }

  /** Lay the layer over what the frame shows of the picture, which keeps its shape. */
  place() {
    const { clientWidth, clientHeight } = $("frame");
    const { naturalWidth, naturalHeight } = $("picture");
    const scale = naturalWidth ? Math.min(clientWidth / naturalWidth, clientHeight / naturalHeight) : 1;
    const [width, height] = naturalWidth ? [naturalWidth * scale, naturalHeight * scale] : [clientWidth, clientHeight];
    Object.assign(this.layer.style, {
      left: `${(clientWidth - width) / 2}px`, top: `${(clientHeight - height) / 2}px`, width: `${width}px`, height: `${height}px`,
    });
  }

  get region() {
    return this.inputs.map((input) => Number(input.value) / 100);
  }

  set(region) {
    this.inputs.forEach((input, i) => { input.value = Number((100 * region[i]).toFixed(1)); });
    this.draw();
  }

  draw() {
    const [left, top, right, bottom] = this.region.map((value) => clamp(value || 0, 0, 1));
    Object.assign(this.box.style, {
      left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * Math.max(0, right - left)}%`,
      height: `${100 * Math.max(0, bottom - top)}%`,
    });
    this.copied.set(yaml($("region-name").value.trim(), this.seen().image, this.region));
  }

  at({ clientX, clientY }) {
    const { left, top, width, height } = this.layer.getBoundingClientRect();
    return [clamp((clientX - left) / width, 0, 1), clamp((clientY - top) / height, 0, 1)];
  }

  begin(event) {
    event.preventDefault();
    this.layer.setPointerCapture(event.pointerId);
    this.from = this.at(event);
  }

  follow(event) {
    if (!this.from) return;
    const [[x0, y0], [x1, y1]] = [this.from, this.at(event)];
    if (Math.abs(x1 - x0) < LEAST || Math.abs(y1 - y0) < LEAST) return;
    this.set([Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)]);
  }

  /** Arrow keys move the region, with Shift they move its right and lower edge. */
  key(event) {
    if (event.key === "Escape") this.open(false);
    const step = KEYS[event.key];
    if (!step) return;
    event.preventDefault();
    const region = this.region;
    const moved = region.map((value, i) => {
      const by = step[i % 2];
      if (i < 2) return event.shiftKey ? value : value + clamp(by, -value, 1 - region[i + 2]);
      return event.shiftKey ? clamp(value + by, region[i - 2] + LEAST, 1) : value + clamp(by, -region[i - 2], 1 - value);
    });
    this.set(moved);
    say($("said"), this.inputs.map((input, i) => `${EDGES[i]} ${input.value} %`).join(", "));
  }

  async add(event) {
    event.preventDefault();
    complain(this.form, $("region-error"), null);
    try {
      const body = { name: $("region-name").value.trim(), region: this.region, of: this.seen().view };
      const { message } = await request("POST", "/api/views", body);
      this.form.reset();
      this.open(false);
      say($("region-result"), `${message[0].toUpperCase()}${message.slice(1)}.`);
    } catch (error) {
      complain(this.form, $("region-error"), error);
    }
  }
}
