// Small helpers. Data reaches the page as text nodes and attributes only, never as markup.

export const $ = (id) => document.getElementById(id);

/** Make an element: attributes (false and null are left out), then children (text or nodes). */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** The same in SVG. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Set text where it differs: an untouched node keeps a selection and stays silent when read. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function attribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}
