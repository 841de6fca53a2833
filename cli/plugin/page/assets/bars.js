// A PF as a bar: its VFs by who has them, and below it the bandwidth that is reserved.
import { element, number } from "./elements.js";
import { heldVfs } from "./cluster_index.js";

export const COLOURINGS = { load: "Load", rail: "Rail", namespace: "Namespace" };
const COLOURS = 8;
const LOAD_STEPS = 5;

const hue = (names, name) => `hue-${names.indexOf(name) % COLOURS}`;

function segment(kind, weight) {
  const made = element("span", { class: `segment ${kind}` });
  made.style.flexGrow = weight;
  return made;
}

const share = (part, whole) => (whole > 0 ? Math.min(1, Math.max(0, part / whole)) : 0);

export function loadStep(pf) {
  const load = Math.max(share(pf.vfs.used, pf.vfs.offered), share(pf.mbps.reserved, pf.mbps.offered));
  return Math.min(LOAD_STEPS - 1, Math.floor(load * LOAD_STEPS));
}

// How many VFs of a PF each namespace has.
function vfsByNamespace(index, node, pf) {
  const counts = new Map();
  for (const [, pod] of heldVfs(index, node.node, pf.name)) {
    counts.set(pod.namespace, (counts.get(pod.namespace) ?? 0) + 1);
  }
  return [...counts].sort();
}

function usedSegments(index, node, pf, colouring) {
  if (colouring === "rail") return [segment(`used ${hue(index.networks, pf.network)}`, pf.vfs.used)];
  if (colouring !== "namespace") return [segment(`used load-${loadStep(pf)}`, pf.vfs.used)];
  return vfsByNamespace(index, node, pf).map(([name, amount]) => segment(`used ${hue(index.namespaces, name)}`, amount));
}

export function describe(pf) {
  const { offered, used, free, out } = pf.vfs;
  const rates = `${number(pf.mbps.reserved)} of ${number(pf.mbps.offered)} Mb/s reserved, ${number(pf.mbps.left)} left`;
  const link = pf.up ? "" : ", link down";
  return `${pf.name} (${pf.network}): ${number(used)} of ${offered} VFs used, ${number(free)} free, ${out} out; ${rates}${link}`;
}

export function pfBar(index, node, pf, colouring) {
  const namespaces = colouring === "namespace" ? vfsByNamespace(index, node, pf) : [];
  const text = [describe(pf), ...namespaces.map(([name, amount]) => `${name} ${amount}`)].join(", ");
  const vfs = element("span", { class: "vfs" });
  if (pf.vfs.used) vfs.append(...usedSegments(index, node, pf, colouring));
  if (pf.vfs.free) vfs.append(segment("free", pf.vfs.free));
  if (pf.vfs.out) vfs.append(segment("out", pf.vfs.out));
  const left = element("span", { class: "rate" });
  const reserved = element("span", { class: "reserved" });
  reserved.style.width = `${100 * share(pf.mbps.reserved, pf.mbps.offered)}%`;
  // What another PF on the same cable has is neither reserved here nor left.
  const taken = element("span", { class: "out" });
  taken.style.width = `${100 * share(pf.mbps.offered - pf.mbps.reserved - (pf.mbps.left ?? pf.mbps.offered), pf.mbps.offered)}%`;
  left.append(reserved, taken);
  return element("span", { class: `pf${pf.up ? "" : " down"}`, role: "img", "aria-label": text, title: text }, vfs, left);
}

export function legend(index, colouring) {
  const key = (kind, text) => element("li", {}, element("span", { class: `swatch ${kind}` }), text);
  const of = (names) => names.slice(0, COLOURS).map((name) => key(hue(names, name), name));
  const more = (names) => (names.length > COLOURS ? key("none", `${names.length - COLOURS} more share these colours`) : "");
  let used;
  if (colouring === "rail") used = [of(index.networks), more(index.networks)];
  else if (colouring === "namespace") used = [of(index.namespaces), more(index.namespaces)];
  else {
    const steps = [...Array(LOAD_STEPS).keys()];
    used = steps.map((step) => key(`load-${step}`, `used, load ${step * 20}–${(step + 1) * 20} %`));
  }
  return element(
    "ul",
    { class: "legend", "aria-label": "Colours" },
    used,
    key("free", "free"),
    key("out", "out"),
    key("reserved", "Mb/s reserved (thin bar)"),
    index.report.gpus.length ? [key("gpu used", "GPU used"), key("gpu free", "GPU free"), key("gpu out", "GPU out")] : "",
  );
}
