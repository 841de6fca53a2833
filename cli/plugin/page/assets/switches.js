// PFs and GPUs of a node under the PCIe bridges that they share.

// For each device, the lowest bridge that it shares with another one: [bridge, devices], those without one last.
export function bySharedBridge(devices) {
  const users = new Map();
  for (const { path } of devices) for (const bridge of path) users.set(bridge, (users.get(bridge) ?? 0) + 1);
  const groups = new Map();
  for (const device of devices) {
    const shared = device.path.filter((bridge) => users.get(bridge) > 1);
    const bridge = shared.at(-1) ?? "";
    if (!groups.has(bridge)) groups.set(bridge, []);
    groups.get(bridge).push(device);
  }
  return [...groups].sort(([one], [other]) => (one === "" ? 1 : other === "" ? -1 : one < other ? -1 : 1));
}

export const gpuTone = (gpu) => (gpu.held ? "used" : gpu.state === "out" ? "out" : "free");
