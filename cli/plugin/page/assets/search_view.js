// Objects whose name or address contains a text.
import { element, table } from "./elements.js";
import { groupLink, nodeLink, podLink } from "./links.js";

const MOST = 100;

function* matches(index, text) {
  const has = (value) => String(value ?? "").toLowerCase().includes(text);
  for (const node of index.report.nodes) {
    if (has(node.node)) yield ["node", nodeLink(node.node), ""];
    for (const pf of node.pfs) {
      if ([pf.name, pf.pci, pf.rdma, pf.network].some(has)) yield ["PF", nodeLink(node.node), `${pf.name} ${pf.pci} ${pf.network}`];
    }
  }
  for (const gpu of index.report.gpus) {
    if (has(gpu.pci) || has(gpu.uuid)) yield ["GPU", nodeLink(gpu.node), `${gpu.pci} ${gpu.uuid ?? ""}`];
  }
  for (const group of index.report.groups) if (has(`${group.namespace}/${group.name}`)) yield ["group", groupLink(group), group.state];
  for (const pod of index.report.pods ?? []) {
    if (has(`${pod.namespace}/${pod.name}`) || has(pod.uid)) yield ["pod", podLink(pod), pod.state];
    for (const vf of pod.vfs) {
      if (has(vf.pci) || has(vf.mac)) yield ["VF", podLink(pod), `${vf.pf} / ${vf.vf} ${vf.pci} ${vf.mac ?? ""}`];
    }
  }
}

export function searchView(index, query) {
  const text = query.trim().toLowerCase();
  const rows = [];
  let isCut = false;
  for (const row of text ? matches(index, text) : []) {
    isCut = rows.length === MOST;
    if (isCut) break;
    rows.push(row);
  }
  return element(
    "div",
    {},
    element("h1", {}, `Search: ${query}`),
    table("Results", ["Kind", "Object", "Match"], rows, (row) => row, "Nothing has this name or address."),
    isCut ? element("p", {}, `Only the first ${MOST} results are shown.`) : "",
  );
}
