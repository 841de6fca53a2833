// Chooses the view by the address.
import { element } from "./elements.js";
import { makeIndex } from "./cluster_index.js";
import { parseAddress } from "./links.js";
import { clusterView, watchParts } from "./cluster_view.js";
import { nodeView } from "./node_view.js";
import { groupView, jobsView } from "./jobs_view.js";
import { podView } from "./pod_view.js";
import { problemsView } from "./problems_view.js";
import { searchView } from "./search_view.js";
import { ASSESSMENT_VIEWS, assessmentView } from "./assessment_view.js";
import { mend } from "./redraw.js";
import { followServer, liveText, takeToken } from "./live.js";

const VIEWS = [
  ["cluster", "Cluster"],
  ["jobs", "Jobs"],
  ["problems", "Problems"],
];
const main = document.getElementById("main");
const state = document.getElementById("state");
let report = null;
let index = null;

const isAssessment = () => report.kind === "MooringAssessment";

function view({ parts: [kind, ...names], options }) {
  if (isAssessment()) return assessmentView(report, kind, options);
  if (kind === "nodes") return nodeView(index, names.join("/"));
  if (kind === "jobs") return names.length ? groupView(index, ...names) : jobsView(index);
  if (kind === "pods") return podView(index, names[0] ?? "", names.slice(1).join("/"));
  if (kind === "problems") return problemsView(index);
  if (kind === "search") return searchView(index, options.get("q") ?? "");
  return clusterView(index, options);
}

function showTabs(kind) {
  const errors = report.findings.filter((finding) => finding.level === "error").length;
  const views = isAssessment() ? ASSESSMENT_VIEWS : VIEWS;
  const names = views.map(([name]) => name);
  const current = names.includes(kind) ? kind : { pods: "jobs", search: "" }[kind] ?? names[0];
  const tabs = views.map(([name, title]) => {
    const badge = name === "problems" && errors ? element("span", { class: "badge", title: "errors" }, errors) : "";
    return element("a", { href: `#/${name}`, "aria-current": name === current && "page" }, title, badge && " ", badge);
  });
  document.getElementById("views").replaceChildren(...tabs);
}

function showState() {
  const { server = "", taken_at: takenAt, notes = [] } = report;
  const { text, last } = liveText(takenAt);
  const partial = notes.length ? `Not everything could be read: ${notes.join("; ")}.` : "";
  // A screen reader reads out what changes here: not the time of each report.
  const shown = [server, text, partial].filter(Boolean).join(" · ");
  if (state.textContent !== shown) state.textContent = shown;
  state.className = text === "" || text === "live" ? "" : "away";
  document.getElementById("taken").textContent = last;
}

// A new address shows a view from its beginning, a new report mends the view where it is.
function show(isNewReport = false) {
  if (report === null) return;
  const target = parseAddress(location.hash);
  const made = view(target);
  const shown = main.firstElementChild;
  if (isNewReport && shown) mend(shown, made);
  else main.replaceChildren(made);
  watchParts(main);
  document.title = `${made.querySelector("h1")?.textContent ?? main.querySelector("h1")?.textContent ?? "Mooring"} – Mooring`;
  showTabs(target.parts[0]);
  showState();
}

function update(newReport) {
  const isFirst = report === null;
  report = newReport;
  index = isAssessment() ? null : makeIndex(report);
  show(!isFirst);
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
  followServer(update, () => {
    if (report !== null) showState();
    else state.textContent = liveText("").text;
  });
}
