// Finds the objects of a report by name. A report is the document of `kubectl mooring report -o json`.

const put = (lists, key, value) => (lists.has(key) ? lists.get(key).push(value) : lists.set(key, [value]));

export function makeIndex(report) {
  const index = {
    report,
    nodes: new Map(report.nodes.map((node) => [node.node, node])),
    pods: new Map(),
    podsByUid: new Map(),
    podsOfNode: new Map(),
    groupOfPod: new Map(),
    gpusOfNode: new Map(),
    // Each network and namespace has one colour in all views.
    networks: [...new Set(report.nodes.flatMap((node) => node.pfs.map((pf) => pf.network)))].sort(),
    namespaces: [],
  };
  for (const pod of report.pods ?? []) {
    index.pods.set(`${pod.namespace}/${pod.name}`, pod);
    index.podsByUid.set(pod.uid, pod);
    if (pod.node) put(index.podsOfNode, pod.node, pod);
  }
  for (const gpu of report.gpus) put(index.gpusOfNode, gpu.node, gpu);
  for (const group of report.groups) for (const member of group.members) index.groupOfPod.set(member.uid, group);
  index.namespaces = [...new Set((report.pods ?? []).filter((pod) => pod.vfs.length).map((pod) => pod.namespace))].sort();
  return index;
}

// The VFs of one PF that pods hold, in the order of their numbers: [vf, pod].
export function heldVfs(index, node, pf) {
  const held = [];
  for (const pod of index.podsOfNode.get(node) ?? []) {
    for (const vf of pod.vfs) if (vf.pf === pf) held.push([vf, pod]);
  }
  return held.sort(([one], [other]) => one.vf - other.vf);
}

// Nodes by the value of a label, those without it last; by name without a label.
export function domainsOf(index, level) {
  const domains = new Map();
  for (const node of index.report.nodes) put(domains, level ? (node.labels[level] ?? "") : "", node);
  const byName = new Intl.Collator("en", { numeric: true }).compare;
  return [...domains].sort(([one], [other]) => (one === "" ? 1 : other === "" ? -1 : byName(one, other)));
}

// What is not known of a part is not known of the whole.
const plus = (sum, part) => (sum === null || part === null ? null : sum + part);

// The PFs of each cable: those with the same port share one.
function cablesOf(node) {
  const cables = new Map();
  for (const pf of node.pfs) put(cables, pf.port ?? pf.pci, pf);
  return cables.values();
}

// `left` is the whole cable's.
function cableMbps(pfs) {
  const { left } = pfs[0].mbps;
  if (pfs.length === 1 || left === null) return Math.min(...pfs.map((pf) => pf.mbps.offered));
  return pfs.reduce((sum, pf) => sum + pf.mbps.reserved, left);
}

export function sumsOf(nodes) {
  const sums = { nodes: nodes.length, faulty: 0, pfs: 0, offered: 0, used: 0, free: 0, out: 0, reserved: 0, mbps: 0 };
  for (const node of nodes) {
    if (node.fault) sums.faulty += 1;
    for (const pf of node.pfs) {
      sums.pfs += 1;
      sums.offered += pf.vfs.offered;
      sums.used = plus(sums.used, pf.vfs.used);
      sums.free = plus(sums.free, pf.vfs.free);
      sums.out += pf.vfs.out;
      sums.reserved = plus(sums.reserved, pf.mbps.reserved);
    }
    for (const pfs of cablesOf(node)) sums.mbps += cableMbps(pfs);
  }
  return sums;
}

export const isWaiting = (pod) => !pod.node && pod.state !== "Terminating";
