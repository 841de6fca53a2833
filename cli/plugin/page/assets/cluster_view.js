// The cluster: nodes in their domains, each PF a bar. A domain is drawn when it comes near the screen.
import { count, element, mark, number, tiles } from "./elements.js";
import { domainsOf, sumsOf } from "./cluster_index.js";
import { address, parseAddress } from "./links.js";
import { COLOURINGS, legend, pfBar } from "./bars.js";
import { drawn, redraw } from "./redraw.js";
import { bySharedBridge, gpuTone } from "./switches.js";

// A domain with more nodes is drawn in parts.
const NODES_A_PART = 60;
// A domain is at most so wide; smaller ones stand side by side.
const NODES_A_ROW = 8;

function gpuDots(gpus, isKnown, place) {
  if (!gpus.length) return "";
  const used = isKnown ? gpus.filter((gpu) => gpu.held).length : "?";
  const out = gpus.filter((gpu) => gpu.state === "out").length;
  const text = `${count(gpus.length, "GPU")}${place}: ${used} used, ${out} out`;
  const dots = gpus.map((gpu) => element("span", { class: `gpu ${gpuTone(gpu)}` }));
  return element("span", { class: "gpus", role: "img", "aria-label": text, title: text }, dots);
}

// PFs and GPUs side by side under the bridge that they share. Without GPUs there is nothing to be beside.
function devicesOf(index, node, colouring) {
  const gpus = index.gpusOfNode.get(node.node) ?? [];
  const bars = (pfs) => pfs.map((pf) => pfBar(index, node, pf, colouring));
  if (!gpus.length) return bars(node.pfs);
  const devices = [...node.pfs.map((pf) => ({ path: pf.pcie ?? [], pf })), ...gpus.map((gpu) => ({ path: gpu.pcie ?? [], gpu }))];
  return bySharedBridge(devices).map(([bridge, those]) => {
    const beside = those.flatMap(({ gpu }) => (gpu ? [gpu] : []));
    const place = bridge ? ` below bridge ${bridge}` : " without a shared bridge";
    return element(
      "div",
      { class: bridge ? "beside" : "apart" },
      element("div", { class: "bars" }, bars(those.flatMap(({ pf }) => (pf ? [pf] : [])))),
      gpuDots(beside, index.report.pods !== null, place),
    );
  });
}

function nodeCard(index, node, colouring) {
  const state = node.fault ? mark("bad", node.fault) : "";
  return element(
    "li",
    { class: `node${node.fault ? " faulty" : ""}` },
    element("a", { href: address("nodes", node.node) }, node.node),
    state,
    devicesOf(index, node, colouring),
  );
}

// A part of the nodes is drawn while it is near the screen. Elsewhere its height stays, so that nothing jumps.
const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting === Boolean(target.isDrawn)) continue;
      target.style.minHeight = isIntersecting ? "" : `${target.offsetHeight}px`;
      target.isDrawn = isIntersecting;
      if (isIntersecting) redraw(target);
      else target.replaceChildren();
    }
  },
  { rootMargin: "600px" },
);

// Watches the parts of the view that is shown now.
export function watchParts(view) {
  observer.disconnect();
  for (const part of view.querySelectorAll(".nodes")) observer.observe(part);
}

function nodePart(index, nodes, colouring) {
  const list = element("ul", { class: "nodes" });
  list.style.minHeight = `${Math.ceil(nodes.length / 6) * 5}rem`;
  return drawn(list, () => nodes.map((node) => nodeCard(index, node, colouring)));
}

function domainSection(index, level, [name, nodes], colouring) {
  const sums = sumsOf(nodes);
  const title = !level ? "All nodes" : name === "" ? `Without ${level}` : name;
  const faulty = sums.faulty ? mark("bad", `${sums.faulty} not in use`) : "";
  const parts = [];
  for (let start = 0; start < nodes.length; start += NODES_A_PART) {
    parts.push(nodePart(index, nodes.slice(start, start + NODES_A_PART), colouring));
  }
  const made = element(
    "section",
    { class: "domain" },
    element("h2", {}, title, " ", faulty),
    element("p", { class: "sums" }, domainSummary(sums)),
    parts,
  );
  made.style.setProperty("--columns", Math.min(nodes.length, NODES_A_ROW));
  return made;
}

const domainSummary = (sums) =>
  `${count(sums.nodes, "node")} · ${number(sums.used)} of ${number(sums.offered)} VFs used${sums.out ? ` · ${number(sums.out)} out` : ""}` +
  ` · ${number(sums.reserved)} of ${number(sums.mbps)} Mb/s reserved`;

const part = (amount, whole) => (amount === null || !whole ? null : amount / whole);

function clusterTiles(index) {
  const { nodes, gpus } = index.report;
  const sums = sumsOf(nodes);
  const used = index.report.pods === null ? null : gpus.filter((gpu) => gpu.held).length;
  return tiles([
    ["Nodes", number(sums.nodes - sums.faulty), `of ${number(sums.nodes)} in use`, part(sums.nodes - sums.faulty, sums.nodes)],
    ["VFs used", number(sums.used), `of ${number(sums.offered)}; ${number(sums.free)} free, ${number(sums.out)} out`, part(sums.used, sums.offered)],
    ["Mb/s reserved", number(sums.reserved), `of ${number(sums.mbps)}`, part(sums.reserved, sums.mbps)],
    ...(gpus.length ? [["GPUs used", number(used), `of ${number(gpus.length)}; ${number(gpus.filter((gpu) => gpu.state === "out").length)} out`, part(used, gpus.length)]] : []),
  ]);
}

function choice(label, id, options, chosen, choose) {
  const made = options.map(([value, text]) => element("option", { value, selected: value === chosen && "" }, text));
  return element("label", { for: id }, label, " ", element("select", { id, change: (event) => choose(event.target.value) }, made));
}

export function clusterView(index, options) {
  const levels = index.report.levels;
  const level = levels.includes(options.get("level")) ? options.get("level") : (levels[0] ?? "");
  const colouring = Object.hasOwn(COLOURINGS, options.get("colour") ?? "") ? options.get("colour") : "load";
  const show = options.get("show") ?? "all";
  const go = (name, value) => {
    const changed = new URLSearchParams({ ...Object.fromEntries(parseAddress(location.hash).options), [name]: value });
    location.hash = `#/cluster?${changed}`;
  };
  const isShown = (node) =>
    show === "faulty" ? node.fault !== "" : show === "free" ? node.pfs.some((pf) => pf.vfs.free) : true;
  const domains = domainsOf(index, level)
    .map(([name, nodes]) => [name, nodes.filter(isShown)])
    .filter(([, nodes]) => nodes.length);
  const shown = { all: "all nodes", free: "with free VFs", faulty: "not in use" };
  return element(
    "div",
    {},
    element("h1", {}, "Cluster"),
    clusterTiles(index),
    element(
      "div",
      { class: "choices" },
      levels.length ? choice("Domains by", "level", levels.map((name) => [name, name]), level, (one) => go("level", one)) : "",
      choice("Colour by", "colour", Object.entries(COLOURINGS), colouring, (one) => go("colour", one)),
      choice("Show", "show", Object.entries(shown), show, (one) => go("show", one)),
    ),
    legend(index, colouring),
    domains.length
      ? element("div", { class: "domains" }, domains.map((domain) => domainSection(index, level, domain, colouring)))
      : element("p", { class: "empty" }, show === "all" ? "The cluster has no nodes." : "No node matches."),
  );
}
