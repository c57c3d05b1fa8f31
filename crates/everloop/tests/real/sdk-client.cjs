// A client made with the official SDK: calls every tool, first well, then with arguments that do not fit.
//
// sdk-client.cjs stdio PROGRAM ARGS…    or    sdk-client.cjs http URL TOKEN
// stdout: one JSON object, { tools, good: { NAME: text }, bad: { NAME: text }, unknown }.

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

function transport([how, ...rest]) {
  if (how === "stdio") {
    const [command, ...args] = rest;
    return new StdioClientTransport({ command, args, env: process.env });
  }
  const [url, token] = rest;
  return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } });
}

async function main() {
  const client = new Client({ name: "sdk", version: "1.0.0" });
  await client.connect(transport(process.argv.slice(2)));
  const { tools } = await client.listTools();
  const said = { tools: tools.map((tool) => tool.name), good: {}, bad: {} };
  const call = async (name, args) => {
    const result = await client.callTool({ name, arguments: args });
    return { error: result.isError === true, text: result.content[0].text };
  };
  const good = async (name, args) => {
    const { error, text } = await call(name, args);
    if (error) throw new Error(`${name}: ${text}`);
    said.good[name] = JSON.parse(text);
    return said.good[name];
  };
  const loop = (await good("status", {})).loops[0].id;
  await good("add_task", { title: "from the SDK", loop });
  const { task } = await good("next_task", { loop, lease: "5m" });
  await good("report_metric", { task: task.id, name: "latency", value: 1.5, unit: "ms" });
  await good("complete_task", { task: task.id, fence: task.fence, result: "done by the SDK" });
  await good("ask_human", { question: "may I?", loop });
  await good("send_message", { to: "@reviewer", text: "hello" });
  await good("wake", { loop });
  await good("why", { loop });
  await good("sleep_until", { loop, for: "1s", reason: "CI runs" });
  for (const { name } of tools) {
    const { error, text } = await call(name, { nonsense: ["x"] });
    if (!error) throw new Error(`${name} took nonsense`);
    said.bad[name] = text;
  }
  said.unknown = await client.callTool({ name: "rm", arguments: {} }).then(() => "taken", (error) => error.message);
  await client.ping();
  await client.close();
  console.log(JSON.stringify(said));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
