// Groups of pods, and one group: what has started, what waits, for what and since when.
import { age, count, element, facts, mark, table } from "./elements.js";
import { isWaiting } from "./cluster_index.js";
import { groupLink, nodeLink, podLink } from "./links.js";

const GROUP_TONES = { Scheduled: "good", Finished: "good", Partial: "bad", Refused: "bad", Incomplete: "warning", Waiting: "warning" };
const NOT_LISTED = "Not known: your rights do not allow to list pods.";
const ORDER = ["Refused", "Partial", "Incomplete", "Waiting", "Scheduled", "Finished"];

// When the oldest member that waits was created; empty if none waits.
function waitsSince(index, group) {
  const created = group.members
    .filter((member) => ["waiting", "refused", "gated"].includes(member.state))
    .map((member) => index.podsByUid.get(member.uid)?.created)
    .filter(Boolean);
  return created.length ? created.sort()[0] : "";
}

const waitingFor = (group) => (group.hangs_on ? `${group.hangs_on.member} fits nowhere` : group.why);

function groupRow(index, group) {
  const since = waitsSince(index, group);
  const narrowest = group.levels[0];
  return [
    groupLink(group),
    mark(GROUP_TONES[group.state] ?? "", group.state),
    group.min ?? "?",
    group.bound,
    group.waiting,
    since ? age(since, index.report.taken_at) : "",
    group.domain ? group.domain.value : narrowest ? count(narrowest.domains.length, "domain") : "",
    narrowest ? `${narrowest.crossing}/${narrowest.hops}` : "",
    waitingFor(group),
  ];
}

export function jobsView(index) {
  const ordered = [...index.report.groups].sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state));
  const alone = (index.report.pods ?? []).filter((pod) => isWaiting(pod) && !index.groupOfPod.has(pod.uid));
  return element(
    "div",
    {},
    element("h1", {}, "Jobs"),
    table(
      "Groups of pods",
      ["Group", "State", "Min", "Bound", "Waiting", "Since", "Domain", "Hops", "Waits for"],
      ordered,
      (group) => groupRow(index, group),
      index.report.pods === null ? NOT_LISTED : "No pods form a group.",
    ),
    table(
      "Single pods that wait",
      ["Pod", "State", "Since", "Why"],
      alone,
      (pod) => [podLink(pod), mark("warning", pod.state), pod.created ? age(pod.created, index.report.taken_at) : "", pod.why],
      index.report.pods === null ? NOT_LISTED : "No single pod waits.",
    ),
  );
}

function memberRow(index, group, member) {
  const pod = index.podsByUid.get(member.uid);
  const labels = index.nodes.get(member.node)?.labels ?? {};
  return [
    pod ? podLink(pod) : member.name,
    mark(member.state === "bound" || member.state === "succeeded" ? "good" : "warning", member.state),
    nodeLink(member.node),
    ...group.levels.map((level) => labels[level.label] ?? ""),
    (pod?.vfs ?? []).map((vf) => `${vf.network}: ${vf.pf}/${vf.vf}`).join(", "),
    pod?.node ? "" : (pod?.why ?? ""),
  ];
}

export function groupView(index, namespace, name, source) {
  const named = (one) => one.namespace === namespace && one.name === name && (!source || one.source === source);
  const group = index.report.groups.find(named);
  if (!group) return element("p", {}, `The report has no group '${namespace}/${name}'.`);
  const since = waitsSince(index, group);
  return element(
    "div",
    {},
    element("h1", {}, `${namespace}/${name}`),
    facts([
      ["State", mark(GROUP_TONES[group.state] ?? "", group.state)],
      ["Members", `${group.bound} bound, ${group.waiting} waiting, at least ${group.min ?? "?"} together`],
      ["Named by", group.source],
      ["Waits since", since && `${since} (${age(since, index.report.taken_at)})`],
      ["Waits for", waitingFor(group)],
      ["Refused by", group.hangs_on ? group.hangs_on.nodes.join(", ") : ""],
      ["Within", group.within],
      ["Prefers", group.prefer.join(", ")],
      ["Rails", group.rails],
      ["Domain", group.domain ? `${group.domain.label} ${group.domain.value}` : ""],
      ...group.levels.map((level) => [
        level.label,
        `${count(level.domains.length, "domain")}; ${level.crossing} of ${level.hops} ring hops leave one`,
      ]),
    ]),
    table(
      "Members by rank",
      ["Pod", "State", "Node", ...group.levels.map((level) => level.label), "VFs", "Why"],
      group.members,
      (member) => memberRow(index, group, member),
      "The group has no members.",
    ),
  );
}
