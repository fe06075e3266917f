// Saying what the right answer is: a press corrects what is seen now, a button held down a span.

import { attribute, h, say } from "./dom.js";
import { request } from "./live.js";

const SURE_MS = 5000;
const SLIP_PX = 24; // a finger that moves further has thought better of it

/**
 * Have `act(seconds)` called when a button is pressed, with how long it was held down. A finger that
 * stays long makes no click, so it is the release that counts; a click alone is one of the keyboard.
 */
export function holdable(button, act) {
  let from = null;
  let at = [0, 0];
  const begin = ({ clientX, clientY }) => {
    from ??= performance.now();
    at = [clientX, clientY];
    button.classList.add("held");
  };
  const end = () => {
    from = null;
    button.classList.remove("held");
  };
  button.addEventListener("pointerdown", (event) => {
    button.setPointerCapture(event.pointerId); // the page may move under a pointer that does not
    begin(event);
  });
  button.addEventListener("keydown", ({ key }) => { if (key === " ") begin({}); });
  const release = () => {
    const seconds = from == null ? 0 : (performance.now() - from) / 1000;
    end();
    act(seconds);
  };
  button.addEventListener("pointerup", ({ clientX, clientY }) => {
    if (from != null && Math.hypot(clientX - at[0], clientY - at[1]) < SLIP_PX) release();
    else end();
  });
  button.addEventListener("click", ({ detail }) => { if (!detail) release(); });
  for (const gone of ["pointercancel", "blur"]) button.addEventListener(gone, end);
  button.addEventListener("contextmenu", (event) => event.preventDefault()); // a finger that stays
  return button;
}

/** Let the arrow keys move between the buttons of `list`, of which one is reached by Tab. */
export function arrows(list) {
  const buttons = () => [...list.querySelectorAll("button")];
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = buttons();
    all[(all.indexOf(event.target) + step + all.length) % all.length].focus();
  });
  list.addEventListener("focusin", ({ target }) => {
    for (const button of buttons()) button.tabIndex = button === target ? 0 : -1;
  });
}

/** Send what the right answer to `id` is, or was for the last `held` seconds; returns what came of it. */
export const correct = (id, answer, held) => send("POST", "corrections", id, { answer, held_s: held });

async function send(method, what, id, body) {
  try {
    return (await request(method, `/api/${what}/${id.split("/").map(encodeURIComponent).join("/")}`, body)).message;
  } catch (error) {
    return error.message;
  }
}

/**
 * Make the button that says from how many spans the answer to `id` was learned, and takes that back:
 * pressed twice. `show(learned, text)` shows it, or nothing; `tell` gets what came of it.
 */
export function learnedButton(id, tell) {
  const button = h("button", { type: "button", class: "learned", hidden: true });
  let shown = null;
  let sure = null;
  const draw = () => {
    button.hidden = !shown;
    if (!shown) return;
    say(button, sure ? "take it back?" : `learned from ${shown.spans}`);
    attribute(button, "title", `${shown.words}. Press twice to answer as before.`);
    attribute(button, "aria-label", sure ? `Take back what was learned: ${shown.text}`
      : `Learned on this camera, from ${shown.spans} spans: ${shown.text}`);
  };
  const settle = () => {
    clearTimeout(sure);
    sure = null;
    draw();
  };
  button.addEventListener("click", async () => {
    if (!sure) {
      sure = setTimeout(settle, SURE_MS);
      draw();
      return;
    }
    settle();
    tell(await send("DELETE", "learned", id));
  });
  return {
    button,
    show(learned, text) {
      shown = learned ? { ...learned, text } : null;
      if (!shown) settle();
      draw();
    },
  };
}
