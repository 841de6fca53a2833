// Follows the report of `kubectl mooring ui`: what has changed in it, and whether the API server answers.
import { age, number } from "./elements.js";
import { changedReport } from "./report_changes.js";

const RETRY_MS = 2000;
const TICK_MS = 1000;
let isLive = false;
let connection = "";
// What the server says of the API server: {reading, count} at first, {answered_at, failure} while it does not answer.
let api = {};
let heardAt = "";

// The secret comes with the address once, and leaves it at once. Other tabs of this server have it from the storage.
export function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (!given) return false;
  localStorage.setItem("token", given[1]);
  history.replaceState(null, "", "#/cluster");
  return true;
}

// What to say about the connection, and about the age of the report.
export function liveText(takenAt) {
  if (!isLive) return { text: "", last: takenAt && `Report of ${takenAt}` };
  const since = connection ? heardAt : api.failure ? api.answered_at : "";
  const last = since && takenAt ? `Last update ${age(since, Date.now())} ago` : takenAt && `Last change ${takenAt}`;
  if (connection) return { text: connection, last };
  if (api.failure) return { text: "The API server does not answer", last };
  if (!takenAt) return { text: api.reading ? `Reading ${api.reading}: ${number(api.count)} so far` : "Reading the cluster…", last };
  return { text: "live", last };
}

async function* linesOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const [first, ...others] = value.split("\n");
    parts.push(first);
    for (const other of others) {
      const line = parts.join("");
      parts = [other];
      yield line;
    }
  }
}

export async function followServer(update, tell) {
  isLive = true;
  setInterval(() => (connection || api.failure) && tell(), TICK_MS);
  for (;;) {
    try {
      const answer = await fetch("changes", { headers: { Authorization: `Bearer ${localStorage.getItem("token") ?? ""}` } });
      if (answer.ok) await followLines(answer, update, tell);
      connection = answer.ok
        ? "`kubectl mooring ui` does not answer"
        : "The address has no valid token: open the one that `kubectl mooring ui` printed";
    } catch {
      // The server is gone: its last report stays on the screen.
      connection = "`kubectl mooring ui` does not answer";
    }
    tell();
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function followLines(answer, update, tell) {
  let report = null;
  for await (const line of linesOf(answer)) {
    const { report: whole, changes, state } = JSON.parse(line);
    connection = "";
    heardAt = new Date().toISOString();
    if (state) api = state;
    if (whole) report = whole;
    if (changes) report = changedReport(report, changes);
    if (whole || changes) {
      const shown = report;
      // Outside of this function: an error of a view is no lost connection.
      queueMicrotask(() => update(shown));
    }
    tell();
  }
}
