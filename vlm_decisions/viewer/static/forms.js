// Asking a new question, and editing or removing one that stands.

import { $, h, say } from "./dom.js";
import { lines } from "./copy.js";
import { milliseconds, probability } from "./format.js";
import { inWords as answerInWords, kindOf } from "./kinds.js";
import { request } from "./live.js";
import { Thresholds } from "./thresholds.js";

const COST_MS = 400;
const SUGGEST_MS = 150;

// What the page calls the fields of a question.
const WORDS = {
  text: "The question", options: "The options", id: "The name", kind: "The kind of answer", rate_hz: "The rate",
  name: "The name", region: "The region", thresholds: "The thresholds", enter: "“Yes from”", exit: "“No up to”", ema: "The weight of the newest value",
};

/** An error of the server in the words of the page. */
function inWords(error) {
  const { message } = error;
  let text = message.replace(/^(question|view) '[^']*': /, "")
    .replace(/^the name exists already$/, "There is a view of that name already")
    .replace(/^view name (.*) is not a ROS name: /, "The name $1 cannot be used. It takes ")
    .replace(/^region must be x0 y0 x1 y1 .*$/, "Left must be less than right, and top less than bottom")
    .replace(/^question '(.*)' exists already$/, "There is a question named “$1” already")
    .replace(/^question id (.*) is not a ROS name: /, "The name $1 cannot be used. It takes ")
    .replace(/^question id /, "The name ");
  const field = error.field ?? text.split(" ")[0]; // a node's reply does not name it apart
  if (field in WORDS && text.startsWith(`${field} `)) text = WORDS[field] + text.slice(field.length);
  if (field === "enter" || field === "exit") text = text.replace(/\b(enter|exit)\b/g, (name) => WORDS[name]);
  text = text[0].toUpperCase() + text.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

/** Mark the field that an error is about, or none, and say the error. */
export function complain(form, box, error) {
  for (const input of form.elements) input.removeAttribute("aria-invalid");
  say(box, error ? inWords(error) : "");
  const input = error?.field && (form.elements[error.field] ?? form.elements[`edit-${error.field}`]);
  if (input) {
    (input.setAttribute ? input : input[0]).setAttribute("aria-invalid", "true");
    input.focus?.();
  }
}

function fault(message, field) {
  return Object.assign(new Error(message), { field });
}

/** Act, unless the form is acting already. A button that is disabled would lose the focus. */
async function busy(form, act) {
  if (form.getAttribute("aria-busy")) return;
  form.setAttribute("aria-busy", "true");
  for (const button of form.querySelectorAll("button")) button.setAttribute("aria-disabled", "true");
  try {
    await act();
  } finally {
    form.removeAttribute("aria-busy");
    for (const button of form.querySelectorAll("button")) button.removeAttribute("aria-disabled");
  }
}

const listed = (area) => area.value.split("\n").map((option) => option.trim()).filter(Boolean);

function result(text, level = "good") {
  $("ask-result").dataset.level = level;
  say($("ask-result"), text);
}

function costs({ tokens, ms }) {
  if (tokens == null) return "";
  if (tokens === 0) return "A head answers it: it costs next to nothing.";
  return `${tokens} tokens${ms == null ? "" : `, ${milliseconds(ms)} each time`}.`;
}

/** Set up the form; returns what forgets its messages. */
export function askForm() {
  const form = $("ask");
  const kind = () => kindOf({ kind: form.elements.kind.value });
  const showOptions = () => {
    $("options-field").hidden = !kind().options;
    say($("options-label"), `${kind().options}, one per line`);
    $("ask-place").hidden = form.elements.kind.value !== "any_of";
  };
  for (const input of form.elements.kind) input.addEventListener("change", showOptions);
  const asked = () => {
    const body = { text: form.elements.text.value, kind: form.elements.kind.value };
    if (kind().options) body.options = listed(form.elements.options);
    return body;
  };
  const clear = () => {
    complain(form, $("ask-error"), null);
    result("");
  };

  const send = (path, body, done) => busy(form, async () => {
    clear();
    try {
      done(await request("POST", path, body));
    } catch (error) {
      if (error.field === "id") $("ask-more").open = true;
      complain(form, $("ask-error"), error);
    }
  });

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const body = asked();
    if (form.elements.id.value.trim()) body.id = form.elements.id.value.trim();
    send("/api/questions", body, (reply) => {
      form.reset();
      showOptions();
      result(`Added as ${reply.id}.`);
    });
  });

  $("ask-once").addEventListener("click", () => {
    send("/api/ask", asked(), (reply) => {
      if (reply.answer === "unknown") result(`No answer: ${reply.reason}.`, "warn");
      else result(`${answerInWords(reply)}, probability ${probability(reply.p)}`);
    });
  });

  // What the question would cost, while it is being written.
  let timer = null;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const body = asked();
      if (form.elements.id.value.trim()) body.id = form.elements.id.value.trim();
      const complete = body.text.trim() && (body.options ?? []).length >= kind().least;
      const cost = complete ? await request("POST", "/api/cost", body).catch(() => null) : null;
      say($("ask-cost"), cost ? costs(cost) : "");
    }, COST_MS);
  });
  form.addEventListener("reset", () => say($("ask-cost"), ""));

  // Questions to go on with. There are none where nothing is known of what a model was taught.
  const text = form.elements.text;
  const suggestions = $("ask-suggestions");
  const take = ({ text: chosen, options }) => {
    text.value = chosen;
    form.elements.options.value = options.join("\n");
    form.elements.kind.value = options.length ? "choice" : "yes_no";
    showOptions();
    text.focus();
    form.dispatchEvent(new Event("input"));
  };
  let newest = 0;
  const suggest = async () => {
    const mine = ++newest;
    const path = `/api/suggestions?text=${encodeURIComponent(text.value)}`;
    const reply = await request("GET", path).catch(() => ({ suggestions: [] }));
    if (mine !== newest) return; // a later one is under way
    suggestions.replaceChildren(...reply.suggestions.map((suggestion) => {
      const button = h("button", { type: "button" }, suggestion.text);
      button.addEventListener("click", () => take(suggestion));
      return h("li", {}, button);
    }));
  };
  let soon = null;
  for (const event of ["input", "focus"]) {
    text.addEventListener(event, () => {
      clearTimeout(soon);
      soon = setTimeout(suggest, SUGGEST_MS);
    });
  }
  form.addEventListener("reset", () => suggestions.replaceChildren());

  // Enter sends, as in a search box; Shift+Enter makes a line.
  form.elements.text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  return clear;
}

/**
 * Set up the dialog; returns {open(question, history), clear()}. `removed(id)`, called before a
 * question goes, returns what takes the focus instead of its row; `node()` names the ROS node.
 */
export function editForm(removed, node) {
  const dialog = $("edit");
  const form = $("edit-form");
  const remove = $("edit-remove");
  const numbers = ["rate_hz", "enter", "exit", "ema"];
  const thresholds = new Thresholds($("edit-chart"), $("edit-changes"), form.elements.enter, form.elements.exit, $("edit-thresholds"));
  let question = null;

  const open = (chosen, history, tier) => {
    question = chosen;
    say($("edit-anew"), tier === 1
      ? "A head answers this question, and does not read its text: for another meaning, ask a new question."
      : "Another text or other options begin anew: what is known of the old question is dropped.");
    const kind = kindOf(question);
    say($("edit-title"), question.text);
    say($("edit-id"), question.id);
    $("edit-text").value = question.text;
    $("edit-options").value = question.options.join("\n");
    $("edit-options-field").hidden = !kind.options;
    say($("edit-options-label"), `${kind.options}, one per line`);
    $("edit-thresholds-field").hidden = question.kind !== "score";
    $("edit-thresholds").value = question.thresholds.join(", ");
    $("edit-anew").hidden = true;
    for (const field of numbers) form.elements[field].value = question[field];
    thresholds.show(question, history);
    say($("edit-hint"), kind.hint);
    $("edit-lines").replaceChildren(...lines(question, node()));
    remove.dataset.sure = "";
    say(remove, "Remove");
    complain(form, $("edit-error"), null);
    dialog.showModal();
  };

  const meaning = () => {
    const changes = {};
    if ($("edit-text").value.trim() !== question.text) changes.text = $("edit-text").value;
    const options = listed($("edit-options"));
    if (kindOf(question).options && options.join("\n") !== question.options.join("\n")) changes.options = options;
    return changes;
  };
  for (const area of [$("edit-text"), $("edit-options")]) {
    area.addEventListener("input", () => { $("edit-anew").hidden = !Object.keys(meaning()).length; });
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(form, async () => {
      const changes = meaning();
      for (const field of numbers) {
        const text = form.elements[field].value;
        const value = Number(text);
        if (text === "" || !Number.isFinite(value)) {
          complain(form, $("edit-error"), fault("This must be a number", field));
          return;
        }
        if (value !== question[field]) changes[field] = value;
      }
      const given = $("edit-thresholds").value.split(/[\s,;]+/).filter(Boolean).map(Number);
      if (given.some((value) => !Number.isFinite(value))) {
        complain(form, $("edit-error"), fault("The thresholds must be numbers", "thresholds"));
        return;
      }
      if (given.join() !== question.thresholds.join()) changes.thresholds = given;
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
      const focus = removed(question.id);
      try {
        await request("DELETE", `/api/questions/${encodeURIComponent(question.id)}`);
        say($("said"), `Removed ${question.id}.`);
        dialog.close();
        focus();
      } catch (error) {
        complain(form, $("edit-error"), error);
      }
    });
  });

  $("edit-cancel").addEventListener("click", () => dialog.close());
  return { open, clear: () => complain(form, $("edit-error"), null) };
}
