// What `kubectl mooring doctor` finds, with the remedies.
import { element, mark, table } from "./elements.js";
import { subjectLink } from "./links.js";

const LEVEL_TONES = { ok: "good", warning: "warning", error: "bad" };

export function problemsView(index) {
  const { checks, findings } = index.report;
  return element(
    "div",
    {},
    element("h1", {}, "Problems"),
    table(
      "Findings",
      ["Level", "Subject", "Found", "Remedy"],
      findings,
      (one) => [mark(LEVEL_TONES[one.level], one.level), subjectLink(index, one.subject), one.found, one.remedy],
      "No problems found in the API.",
    ),
    table(
      "Checks",
      ["State", "Check", "Result", "More"],
      checks,
      (one) => [mark(LEVEL_TONES[one.state], one.state), one.check, one.text, one.page],
      "",
    ),
  );
}
