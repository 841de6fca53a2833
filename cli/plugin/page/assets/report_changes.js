// Applies what the server says has changed in a report; ``changes.py`` makes it. Items that are the same stay the same.

const gpuKey = (gpu) => `${gpu.node}/${gpu.pci}/${gpu.held?.pod ?? ""}`;
const groupKey = (group) => `${group.namespace}/${group.name}/${group.source}`;
const nodeKey = (node) => node.node;
// What identifies an item of each list, and what orders them.
const KEYS = { nodes: nodeKey, pods: (pod) => pod.uid, groups: groupKey, gpus: gpuKey };
const ORDERS = { nodes: nodeKey, pods: (pod) => `${pod.namespace}/${pod.name}`, groups: groupKey, gpus: gpuKey };

function changedList(name, items, { put, drop }) {
  const found = new Map(items.map((item) => [KEYS[name](item), item]));
  for (const key of drop) found.delete(key);
  const before = found.size;
  for (const item of put) found.set(KEYS[name](item), item);
  const list = [...found.values()];
  if (found.size === before) return list;
  const order = ORDERS[name];
  return list.sort((one, other) => (order(one) < order(other) ? -1 : 1));
}

export function changedReport(report, changes) {
  const changed = { ...report, ...changes.set };
  for (const [name, list] of Object.entries(changes.lists)) changed[name] = changedList(name, report[name], list);
  return changed;
}
