// Chooses the view by the address, and follows the report of `kubectl mooring ui`.
import { element } from "./elements.js";
import { makeIndex } from "./cluster_index.js";
import { parseAddress } from "./links.js";
import { clusterView } from "./cluster_view.js";
import { nodeView } from "./node_view.js";
import { groupView, jobsView } from "./jobs_view.js";
import { podView } from "./pod_view.js";
import { problemsView } from "./problems_view.js";
import { searchView } from "./search_view.js";

const RETRY_MS = 2000;
const VIEWS = [
  ["cluster", "Cluster"],
  ["jobs", "Jobs"],
  ["problems", "Problems"],
];
const main = document.getElementById("main");
const state = document.getElementById("state");
let index = null;
let live = "";

function view({ parts: [kind, ...names], options }) {
  if (kind === "nodes") return nodeView(index, names.join("/"));
  if (kind === "jobs") return names.length ? groupView(index, ...names) : jobsView(index);
  if (kind === "pods") return podView(index, names[0] ?? "", names.slice(1).join("/"));
  if (kind === "problems") return problemsView(index);
  if (kind === "search") return searchView(index, options.get("q") ?? "");
  return clusterView(index, options);
}

function showTabs(kind) {
  const errors = index.report.findings.filter((finding) => finding.level === "error").length;
  const tabs = VIEWS.map(([name, title]) => {
    const current = kind === name || (name === "cluster" && (kind === "" || kind === "nodes"));
    const badge = name === "problems" && errors ? element("span", { class: "badge" }, errors) : "";
    return element("a", { href: `#/${name}`, "aria-current": current && "page" }, title, " ", badge);
  });
  document.getElementById("views").replaceChildren(...tabs);
}

function showState() {
  const { server, taken_at: takenAt, notes = [] } = index.report;
  const partial = notes.length ? ` Not everything could be read: ${notes.join("; ")}.` : "";
  // A screen reader reads out what changes here: not the time of each report.
  const text = `${server}${live && ` (${live})`}.${partial}`;
  if (state.textContent !== text) state.textContent = text;
  document.getElementById("taken").textContent = `Report of ${takenAt}`;
}

function show() {
  if (index === null) return;
  const target = parseAddress(location.hash);
  const made = view(target);
  main.replaceChildren(made);
  const title = made.querySelector("h1")?.textContent ?? "Mooring";
  document.title = `${title} – Mooring`;
  showTabs(target.parts[0]);
  showState();
}

// A new report redraws the view where it is.
function update(report) {
  const { id = "", hash = "" } = document.activeElement ?? {};
  const at = window.scrollY;
  index = makeIndex(report);
  show();
  window.scrollTo(0, at);
  const focused = id ? document.getElementById(id) : hash && main.querySelector(`a[href="${CSS.escape(hash)}"]`);
  if (focused) focused.focus({ preventScroll: true });
}

function setLive(text) {
  live = text;
  if (index !== null) showState();
  else state.textContent = text;
}

// The secret comes with the address once, and leaves it at once. Other tabs of this server have it from the storage.
function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (!given) return false;
  localStorage.setItem("token", given[1]);
  history.replaceState(null, "", "#/cluster");
  return true;
}

async function* reports(headers) {
  const reader = (await fetch("changes", { headers })).body.getReader();
  while (!(await reader.read()).done) {
    const answer = await fetch("report", { headers });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    yield answer.json();
  }
}

async function follow() {
  for (;;) {
    const headers = { Authorization: `Bearer ${localStorage.getItem("token") ?? ""}` };
    try {
      const answer = await fetch("report", { headers });
      if (answer.status === 401) setLive("the address has no valid token: open the one that `kubectl mooring ui` printed");
      else {
        for await (const report of reports(headers)) {
          // Outside of this function: an error of a view is no lost connection.
          queueMicrotask(() => update(report));
          setLive("live");
        }
        setLive("not connected");
      }
    } catch {
      // The server is gone: its last report stays on the screen.
      setLive("not connected");
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = `#/search?q=${encodeURIComponent(document.getElementById("query").value)}`;
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  takeToken();
  show();
  window.scrollTo(0, 0);
  main.focus({ preventScroll: true });
});
const embedded = document.getElementById("report").textContent;
if (embedded) update(JSON.parse(embedded));
else {
  takeToken();
  follow();
}
