// Saying what the right answer is: a press corrects what is seen now, a button held down a span.

import { request } from "./live.js";

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
export async function correct(id, answer, held) {
  const path = `/api/corrections/${id.split("/").map(encodeURIComponent).join("/")}`;
  try {
    return (await request("POST", path, { answer, held_s: held })).message;
  } catch (error) {
    return error.message;
  }
}
