// Shows what is recorded about a decision, and takes an approval back.
import { button, element, folded, keep, laidOut, pieces } from "./element";
import { Panel } from "./panel";
import type { ApprovalRequest } from "./server";
import { moment } from "./time";

// Where something is decided that nobody takes for a person.
const nobody = new Set(["policy", "grant"]);

/** The receipt of the last decision. */
export class Recorded {
  readonly element = element("section", { class: "receipt", "aria-label": "Receipt" });
  private readonly confirmed = new Set<string>();

  /** Notes that the server answered a decision of this view with a receipt. */
  confirm(receiptId: string | undefined): void {
    if (receiptId) this.confirmed.add(receiptId);
  }

  draw({ receipt, outcome }: ApprovalRequest): boolean {
    const verified = receipt !== undefined && this.confirmed.has(receipt.serverReceiptId);
    this.element.hidden = !receipt;
    return keep(this.element, [receipt, outcome, verified], () => {
      if (!receipt) return [];
      const { signed } = receipt;
      return [
        element("h2", {}, "Receipt"),
        element(
          "p",
          { class: "verified" },
          verified && element("span", { "aria-hidden": "true" }, "✔ "),
          element("b", {}, verified ? "Verified" : "Recorded"),
          " · ",
          element("code", { class: "word" }, receipt.serverReceiptId),
        ),
        element("p", { class: "note" }, verified ? "The server has answered what was pressed here with this receipt." : "Read from the server, not decided in this view since it was opened."),
        element(
          "p",
          {},
          outcome === "revoked" ? "Revoked by " : receipt.outcome === "granted" ? "Approved by " : "Rejected by ",
          ...pieces(receipt.by),
          !receipt.person && !nobody.has(receipt.surface) && ", not a verified person",
          ", ",
          element("time", { datetime: receipt.decidedAt }, moment(receipt.decidedAt)),
        ),
        signed !== undefined && folded("Signed receipt", ...this.copied(signed)),
      ];
    });
  }

  private copied(signed: string): Node[] {
    const text = laidOut("Signed receipt", signed);
    const said = element("span", { role: "status", class: "note" });
    const copy = button("Copy", "quiet", "copy", () => {
      void copyText(signed, text).then((worked) => {
        said.textContent = worked ? "Copied." : "This host doesn't let the view copy. The text is selected: copy it from here.";
      });
    });
    return [text, element("div", { class: "buttons" }, copy, said)];
  }
}

// In a sandboxed frame a browser often grants only the old way, or none.
const copyText = async (text: string, shown: HTMLElement): Promise<boolean> => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection()?.selectAllChildren(shown);
    return document.execCommand("copy");
  }
};

/** Takes an approval back that nothing has run by yet. */
export class Revocation {
  private readonly panel = new Panel("revoke", "Revoke the approval");
  readonly element = this.panel.element;
  private request: ApprovalRequest | undefined;
  private sure = false;
  private reason = "";

  constructor(private readonly revoke: (reason: string) => Promise<void>) {}

  get busy(): boolean {
    return this.panel.busy;
  }

  settle(): void {
    this.panel.settle();
  }

  complain(text: string): void {
    this.panel.complain(text, true);
  }

  draw(request: ApprovalRequest): void {
    if (this.request?.canRevoke !== request.canRevoke) this.panel.complain("");
    this.request = request;
    if (!request.canRevoke) this.sure = false;
    this.redraw();
  }

  private redraw(): void {
    const request = this.request;
    this.panel.draw([request?.canRevoke, request?.digest, this.sure], () => {
      if (!request?.canRevoke) return [];
      return this.sure ? [this.confirming()] : [button("Revoke approval…", "reject", "revoke", () => this.show(true, "revoke-reason"))];
    });
  }

  private confirming(): HTMLElement {
    const field = element("textarea", { id: "revoke-reason", "data-name": "revoke-reason", rows: "2" });
    field.value = this.reason;
    field.addEventListener("input", () => {
      this.reason = field.value;
    });
    const form = element(
      "div",
      {},
      element("h2", { tabindex: "-1", "data-name": "heading" }, "Revoke the approval?"),
      element("p", {}, "The agent may not run this then. It has to ask again."),
      element("div", { class: "field" }, element("label", { for: "revoke-reason" }, "Reason (optional)"), field),
      element(
        "div",
        { class: "buttons" },
        button("Revoke approval", "reject sure", "confirm-revoke", () => void this.panel.during("Sending…", () => this.revoke(this.reason.trim()))),
        button("Keep it", "quiet", "keep", () => this.show(false, "revoke")),
      ),
    );
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.isComposing || this.busy) return;
      event.stopPropagation();
      this.show(false, "revoke");
    });
    return form;
  }

  private show(sure: boolean, focus: string): void {
    this.sure = sure;
    this.panel.complain("");
    this.redraw();
    this.panel.named(focus)?.focus();
  }
}
