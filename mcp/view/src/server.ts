// What the view asks the server through the host, and how it reads the answers.
import type { App } from "@modelcontextprotocol/ext-apps";

/** A part of a line: words, somebody else's word, or a time in the reader's zone. */
export interface Piece {
  text?: string;
  style?: string;
  time?: string;
}

export type Line = Piece[];

export interface Receipt {
  serverReceiptId: string;
  outcome: string;
  by: Line;
  decidedAt: string;
  surface: string;
  person: boolean;
  signed?: string;
}

/** The server's own copy of what is asked. */
export interface ApprovalRequest {
  requestId: string;
  requestVersion: number;
  digest: string;
  revision: number;
  status: "pending" | "approved" | "rejected" | "expired" | "applied";
  outcome?: "granted" | "denied" | "expired" | "revoked";
  stage: string;
  action: string;
  count?: string;
  environment?: string;
  reversible?: boolean;
  purpose?: { label: Line; text: string };
  facts?: { label: string; value: Line }[];
  warnings?: Line[];
  arguments: { label: Line; text: string; exact: string; hidden: number };
  editable?: string;
  decidesHere?: boolean;
  needs?: string;
  waitsFor?: string;
  scopes?: { scope: string; words: string }[];
  reasonRequired?: boolean;
  expiresAt?: string;
  now?: string;
  history?: Line[];
  receipt?: Receipt;
  canRevoke?: boolean;
  reviewUrl?: string;
  notice?: string;
}

/** What a person decided about the version that they saw. */
export interface Choice {
  outcome: "granted" | "denied";
  scope?: string;
  editedArgs?: string;
  reason?: string;
}

/** The server's answer to a decision of this view. */
export interface Decided {
  receiptId: string | undefined;
  request: ApprovalRequest;
}

/** The server said no, and nothing changed. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** What a tool's result says: its structured content, or else its first text, which is the same. */
export const contentOf = (result: { structuredContent?: unknown; content?: unknown }): Record<string, unknown> | undefined => {
  let said: unknown = result.structuredContent;
  if (said === undefined) {
    try {
      said = JSON.parse(textOf(result));
    } catch {
      return undefined;
    }
  }
  return said && typeof said === "object" && !Array.isArray(said) ? (said as Record<string, unknown>) : undefined;
};

const textOf = (result: { content?: unknown }): string => {
  const blocks = Array.isArray(result.content) ? result.content : [];
  const first = blocks.find((block) => block?.type === "text");
  return typeof first?.text === "string" ? first.text : "";
};

const unreadable = "The server's answer can't be read.";

const isRequest = (value: unknown): value is ApprovalRequest => {
  const request = value as ApprovalRequest;
  return (
    typeof request === "object" &&
    request !== null &&
    typeof request.requestId === "string" &&
    typeof request.digest === "string" &&
    Number.isSafeInteger(request.requestVersion) &&
    Number.isSafeInteger(request.revision) &&
    typeof request.action === "string" &&
    typeof request.arguments?.text === "string"
  );
};

const requestIn = (said: Record<string, unknown>): ApprovalRequest => {
  if (!isRequest(said.request)) throw new Error(unreadable);
  return said.request;
};

// A wait at the server ends after 20 s; an answer that takes longer is lost.
const patience = 45_000;

export class Server {
  constructor(private readonly app: App) {}

  /** The held call whose arguments these are; null if none is held yet. */
  async find(asked: Record<string, unknown>): Promise<ApprovalRequest | null> {
    const said = await this.call("approval_request", { asked });
    return said.request === null ? null : requestIn(said);
  }

  /** A request, at once or as soon as its revision is another than the known one. */
  async load(requestId: string, knownRevision?: number, signal?: AbortSignal): Promise<ApprovalRequest> {
    return requestIn(await this.call("approval_request", knownRevision === undefined ? { requestId } : { requestId, knownRevision }, signal));
  }

  /** Decides on the version that is shown, or on the next one, which the edit makes. */
  async decide(shown: ApprovalRequest, choice: Choice): Promise<Decided> {
    const { requestId, requestVersion, digest } = shown;
    const edits = choice.editedArgs === undefined ? 0 : 1;
    return this.settled(await this.call("approval_decide", { requestId, requestVersion: requestVersion + edits, digest, ...choice }));
  }

  /** Takes an approval back. */
  async revoke(shown: ApprovalRequest, reason: string): Promise<Decided> {
    const { requestId, requestVersion, digest } = shown;
    return this.settled(await this.call("approval_revoke", { requestId, requestVersion, digest, ...(reason && { reason }) }));
  }

  private settled(said: Record<string, unknown>): Decided {
    const id = (said.decision as { serverReceiptId?: unknown } | undefined)?.serverReceiptId;
    return { receiptId: typeof id === "string" ? id : undefined, request: requestIn(said) };
  }

  private async call(name: string, given: Record<string, unknown>, signal?: AbortSignal): Promise<Record<string, unknown>> {
    const result = await this.app.callServerTool({ name, arguments: given }, { timeout: patience, ...(signal && { signal }) });
    const said = contentOf(result);
    if (result.isError) {
      const message = typeof said?.message === "string" ? said.message : textOf(result);
      throw new Refusal(typeof said?.error === "string" ? said.error : "unavailable", message || "The server refused this.");
    }
    if (!said) throw new Error(unreadable);
    return said;
  }
}
