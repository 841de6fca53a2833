// The cluster: nodes in their domains, each PF a bar. A domain is drawn when it comes near the screen.
import { count, element, mark, number } from "./elements.js";
import { domainsOf, sumsOf } from "./cluster_index.js";
import { address } from "./links.js";
import { COLOURINGS, legend, pfBar } from "./bars.js";

// A domain with more nodes is drawn in parts.
const PART = 60;
const GPU_DOTS = 16;

function gpuDots(gpus, isKnown) {
  if (!gpus.length) return "";
  const used = isKnown ? gpus.filter((gpu) => gpu.held).length : "?";
  const out = gpus.filter((gpu) => gpu.state === "out").length;
  const text = `${count(gpus.length, "GPU")}: ${used} used, ${out} out`;
  const dots = gpus.slice(0, GPU_DOTS).map((gpu) =>
    element("span", { class: `gpu ${gpu.held ? "used" : gpu.state === "out" ? "out" : "free"}` }),
  );
  return element("span", { class: "gpus", role: "img", "aria-label": text, title: text }, dots);
}

function nodeCard(index, node, colouring) {
  const state = node.fault ? mark("bad", node.fault) : "";
  return element(
    "li",
    { class: `node${node.fault ? " faulty" : ""}` },
    element("a", { href: address("nodes", node.node) }, node.node),
    state,
    node.pfs.map((pf) => pfBar(index, node, pf, colouring)),
    gpuDots(index.gpusOfNode.get(node.node) ?? [], index.report.pods !== null),
  );
}

function drawWhenNear(list, nodes, index, colouring) {
  // About the height that it will have, so that the scroll bar does not jump.
  list.style.minHeight = `${Math.ceil(nodes.length / 6) * 5}rem`;
  const observer = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      list.style.minHeight = "";
      list.append(...nodes.map((node) => nodeCard(index, node, colouring)));
    },
    { rootMargin: "600px" },
  );
  observer.observe(list);
}

function domainSection(index, level, [name, nodes], colouring) {
  const sums = sumsOf(nodes);
  const title = !level ? "All nodes" : name === "" ? `Without ${level}` : name;
  const faulty = sums.faulty ? mark("bad", `${sums.faulty} not in use`) : "";
  const parts = [];
  for (let start = 0; start < nodes.length; start += PART) {
    const list = element("ul", { class: "nodes" });
    drawWhenNear(list, nodes.slice(start, start + PART), index, colouring);
    parts.push(list);
  }
  return element(
    "section",
    { class: "domain" },
    element("h2", {}, title, " ", faulty),
    element("p", { class: "sums" }, summary(sums)),
    parts,
  );
}

function summary(sums) {
  return (
    `${count(sums.nodes, "node")}, ${count(sums.pfs, "PF")}: ${number(sums.used)} of ${number(sums.offered)} VFs used, ` +
    `${number(sums.free)} free, ${number(sums.out)} out; ${number(sums.reserved)} of ${number(sums.mbps)} Mb/s reserved`
  );
}

function choice(label, id, options, chosen, choose) {
  const made = options.map(([value, text]) => element("option", { value, selected: value === chosen && "" }, text));
  const select = element("select", { id, change: () => choose(select.value) }, made);
  return element("label", { for: id }, label, " ", select);
}

export function clusterView(index, options) {
  const levels = index.report.levels;
  const level = levels.includes(options.get("level")) ? options.get("level") : (levels[0] ?? "");
  const colouring = Object.hasOwn(COLOURINGS, options.get("colour") ?? "") ? options.get("colour") : "load";
  const show = options.get("show") ?? "all";
  const go = (name, value) => {
    const changed = new URLSearchParams({ level, colour: colouring, show, [name]: value });
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
    element("p", { class: "sums" }, summary(sumsOf(index.report.nodes))),
    element(
      "div",
      { class: "choices" },
      levels.length ? choice("Domains by", "level", levels.map((name) => [name, name]), level, (one) => go("level", one)) : "",
      choice("Colour by", "colour", Object.entries(COLOURINGS), colouring, (one) => go("colour", one)),
      choice("Show", "show", Object.entries(shown), show, (one) => go("show", one)),
    ),
    legend(index, colouring),
    domains.length
      ? domains.map((domain) => domainSection(index, level, domain, colouring))
      : element("p", { class: "empty" }, show === "all" ? "The cluster has no nodes." : "No node matches."),
  );
}
