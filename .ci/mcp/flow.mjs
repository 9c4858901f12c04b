// Drives the four tools with the official TypeScript client, as a host does.
// The one argument is JSON: how to reach the server ("url" and "token", or
// "command", "args" and "env") and the protocol "era" ("legacy" or "modern").
// Somebody decides requests as their purpose says; what is left undecided waits
// for a second at a time.
import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const { url, token, command, args, env, era } = JSON.parse(process.argv[2]);
const modern = era === "modern";

const client = new Client(
  { name: "official-client", version: "1" },
  {
    capabilities: { elicitation: { url: {} } },
    versionNegotiation: { mode: modern ? { pin: "2026-07-28" } : "legacy" },
  },
);
const prompts = [];
const completed = [];
client.setRequestHandler("elicitation/create", async (request) => {
  prompts.push(request.params);
  return { action: "accept" };
});
if (!modern) {
  client.setNotificationHandler("notifications/elicitation/complete", (notification) => {
    completed.push(notification.params.elicitationId);
  });
}

await client.connect(
  url
    ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } })
    : new StdioClientTransport({ command, args, env: { ...process.env, ...env } }),
);

const call = (name, args, options) => client.callTool({ name, arguments: args }, options);
const fields = (result) => Object.keys(result.structuredContent).sort();
const same = (result) => assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent);

const { tools } = await client.listTools();
assert.deepEqual(tools.map((tool) => tool.name).sort(), ["apply", "await_approval", "check_status", "request_approval"]);
for (const tool of tools) {
  assert.ok(tool.title && tool.description && tool.outputSchema && tool.annotations, `${tool.name} is fully declared`);
}

// Asked, approved, applied: once, and exactly.
const payload = { id: 9007199254740991, rate: 0.1, where: "a < b && c", list: ["é", "\u{1f600}"] };
const asked = await call("request_approval", { purpose: "approve: go on", payload, ttlSeconds: 600, action: "test.run", count: 3, reversible: true });
assert.deepEqual(fields(asked), ["elicitationDelivered", "elicitationId", "expiresAt", "reviewUrl", "status"]);
same(asked);
const { elicitationId, reviewUrl, status, expiresAt, elicitationDelivered } = asked.structuredContent;
assert.equal(status, "pending");
assert.ok(reviewUrl.endsWith(`/review?elicitationId=${elicitationId}`));
assert.match(expiresAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
assert.equal(elicitationDelivered, !modern);

// What every agent does: wait on while nobody has decided.
const decision = async (id) => {
  for (;;) {
    const result = await call("await_approval", { elicitationId: id });
    if (result.structuredContent?.status !== "pending") return result;
  }
};
const awaited = await decision(elicitationId);
assert.deepEqual(awaited.structuredContent, { status: "approved" });
same(awaited);
const applied = await call("apply", { elicitationId });
assert.deepEqual(applied.structuredContent, { status: "applied", payload });
assert.equal(applied.content[0].text, `{"status":"applied","payload":${JSON.stringify(payload)}}`);
assert.equal((await call("apply", { elicitationId })).isError, true);
assert.deepEqual((await call("check_status", { elicitationId })).structuredContent, { status: "applied" });

// Rejected.
const refused = await call("request_approval", { purpose: "reject: too risky", payload: {} });
const no = await decision(refused.structuredContent.elicitationId);
assert.deepEqual(no.structuredContent, { status: "rejected" });
assert.match(no.content[1].text, /too risky/);

// Undecided: progress, then pending.
const open = await call("request_approval", { purpose: "nobody looks", payload: { other: true } });
const progress = [];
const waited = await call("await_approval", { elicitationId: open.structuredContent.elicitationId }, { onprogress: (p) => progress.push(p) });
assert.deepEqual(waited.structuredContent, { status: "pending" });
assert.match(progress[0].message, /^Waiting for a person: 1 of finance\. .* left\.$/);

// Wrong input.
const wrong = await call("request_approval", { purpose: "p", payload: {}, approver: "me" });
assert.equal(wrong.isError, true);
assert.match(wrong.content[0].text, /approver: is not an input of request_approval/);

if (modern) {
  assert.equal(prompts.length, 0);
} else {
  assert.equal(prompts.length, 3);
  assert.equal(prompts[0].mode, "url");
  assert.equal(prompts[0].url, reviewUrl);
  assert.equal(prompts[0].elicitationId, elicitationId);
  while (completed.length < 2) {
    await new Promise((resolve) => setTimeout(resolve, 10)); // until the test's own limit
  }
  assert.ok(completed.includes(elicitationId));
}

await client.close();
console.log("every step passed");
