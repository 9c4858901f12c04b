// Drives the gate's tools with the official TypeScript client, as a host that shows
// views does: one call is held, and the view's calls go beside it. The one argument
// is JSON: the server's "url", a "token", and the protocol "era" ("legacy" or
// "modern"). The policy lets the view decide on crm.update, and nobody else decides.
import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const { url, token, era } = JSON.parse(process.argv[2]);

const client = new Client(
  { name: "official-host", version: "1" },
  {
    capabilities: { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } } },
    versionNegotiation: { mode: era === "modern" ? { pin: "2026-07-28" } : "legacy" },
  },
);
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }));

const call = (name, args, options) => client.callTool({ name, arguments: args }, options);

const { tools } = await client.listTools();
assert.deepEqual(tools.map((tool) => tool.name).sort(), ["apply", "approval_decide", "approval_request", "approval_revoke", "request_approval"]);
const ask = tools.find((tool) => tool.name === "request_approval");
assert.equal(ask._meta.ui.resourceUri, "ui://approval-gate/view.html");
assert.deepEqual(tools.find((tool) => tool.name === "approval_decide")._meta.ui.visibility, ["app"]);
const { contents } = await client.readResource({ uri: ask._meta.ui.resourceUri });
assert.equal(contents[0].mimeType, "text/html;profile=mcp-app");
assert.match(contents[0].text, /^<!doctype html>/i);

const update = (ids) => ({ action: "crm.update", arguments: { account: "acct_1", ids }, target: "deals", reversible: true });

// hold has the model ask, and resolves with what the view is shown once it is held.
const hold = async (asked, options) => {
  let began;
  const held = new Promise((resolve) => { began = resolve; });
  const answer = call("request_approval", asked, { ...options, onprogress: (progress) => began(progress) });
  answer.catch(() => {}); // it is looked at later
  const progress = await held;
  assert.match(progress.message, /^Waiting for a decision in this host\. .* left\.$/);
  const { request } = (await call("approval_request", { asked })).structuredContent;
  assert.equal(request.decidesHere, true);
  return { answer, request };
};
const about = (request) => ({ requestId: request.requestId, requestVersion: request.requestVersion, digest: request.digest });

// Held with progress, granted, applied once.
const first = await hold(update([101, 102]), { resetTimeoutOnProgress: true });
const granted = await call("approval_decide", { ...about(first.request), outcome: "granted" });
const told = (await first.answer).structuredContent;
assert.deepEqual(Object.keys(told), ["requestId", "requestVersion", "outcome", "scope", "decidedAt", "serverReceiptId"]);
assert.equal(told.outcome, "granted");
assert.deepEqual(granted.structuredContent.decision, told);
assert.deepEqual((await call("apply", { requestId: told.requestId })).structuredContent, { status: "applied", payload: update([101, 102]).arguments });
assert.equal((await call("apply", { requestId: told.requestId })).isError, true);

// Edited: what the person typed is what runs.
const second = await hold(update([1, 2, 3]));
await call("approval_decide", { ...about(second.request), requestVersion: 2, outcome: "granted", editedArgs: '{"account":"acct_1","ids":[1]}' });
const edited = (await second.answer).structuredContent;
assert.equal(edited.requestVersion, 2);
assert.deepEqual(edited.editedArgs, { account: "acct_1", ids: [1] });

// The client gives up: the request is denied, and asking the same again asks anew.
const third = await hold(update([7]), { timeout: 1000 });
await assert.rejects(third.answer, /timed? ?out/i);
let settled;
do {
  ({ request: settled } = (await call("approval_request", { requestId: third.request.requestId, knownRevision: third.request.revision })).structuredContent);
} while (settled.status === "pending");
assert.equal(settled.outcome, "denied");
const fourth = await hold(update([7]));
assert.notEqual(fourth.request.requestId, third.request.requestId);
await call("approval_decide", { ...about(fourth.request), outcome: "denied", reason: "Not today." });
const denied = await fourth.answer;
assert.equal(denied.structuredContent.outcome, "denied");
assert.match(denied.content[1].text, /Not today\./);

await client.close();
console.log("every step passed");
