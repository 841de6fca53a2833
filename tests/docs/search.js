// search.js SITE QUERIES: rank with the site's own search program and index; print the first page of each query.
const fs = require("fs"), path = require("path");
const [site, queries] = [process.argv[2], JSON.parse(process.argv[3])];
const workers = path.join(site, "assets/javascripts/workers");
const program = fs.readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));

// What a browser gives a worker.
let listener, answer;
Object.assign(globalThis, {
  self: globalThis,
  addEventListener: (_, heard) => { listener = heard; },
  postMessage: (message) => answer(message),
  importScripts: () => {},
});
(0, eval)(fs.readFileSync(path.join(workers, program), "utf8"));
const send = (type, data) => new Promise((resolve) => { answer = resolve; listener({ data: { type, data } }); });

(async () => {
  const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"));
  await send(0, { ...index, options: { suggest: false } });
  const first = {};
  for (const query of queries) {
    const pages = (await send(2, query)).data.items;
    first[query] = pages.length ? pages[0][0].location : "";
  }
  console.log(JSON.stringify(first));
})();
