// Builds elements. Text from the cluster becomes text nodes and attribute values, never markup.

// Control characters, bidirectional ones included, could make one name look like another.
const clean = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}]/gu, "\uFFFD");

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, clean(value));
  }
  append(made, children);
  return made;
}

function append(parent, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(parent, child);
    else if (child instanceof Node) parent.append(child);
    else if (child !== null && child !== undefined && child !== "") parent.append(clean(child));
  }
}

export function table(caption, columns, rows, empty) {
  if (!rows.length) return element("p", { class: "empty" }, empty);
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element(
      "table",
      {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, columns.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell) => element("td", {}, cell))))),
    ),
  );
}

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return element("dl", {}, shown.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

export const mark = (tone, text) => element("span", { class: `mark ${tone}` }, text);

export const number = (value) => (value === null || value === undefined ? "?" : value.toLocaleString("en"));

export const count = (amount, noun) => `${number(amount)} ${noun}${amount === 1 ? "" : "s"}`;

export function age(since, until) {
  const seconds = Math.max(0, (Date.parse(until) - Date.parse(since)) / 1000);
  if (Number.isNaN(seconds)) return "";
  if (seconds < 120) return `${Math.round(seconds)}s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}m`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)}h` : `${Math.round(seconds / 86400)}d`;
}
