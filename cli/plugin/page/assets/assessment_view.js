// What `kubectl mooring assess` found: findings with their evidence, nodes, jobs, decisions and manifests.
import { element, facts, mark, number, table, tiles } from "./elements.js";

export const ASSESSMENT_VIEWS = [
  ["assessment", "Assessment"],
  ["nodes", "Nodes"],
  ["jobs", "Jobs"],
  ["decisions", "Decisions"],
  ["manifests", "Manifests"],
];

const evidence = (one) => element("div", { class: "evidence" }, element("span", {}, `${one.subject}: ${one.path}`), element("code", {}, one.value));
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function kindSection([title, findings]) {
  const [first] = findings;
  return element(
    "section",
    { class: "kind" },
    element("h2", {}, mark("bad", capital(title)), " ", element("span", { class: "badge" }, number(findings.length))),
    facts([["Harm", first.harm], ["With Mooring", first.prevention]]),
    table(title, ["Where", "Found", "Evidence"], findings, (one) => [one.subject, one.text, one.evidence.map(evidence)], ""),
  );
}

function assessmentTiles({ nodes, findings, decisions }) {
  const captured = nodes.filter((node) => node.captured).length;
  const pods = decisions?.pods ?? [];
  const now = pods.filter((pod) => pod.now).length;
  return tiles([
    ["Findings", number(findings.length), "", null],
    ["Nodes with a capture", number(captured), `of ${number(nodes.length)}`, nodes.length ? captured / nodes.length : null],
    ["Pods with VFs that have a node now", decisions ? number(now) : "?", `of ${number(pods.length)}`, pods.length ? now / pods.length : null],
    ["By Mooring's scheduler", decisions ? number(decisions.placed) : "?", `of ${number(pods.length)}`, pods.length ? decisions.placed / pods.length : null],
  ]);
}

function findingsView(report) {
  const kinds = new Map();
  for (const one of report.findings) {
    if (!kinds.has(one.title)) kinds.set(one.title, []);
    kinds.get(one.title).push(one);
  }
  return [
    element("h1", {}, "Assessment"),
    assessmentTiles(report),
    kinds.size ? [...kinds].map(kindSection) : element("p", {}, mark("good", "No fault was found.")),
    element("h2", {}, "What Mooring would not improve"),
    element("ul", {}, report.not_improved.map((text) => element("li", {}, text))),
  ];
}

function nicRows(node) {
  if (!node.captured) return [[node.node, "", "", "", "", "no capture"]];
  const pfs = node.pfs.map((pf) => [
    node.node,
    pf.pf,
    number(pf.mbps),
    pf.vfs,
    pf.free,
    pf.out.map((one) => element("div", {}, `VF ${one.vfs}: ${one.why}`)),
  ]);
  return [...pfs, ...node.left_out.map((one) => [node.node, one.name || one.pci, "", "", "", one.why])];
}

function gpuCells({ node, gpu }) {
  const unknown = gpu.why === null;
  return [node, gpu.pci, unknown ? "?" : gpu.why ? mark("warning", "no") : mark("good", "yes"), unknown ? "the capture does not say" : gpu.why];
}

function capturedNodesView(report) {
  const rows = report.nodes.flatMap(nicRows);
  const gpus = report.nodes.flatMap((node) => node.gpus.map((gpu) => ({ node: node.node, gpu })));
  return [
    element("h1", {}, "Nodes"),
    report.skipped.length ? table("Captures that were skipped", ["Node", "Why"], report.skipped, (one) => [one.node, one.why], "") : "",
    table("NICs", ["Node", "NIC", "Mb/s", "VFs", "On offer", "Why not the others"], rows, (row) => row, "The cluster has no nodes."),
    table("GPUs", ["Node", "GPU", "Could be offered", "Why not"], gpus, gpuCells, "No capture has a GPU."),
  ];
}

function plannedJobsView(report) {
  const cells = (one) => [one.job, one.pods, one.bound, one.racks ?? "?", one.with_mooring?.bound ?? "?", one.with_mooring?.racks ?? "?"];
  const columns = ["Job", "Pods", "With a node", "Racks", "With a node, by Mooring", "Racks, by Mooring"];
  return [element("h1", {}, "Jobs"), table("Jobs with network devices", columns, report.jobs, cells, "No job has network devices.")];
}

function decisionsView(report) {
  const { decisions } = report;
  if (!decisions) return [element("h1", {}, "Decisions"), element("p", {}, "Unknown: this needs the extra 'recompute'.")];
  const cells = (one) => [
    one.pod,
    one.now,
    one.node || mark("warning", "waits"),
    one.node ? [...one.vfs, ...one.gpus].join(", ") : one.reason,
  ];
  return [
    element("h1", {}, "Decisions"),
    element("p", { class: "sums" }, `By Mooring's scheduler, on the nodes as captured: ${number(decisions.placed)} placed, ${number(decisions.waiting)} wait`),
    table("Pods that request VFs", ["Pod", "Node now", "Node by Mooring", "VFs and GPUs, or why it waits"], decisions.pods, cells, "No pod requests VFs of a captured node."),
    table("Pods that were not decided about", ["Pod", "Why"], decisions.left_out, (one) => [one.pod, one.why], "All were."),
  ];
}

function manifestsView(report) {
  const cells = (one) => [one.owner, one.field, one.is_refused ? mark("bad", one.rule) : one.rule];
  return [
    element("h1", {}, "Manifests"),
    table("Live manifests, by `kubectl mooring lint`", ["Object", "Field", "Rule"], report.manifests, cells, "Nothing to say."),
  ];
}

// Objects whose name or address contains a text.
function matchesView(report, query) {
  const has = (...texts) => texts.some((text) => String(text ?? "").toLowerCase().includes(query.trim().toLowerCase()));
  const rows = [
    ...report.findings.filter((one) => has(one.subject, one.text)).map((one) => ["finding", one.subject, one.text]),
    ...report.nodes.flatMap(nicRows).filter((row) => has(row[0], row[1])).map((row) => ["NIC", row[0], row[1]]),
    ...report.jobs.filter((one) => has(one.job)).map((one) => ["job", one.job, `${one.bound} of ${one.pods} pods have a node`]),
    ...(report.decisions?.pods ?? []).filter((one) => has(one.pod, one.node, ...one.vfs)).map((one) => ["pod", one.pod, one.node || one.reason]),
  ];
  return [
    element("h1", {}, `Search: ${query}`),
    table("Results", ["Kind", "Object", "Match"], rows, (row) => row, "Nothing has this name or address."),
  ];
}

export function assessmentView(report, kind, options) {
  const views = { nodes: capturedNodesView, jobs: plannedJobsView, decisions: decisionsView, manifests: manifestsView };
  if (kind === "search") return element("div", {}, matchesView(report, options.get("q") ?? ""));
  return element("div", {}, (Object.hasOwn(views, kind) ? views[kind] : findingsView)(report));
}
