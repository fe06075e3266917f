// Asking a new question, and editing or removing one that stands.

import { $, say } from "./dom.js";
import { probability } from "./format.js";
import { request } from "./live.js";

/** Mark the field that an error is about, or none, and say the error. */
function complain(form, box, error) {
  for (const input of form.elements) input.removeAttribute("aria-invalid");
  say(box, error ? error.message : "");
  if (error?.field && form.elements[error.field]) {
    const input = form.elements[error.field];
    (input.setAttribute ? input : input[0]).setAttribute("aria-invalid", "true");
    input.focus?.();
  }
}

async function busy(form, act) {
  const buttons = [...form.querySelectorAll("button")];
  for (const button of buttons) button.disabled = true;
  form.setAttribute("aria-busy", "true");
  try {
    await act();
  } finally {
    for (const button of buttons) button.disabled = false;
    form.removeAttribute("aria-busy");
  }
}

export function askForm() {
  const form = $("ask");
  const choice = () => form.elements.kind.value === "choice";
  for (const input of form.elements.kind) {
    input.addEventListener("change", () => { $("options-field").hidden = !choice(); });
  }
  const options = () => form.elements.options.value.split("\n").map((o) => o.trim()).filter(Boolean);

  const send = (path, body, done) => busy(form, async () => {
    complain(form, $("ask-error"), null);
    say($("ask-result"), "");
    try {
      done(await request("POST", path, body));
    } catch (error) {
      if (error.field === "id") $("ask-more").open = true;
      complain(form, $("ask-error"), error);
    }
  });

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const body = { text: form.elements.text.value, kind: form.elements.kind.value };
    if (choice()) body.options = options();
    if (form.elements.id.value.trim()) body.id = form.elements.id.value.trim();
    send("/api/questions", body, (reply) => {
      form.reset();
      $("options-field").hidden = true;
      say($("ask-result"), `Added as ${reply.id}.`);
    });
  });

  $("ask-once").addEventListener("click", () => {
    const body = { text: form.elements.text.value };
    if (choice()) {
      body.options = options();
      if (body.options.length < 2) {
        complain(form, $("ask-error"), Object.assign(new Error("A choice needs at least two options."),
          { field: "options" }));
        return;
      }
    }
    send("/api/ask", body, (reply) => {
      say($("ask-result"), reply.answer === "unknown" ? `Unknown: ${reply.reason}`
        : `${reply.answer}, probability ${probability(reply.p)}`);
    });
  });

  // Enter sends, as in a search box; Shift+Enter makes a line.
  form.elements.text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
}

export function editForm() {
  const dialog = $("edit");
  const form = $("edit-form");
  const remove = $("edit-remove");
  const fields = ["rate_hz", "enter", "exit", "ema"];
  let question = null;

  const open = (chosen) => {
    question = chosen;
    say($("edit-title"), question.text);
    say($("edit-id"), question.id);
    for (const field of fields) form.elements[field].value = question[field];
    say($("edit-hint"), question.kind === "choice"
      ? "Another option takes over when it leads by half the distance between the two."
      : "Between the two the answer stays what it was.");
    remove.dataset.sure = "";
    say(remove, "Remove");
    complain(form, $("edit-error"), null);
    dialog.showModal();
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(form, async () => {
      const changes = {};
      for (const field of fields) {
        const text = form.elements[field].value;
        const value = Number(text);
        if (text === "" || !Number.isFinite(value)) {
          complain(form, $("edit-error"), Object.assign(new Error("This must be a number."), { field }));
          return;
        }
        if (value !== question[field]) changes[field] = value;
      }
      try {
        if (Object.keys(changes).length) {
          await request("PATCH", `/api/questions/${encodeURIComponent(question.id)}`, changes);
          say($("said"), `Changed ${question.id}.`);
        }
        dialog.close();
      } catch (error) {
        complain(form, $("edit-error"), error);
      }
    });
  });

  remove.addEventListener("click", () => {
    if (!remove.dataset.sure) {
      remove.dataset.sure = "yes";
      say(remove, "Remove for good");
      return;
    }
    busy(form, async () => {
      try {
        await request("DELETE", `/api/questions/${encodeURIComponent(question.id)}`);
        say($("said"), `Removed ${question.id}.`);
        dialog.close();
      } catch (error) {
        complain(form, $("edit-error"), error);
      }
    });
  });

  $("edit-cancel").addEventListener("click", () => dialog.close());
  return open;
}
