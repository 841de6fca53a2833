// Addresses of the views: #/cluster, #/nodes/NODE, #/jobs/NAMESPACE/NAME, #/pods/NAMESPACE/NAME, #/problems, #/search.
import { element } from "./elements.js";

export function address(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function parseAddress(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { parts, options: new URLSearchParams(query) };
}

const link = (text, ...parts) => element("a", { href: address(...parts) }, text);

export const nodeLink = (name) => (name ? link(name, "nodes", name) : "");
export const podLink = (pod) => link(`${pod.namespace}/${pod.name}`, "pods", pod.namespace, pod.name);
export const groupLink = (group) =>
  link(`${group.namespace}/${group.name}`, "jobs", group.namespace, group.name, group.source);

// A finding's subject, such as node/n1 or pod/default/a, as a link where the report has that object.
export function subjectLink(index, subject) {
  const [kind, ...rest] = subject.split("/");
  const name = rest.join("/");
  if (kind === "node" && index.nodes.has(name)) return link(subject, "nodes", name);
  if (kind === "pod" && index.pods.has(name)) return link(subject, "pods", ...rest);
  const group = kind === "group" && index.report.groups.find((one) => `${one.namespace}/${one.name}` === name);
  if (group) return link(subject, "jobs", group.namespace, group.name, group.source);
  return subject;
}
