// Lines to use a question elsewhere: commands of ROS and the question as YAML, each to be copied.

import { $, h, say } from "./dom.js";

// JSON's strings and lists are YAML's as well.
function yaml({ entry }) {
  return `- {${Object.entries(entry).map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ")}}`;
}

/** Quote for a shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function commands(question, node) {
  const { entry, view, text, kind, options } = question;
  const fields = { text, kind, options, ...(view ? { view } : {}), timeout_s: 5.0 };
  return [
    ["Its decisions", `ros2 topic echo ${node}/${view ? `${view}/` : ""}decisions/${entry.id}`],
    ["Ask it once", `ros2 service call ${node}/ask vlm_decisions/srv/Ask ${quoted(JSON.stringify(fields))}`],
  ];
}

async function copy(box) {
  try {
    await navigator.clipboard.writeText(box.value);
    return true;
  } catch { // a page that came over plain http from another machine has no clipboard
    box.select();
    return document.execCommand("copy");
  }
}

/** Return the lines for a question; `node`: the ROS node's name, empty without ROS. */
export function lines(question, node) {
  return [...(node ? commands(question, node) : []), ["Its entry in a file of questions", yaml(question)]]
    .map(([name, text], i) => line(name, text, `copy-${i}`).element);
}

/** A line to be copied: {element, set(text)}; `id` of its field. */
export function line(name, text, id) {
  const box = h("input", { id, readonly: true, class: "mono", spellcheck: "false" });
  box.value = text;
  const button = h("button", { type: "button", "aria-label": `Copy: ${name}` }, "Copy");
  button.addEventListener("click", async () => {
    const done = await copy(box);
    say(button, done ? "Copied" : "Copy");
    say($("said"), done ? `Copied: ${name}.` : "The browser does not let the page copy. It is selected.");
    setTimeout(() => say(button, "Copy"), 2000);
  });
  const element = h("div", { class: "field" }, h("label", { for: id }, name), h("div", { class: "copy" }, box, button));
  return { element, set: (value) => { box.value = value; } };
}
