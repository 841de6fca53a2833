// One node: PFs and GPUs under the PCIe bridges that they share, and the pod of each VF.
import { element, facts, mark, number, table } from "./elements.js";
import { heldVfs } from "./cluster_index.js";
import { podLink } from "./links.js";
import { describe, pfBar } from "./bars.js";
import { bySharedBridge, gpuTone } from "./switches.js";

function gpuItem(gpu) {
  const holder = gpu.held ? `${gpu.held.pod}${gpu.held.pf ? `, beside ${gpu.held.pf} VF ${gpu.held.vf}` : ""}` : gpu.why;
  const state = gpu.held ? "used" : gpu.state;
  return element(
    "li",
    { class: "device" },
    element("span", { class: `gpu ${gpuTone(gpu)}` }),
    ` GPU ${gpu.pci} ${gpu.model ?? ""}: ${state}${holder ? ` (${holder})` : ""}`,
  );
}

const pfItem = (index, node, pf) => element("li", { class: "device" }, pfBar(index, node, pf, "namespace"), describe(pf));

function switches(index, node) {
  const gpus = index.gpusOfNode.get(node.node) ?? [];
  const devices = [
    ...node.pfs.map((pf) => ({ path: pf.pcie ?? [], item: () => pfItem(index, node, pf) })),
    ...gpus.map((gpu) => ({ path: gpu.pcie ?? [], item: () => gpuItem(gpu) })),
  ];
  return bySharedBridge(devices).map(([bridge, those]) =>
    element(
      "section",
      { class: "switch" },
      element("h3", {}, bridge ? `Below PCIe bridge ${bridge}` : "Without a shared PCIe bridge"),
      element("ul", {}, those.map((device) => device.item())),
    ),
  );
}

function vfRows(index, node) {
  return node.pfs.flatMap((pf) => [
    ...heldVfs(index, node.node, pf.name).map(([vf, pod]) => [
      pf.name,
      vf.vf,
      vf.pci,
      vf.network,
      number(vf.min_tx_rate ?? 0),
      vf.max_tx_rate ? number(vf.max_tx_rate) : "any",
      podLink(pod),
    ]),
    ...pf.out.map((entry) => [pf.name, entry.vfs, "", pf.network, "", "", mark("warning", `out: ${entry.why}`)]),
  ]);
}

export function nodeView(index, name) {
  const node = index.nodes.get(name);
  if (!node) return element("p", {}, `The report has no node '${name}'.`);
  const labels = Object.entries(node.labels).map(([key, value]) => `${key}=${value}`);
  const findings = index.report.findings.filter((finding) => finding.subject === `node/${name}`);
  return element(
    "div",
    {},
    element("h1", {}, node.node),
    facts([
      ["State", node.fault ? mark("bad", node.fault) : mark("good", "ready")],
      ["Domains", labels.join(", ")],
      ["Shares", node.shares.map((share) => `${share.pfs.join(", ")}: at most ${share.max_share} % a namespace`).join("; ")],
    ]),
    findings.length ? element("ul", { class: "findings" }, findings.map((one) => element("li", {}, mark(one.level === "error" ? "bad" : "warning", one.level), ` ${one.found}`))) : "",
    element("h2", {}, "Devices"),
    node.pfs.length ? switches(index, node) : element("p", { class: "empty" }, "The node offers no PF."),
    element("h2", {}, "VFs in use and out"),
    table(
      `VFs of ${node.node}`,
      ["PF", "VF", "PCI", "Network", "Min Mb/s", "Max Mb/s", "Pod"],
      vfRows(index, node),
      (row) => row,
      index.report.pods === null ? "Not known: your rights do not allow to list pods." : "No VF is held or out.",
    ),
  );
}
