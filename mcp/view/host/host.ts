// A host as small as can be, made of the official library: it puts the view into a
// sandboxed frame and hands on what it asks for. What it is to do comes from the test
// in window.plan, and what happened is in window.seen.
import { AppBridge, type McpUiHostContext, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";

interface Plan {
  input?: Record<string, unknown>;
  result?: Record<string, unknown>;
  context?: McpUiHostContext;
  openLinks?: boolean;
}

declare global {
  interface Window {
    start: (plan: Plan) => Promise<void>;
    bridge: AppBridge;
    seen: { opened: string[]; height: number; initialized: boolean };
  }
}

window.seen = { opened: [], height: 0, initialized: false };

window.start = async ({ input, result, context, openLinks }) => {
  const frame = document.createElement("iframe");
  frame.id = "view";
  frame.title = "Approval Gate";
  frame.setAttribute("sandbox", "allow-scripts");
  const bridge = new AppBridge(null, { name: "test host", version: "1" }, { serverTools: {}, ...(openLinks !== false && { openLinks: {} }) }, { hostContext: context ?? {} });
  window.bridge = bridge;
  bridge.oncalltool = async (params, extra) => {
    const response = await fetch("/call", { method: "POST", body: JSON.stringify(params), signal: extra.mcpReq.signal });
    if (!response.ok) throw new Error(await response.text());
    return response.json();
  };
  bridge.onopenlink = async ({ url }) => {
    if (openLinks === false) return { isError: true };
    window.seen.opened.push(url);
    return {};
  };
  bridge.onsizechange = ({ height }) => {
    if (height === undefined) return;
    window.seen.height = height;
    frame.style.height = `${height}px`;
  };
  bridge.oninitialized = () => {
    window.seen.initialized = true;
    if (input) void bridge.sendToolInput({ arguments: input });
    if (result) void bridge.sendToolResult(result as never);
  };
  document.body.append(frame);
  await bridge.connect(new PostMessageTransport(frame.contentWindow!, frame.contentWindow!));
  frame.src = "/view.html";
};
