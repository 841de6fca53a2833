// One pod: its VFs and rates, and why it is on this node or on none.
import { age, element, facts, mark, number, table } from "./elements.js";
import { groupLink, nodeLink } from "./links.js";

const range = (min, max) => `${number(min ?? 0)} / ${max ? number(max) : "any"}`;

function vfRow(pod, vf) {
  const edited = pod.rates ? { true: "yes", false: "no" }[pod.rates.in_force] ?? "?" : "yes";
  const state = pod.state === "Running" ? edited : "not started";
  return [
    vf.name ?? "",
    vf.network,
    `${vf.pf} / ${vf.vf}`,
    vf.pci,
    vf.mac ?? "",
    vf.vlan ?? "",
    vf.desired ? range(vf.desired.min_tx_rate, vf.desired.max_tx_rate) : range(vf.min_tx_rate, vf.max_tx_rate),
    range(vf.min_tx_rate, vf.max_tx_rate),
    state,
    vf.containers ? vf.containers.join(", ") : "all",
  ];
}

function reasons(decision) {
  const why = decision.why ?? {};
  const refused = why.refused ?? {};
  const named = (reason) => (Array.isArray(refused[reason]) ? refused[reason].map(nodeLink).flatMap((one) => [one, " "]) : "");
  const counts = Object.entries(why.counts ?? {}).sort();
  const scores = Object.entries(why.scores ?? {}).sort();
  const text = (value) => (typeof value === "object" ? JSON.stringify(value) : value);
  return [
    counts.length
      ? table(`Why none of ${text(why.nodes)} nodes fits`, ["Nodes", "Reason", "Which"], counts, ([reason, amount]) => [text(amount), reason, named(reason)], "")
      : "",
    scores.length
      ? table(`Scores of ${text(why.node)}, the best of ${text(why.nodes)} nodes`, ["Preference", "Score"], scores, ([name, score]) => [name, text(score)], "")
      : "",
    why.preemption ? facts([["Preemption", JSON.stringify(why.preemption)]]) : "",
  ];
}

export function podView(index, namespace, name) {
  const pod = index.pods.get(`${namespace}/${name}`);
  if (!pod) return element("p", {}, `The report has no pod '${namespace}/${name}'.`);
  const group = index.groupOfPod.get(pod.uid);
  const gpus = (index.gpusOfNode.get(pod.node) ?? []).filter((gpu) => gpu.held?.pod === `${namespace}/${name}`);
  const decision = pod.decision;
  return element(
    "div",
    {},
    element("h1", {}, `${namespace}/${name}`),
    facts([
      ["State", mark(pod.state === "Running" ? "good" : pod.why ? "bad" : "", pod.state)],
      ["Why", pod.why],
      ["Node", nodeLink(pod.node)],
      ["Created", pod.created && `${pod.created} (${age(pod.created, index.report.taken_at)} before this report)`],
      ["Group", group ? groupLink(group) : ""],
      ["Change of rates", pod.rates?.state ?? ""],
    ]),
    element("h2", {}, "VFs"),
    table(
      `VFs of ${namespace}/${name}`,
      ["Interface", "Network", "PF / VF", "PCI", "MAC", "VLAN", "Requested Mb/s", "Allocated Mb/s", "In force", "Containers"],
      pod.vfs,
      (vf) => vfRow(pod, vf),
      "The pod holds no VF.",
    ),
    gpus.length ? table("GPUs", ["GPU", "Model", "Beside", "Bridge"], gpus, (gpu) => [gpu.pci, gpu.model ?? "", gpu.held.pf ? `${gpu.held.pf} / ${gpu.held.vf}` : "", gpu.bridge], "") : "",
    element("h2", {}, pod.node ? "Why this node" : "Why no node yet"),
    decision
      ? [element("p", {}, decision.message), reasons(decision), element("p", { class: "sums" }, `Decided at ${decision.when}.`)]
      : element("p", { class: "empty" }, "No event has the reason. An API server keeps events for an hour."),
  );
}
