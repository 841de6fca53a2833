// Builds elements. Text from the cluster becomes text nodes and attribute values, never markup.
import { drawn, redraw } from "./redraw.js";

// Control characters, bidirectional ones included, could make one name look like another.
const clean = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}]/gu, "\uFFFD");
// A table with more rows is shown in parts, and can be filtered.
const ROWS_A_PART = 50;

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

// A table of a row for each item; `cells` returns those of one.
export function table(caption, columns, items, cells, empty) {
  if (!items.length) return element("p", { class: "empty" }, element("b", {}, caption), " ", empty);
  if (items.length <= ROWS_A_PART) return plainTable(caption, columns, items.map(cells));
  const rows = new Map();
  const row = (item) => {
    if (!rows.has(item)) rows.set(item, cells(item));
    return rows.get(item);
  };
  const made = drawn(element("div", { class: "long" }), (target) => longTable(target, caption, columns, items, row));
  made.isDrawn = true;
  made.replaceChildren(...made.draw(made));
  return made;
}

function longTable(target, caption, columns, items, row) {
  const wanted = (target.wanted ?? "").toLowerCase();
  const text = (item) => row(item).flat().map((cell) => cell?.textContent ?? String(cell ?? "")).join(" ").toLowerCase();
  const matching = wanted ? items.filter((item) => text(item).includes(wanted)) : items;
  const most = target.most ?? ROWS_A_PART;
  const filter = (event) => {
    target.wanted = event.target.value;
    target.most = ROWS_A_PART;
    redraw(target);
  };
  const more = () => {
    target.most = (target.most ?? ROWS_A_PART) + 4 * ROWS_A_PART;
    redraw(target);
  };
  const shown = Math.min(most, matching.length);
  return [
    element(
      "p",
      { class: "filter" },
      element("input", { type: "search", "aria-label": `Filter: ${caption}`, placeholder: "Filter", input: filter }),
      element("span", { role: "status" }, `${number(shown)} of ${count(matching.length, "row")}${wanted ? ` that match, ${number(items.length)} in all` : ""}`),
    ),
    plainTable(caption, columns, matching.slice(0, most).map(row)),
    matching.length > most ? element("button", { type: "button", click: more }, "Show more") : element("span"),
  ];
}

const isEmpty = (cell) => cell === "" || cell === null || cell === undefined || (Array.isArray(cell) && cell.every(isEmpty));

// Columns in which no row has a value are left out.
function plainTable(caption, columns, rows) {
  const shown = columns.flatMap((_, at) => (rows.some((row) => !isEmpty(row[at])) ? [at] : []));
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element(
      "table",
      {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, shown.map((at) => element("th", { scope: "col" }, columns[at])))),
      element(
        "tbody",
        {},
        rows.map((row) => element("tr", {}, shown.map((at) => element("td", { "data-name": columns[at] }, row[at])))),
      ),
    ),
  );
}

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return element("dl", {}, shown.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

// Amounts that a reader looks for first: [name, amount, more, share of the whole or null].
export function tiles(found) {
  const tile = ([name, amount, more, part]) => {
    const meter = element("span", { class: "meter" }, element("span", {}));
    if (part !== null) meter.firstChild.style.width = `${100 * Math.min(1, Math.max(0, part))}%`;
    return element("div", { class: "tile" }, element("dt", {}, name), element("dd", {}, element("b", {}, amount), " ", more), part === null ? "" : meter);
  };
  return element("dl", { class: "tiles" }, found.map(tile));
}

export const mark = (tone, text) => element("span", { class: `mark ${tone}` }, text);

export const number = (value) => (value === null || value === undefined ? "?" : value.toLocaleString("en"));

export const count = (amount, noun) => `${number(amount)} ${noun}${amount === 1 ? "" : "s"}`;

export function age(since, until) {
  const seconds = Math.max(0, ((typeof until === "number" ? until : Date.parse(until)) - Date.parse(since)) / 1000);
  if (Number.isNaN(seconds)) return "";
  if (seconds < 120) return `${Math.round(seconds)}s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}m`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)}h` : `${Math.round(seconds / 86400)}d`;
}
