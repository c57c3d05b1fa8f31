// A client made with the official SDK: calls every tool, first well, then with arguments that do not fit.
//
// sdk-client.cjs REVISION stdio PROGRAM ARGS…    or    sdk-client.cjs REVISION http URL TOKEN
// REVISION: the revision of the protocol, with version 2 of the SDK; `-`: version 1, which chooses itself.
// stdout: one JSON object, { revision, tools, good: { NAME: text }, bad: { NAME: text }, unknown }.

const [revision, how, ...rest] = process.argv.slice(2);
const first = revision === "-";
const { Client, StreamableHTTPClientTransport } = first
  ? {
      ...require("@modelcontextprotocol/sdk/client/index.js"),
      ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
    }
  : require("@modelcontextprotocol/client");
const { StdioClientTransport } = require(
  first ? "@modelcontextprotocol/sdk/client/stdio.js" : "@modelcontextprotocol/client/stdio",
);
// From this revision on there is no handshake: every request names its revision.
const handshake = revision < "2026-07-28";

function transport() {
  if (how === "stdio") {
    const [command, ...args] = rest;
    return new StdioClientTransport({ command, args, env: process.env });
  }
  const [url, token] = rest;
  return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } });
}

function options() {
  if (first) return {};
  return handshake ? { supportedProtocolVersions: [revision] } : { versionNegotiation: { mode: { pin: revision } } };
}

async function main() {
  const client = new Client({ name: "sdk", version: "1.0.0" }, options());
  await client.connect(transport());
  const { tools } = await client.listTools();
  const said = { tools: tools.map((tool) => tool.name), good: {}, bad: {} };
  if (!first) said.revision = client.getNegotiatedProtocolVersion();
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
  await good("diff", { loop });
  await good("sleep_until", { loop, for: "1s", reason: "CI runs" });
  for (const { name } of tools) {
    const { error, text } = await call(name, { nonsense: ["x"] });
    if (!error) throw new Error(`${name} took nonsense`);
    said.bad[name] = text;
  }
  said.unknown = await client.callTool({ name: "rm", arguments: {} }).then(() => "taken", (error) => error.message);
  if (handshake) await client.ping();
  await client.close();
  console.log(JSON.stringify(said));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
