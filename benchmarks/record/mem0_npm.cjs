// Record mem0 of npm (mem0ai/oss) with its default store, a SQLite file in a temporary folder: what it answers to every query, and its lists.
//
//     node mem0_npm.cjs FOLDER OUT.json http://127.0.0.1:8766/v1 VERSION
//
// Run in a folder where mem0ai (seen with 2.4.6 and 3.3.1) and better-sqlite3 are installed, with Node from 22 on. Settings are the defaults.
const fs = require("fs"), os = require("os"), path = require("path");
const { createRequire } = require("module");
const [folder, out, url, version] = process.argv.slice(2);
const place = fs.mkdtempSync(path.join(os.tmpdir(), "record-mem0-npm-"));
Object.assign(process.env, { MEM0_TELEMETRY: "false", HOME: place, OPENAI_API_KEY: "none" });
const { Memory } = createRequire(path.join(process.cwd(), "index.js"))("mem0ai/oss");
const rows = (name) => fs.readFileSync(path.join(folder, name), "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
const created = (row) => row.created_at ?? "";

(async () => {
  const memory = new Memory({
    embedder: { provider: "openai", config: { apiKey: "none", model: "minilm", baseURL: url, url, embeddingDims: 384 } },
    vectorStore: { provider: "memory", config: { collectionName: "recorder", dimension: 384, dbPath: path.join(place, "vectors.db") } },
    llm: { provider: "openai", config: { apiKey: "none", model: "none" } },
    historyDbPath: path.join(place, "history.db"),
    disableHistory: true,
  });
  const ids = {};
  for (const row of rows("memories.jsonl").sort((one, other) => (created(one) < created(other) ? -1 : Number(created(one) > created(other))))) {
    const added = await memory.add(row.content, { userId: "recorder", infer: false });
    ids[added.results[0].id] = row.id;
  }
  const store = memory.vectorStore;
  let lists = {};
  for (const [name, list] of [["search", "semantic"], ["keywordSearch", "keyword"]]) {
    const search = store[name]?.bind(store);
    if (!search) continue;
    store[name] = async (...asked) => {
      const found = await search(...asked);
      if (found) lists[list] = found.map((row) => ({ id: ids[row.id], score: row.score }));
      return found;
    };
  }
  const hybrid = Number(version.split(".")[0]) > 2;
  const scope = hybrid ? { filters: { user_id: "recorder" }, explain: true } : { userId: "recorder" };
  const answers = [];
  for (const query of rows("queries.jsonl")) {
    lists = {};
    const { results } = await memory.search(query.query, scope);
    answers.push({ qid: query.qid, query: query.query, as_of: query.as_of, results: results.map((row) => ({ id: ids[row.id], score: row.score })), lists });
  }
  const config = hybrid ? { top_k: 20, threshold: 0.1 } : { top_k: 100 };
  const said = { engine: `mem0ai of npm ${version}, default store`, embedder: "all-MiniLM-L6-v2", config: { ...config, infer: false } };
  fs.writeFileSync(out, JSON.stringify({ ...said, answered_at: new Date().toISOString(), answers }));
  console.log(`${answers.length} answers in ${out}`);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
