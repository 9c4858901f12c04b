// The forms that a person decides in.
import { button, element } from "./element";
import { Panel } from "./panel";
import type { ApprovalRequest, Choice } from "./server";
import { what } from "./show";

type Form = "choose" | "reject" | "edit";

const headings: Record<Form, string> = { choose: "Your decision", reject: "Reject this?", edit: "Edit the arguments" };

export interface Deciding {
  decide(choice: Choice): Promise<void>;
  /** Opens the review page, or returns false if the host doesn't. */
  open(address: string): Promise<boolean>;
}

export class Decision {
  private readonly panel = new Panel("decide", "Your decision");
  readonly element = this.panel.element;
  private request: ApprovalRequest | undefined;
  private form: Form = "choose";
  private moved = ""; // what was said about a version that took another's place
  private said = ""; // what stands in the place of a form that went away
  // What was typed, which outlives each form.
  private reason = "";
  private edited: { text: string; of: number } | undefined;
  private scope = "";
  private address = ""; // of the review page, where the host doesn't open it

  constructor(private readonly act: Deciding) {}

  get busy(): boolean {
    return this.panel.busy;
  }

  /** Whether somebody could decide here. */
  get open(): boolean {
    return this.request?.status === "pending" && this.request.decidesHere === true;
  }

  settle(): void {
    this.panel.settle();
  }

  complain(text: string): void {
    this.panel.complain(text, true);
  }

  /** Puts a sentence in the place of a form that is no longer of use. */
  say(text: string): void {
    this.said = text;
  }

  draw(request: ApprovalRequest): void {
    const before = this.request;
    this.request = request;
    if (before && before.digest !== request.digest && request.status === "pending") {
      this.moved = `The arguments have changed: this is version ${request.requestVersion} now. Read them again before you decide.`;
      this.scope = "";
    }
    if (before && before.status !== request.status) {
      this.form = "choose";
      this.panel.complain("");
    }
    if (!this.open || (this.form === "edit" && request.editable === undefined)) this.form = "choose";
    this.redraw();
  }

  private redraw(): void {
    const request = this.request;
    if (!request) return;
    const { digest, status, stage, decidesHere, scopes, reasonRequired, needs, waitsFor, reviewUrl, outcome, editable } = request;
    const shows = [
      this.form, this.moved, this.said, this.address, digest, status, decidesHere, scopes, reasonRequired, needs, waitsFor, reviewUrl, outcome,
      editable !== undefined, this.edited?.of, this.open ? "" : stage,
    ];
    this.element.dataset.outcome = outcome ?? "";
    this.panel.draw(shows, () => {
      if (status !== "pending") return this.outcome(request);
      return this.open ? this.forms(request) : this.waiting(request);
    });
  }

  private outcome(request: ApprovalRequest): Node[] {
    const { outcome, status, receipt } = request;
    let text = "";
    if (outcome === "denied") text = "The agent may not run this.";
    else if (outcome === "revoked") text = "The approval was taken back. The agent may not run this.";
    else if (status === "expired") text = receipt ? "The approval wasn't used in time. The agent may not run this." : "Nobody decided in time. The agent may not run this.";
    else if (status === "approved") text = "The agent may run this, with exactly the arguments above.";
    return [
      element("h2", { tabindex: "-1", "data-name": "heading" }, request.stage),
      ...(this.said ? [element("p", {}, this.said)] : []),
      ...(text ? [element("p", {}, text)] : []),
    ];
  }

  private waiting(request: ApprovalRequest): (Node | false | undefined)[] {
    const { reviewUrl } = request;
    return [
      element("h2", { tabindex: "-1", "data-name": "heading" }, "Decided by people elsewhere"),
      this.moved !== "" && element("p", { class: "moved" }, this.moved),
      element("p", {}, element("b", {}, request.waitsFor ?? "Waiting for people to decide"), "."),
      request.needs !== undefined && element("p", {}, `${request.needs}.`),
      reviewUrl !== undefined && element("div", { class: "buttons" }, button("Open the review page", "", "open", () => void this.openPage(reviewUrl))),
      this.address !== "" && element("p", {}, "This host doesn't open pages. The address is ", element("code", { class: "word", tabindex: "0" }, this.address)),
    ];
  }

  private async openPage(address: string): Promise<void> {
    if (await this.act.open(address)) return;
    this.address = address;
    this.redraw();
  }

  private forms(request: ApprovalRequest): (Node | false | undefined)[] {
    return [
      element("h2", { tabindex: "-1", "data-name": "heading" }, headings[this.form]),
      this.moved !== "" && element("p", { class: "moved" }, this.moved),
      element(
        "p",
        { class: "again" },
        ...what(request),
        request.environment ? ` · ${request.environment}` : false,
        request.reversible === false && " · can't be undone",
      ),
      ...(this.form === "reject" ? this.rejecting(request) : this.form === "edit" ? this.editing(request) : this.choosing(request)),
    ];
  }

  private choosing(request: ApprovalRequest): (Node | false | undefined)[] {
    return [
      this.scopes(request),
      request.reasonRequired === true && this.reasonField("Reason (needed to approve)"),
      element(
        "div",
        { class: "buttons" },
        button("Approve", "approve", "approve", () => this.approve(request)),
        button("Reject…", "reject", "reject", () => this.show("reject", "reason")),
        request.editable !== undefined &&
          button("Edit arguments…", "quiet", "edit", () => {
            if (!this.edited) this.editAnew(request);
            this.show("edit", "edited");
          }),
      ),
    ];
  }

  private rejecting(request: ApprovalRequest): Node[] {
    return [
      this.escapes(
        "reject",
        this.reasonField("Reason (optional)"),
        element(
          "div",
          { class: "buttons" },
          button("Reject", "reject sure", "confirm-reject", () => this.send(request, { outcome: "denied" })),
          button("Back", "quiet", "back", () => this.show("choose", "reject")),
        ),
      ),
    ];
  }

  private editing(request: ApprovalRequest): Node[] {
    const next = request.requestVersion + 1;
    const edited = this.edited ?? this.editAnew(request);
    const field = element("textarea", { id: "edited", "data-name": "edited", rows: "12", spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-describedby": "edit-note edit-problem", dir: "ltr" });
    field.value = edited.text;
    const problem = element("p", { id: "edit-problem", class: "note wrong", "aria-live": "polite" });
    const check = () => {
      const wrong = field.value === request.editable ? "" : wrongIn(field.value);
      field.setAttribute("aria-invalid", String(wrong !== ""));
      if (problem.textContent !== wrong) problem.textContent = wrong;
    };
    field.addEventListener("input", () => {
      edited.text = field.value;
      check();
    });
    check();
    const approve = () => {
      const wrong = edited.text === request.editable ? "Nothing is changed yet." : wrongIn(edited.text);
      if (wrong === "") return this.approve(request, edited.text);
      problem.textContent = wrong;
      field.focus();
    };
    const startAgain = () => {
      this.editAnew(request);
      this.show("edit", "edited");
    };
    return [
      this.escapes(
        "edit",
        element("label", { for: "edited" }, "Arguments, as JSON"),
        element("p", { id: "edit-note", class: "note" }, `What you approve here becomes version ${next}: exactly this text runs, and not version ${request.requestVersion}.`),
        ...(edited.of === request.requestVersion
          ? []
          : [element("p", { class: "moved" }, `This is what you typed over version ${edited.of}. `, button(`Start again from version ${request.requestVersion}`, "quiet", "restart", startAgain))]),
        field,
        problem,
        this.scopes(request),
        request.reasonRequired === true && this.reasonField("Reason (needed to approve)"),
        element(
          "div",
          { class: "buttons" },
          button(`Approve as version ${next}`, "approve", "approve-edit", approve),
          button("Back", "quiet", "back", () => this.show("choose", "edit")),
        ),
      ),
    ];
  }

  private editAnew(request: ApprovalRequest): { text: string; of: number } {
    this.edited = { text: request.editable ?? "", of: request.requestVersion };
    return this.edited;
  }

  private escapes(opener: string, ...children: (Node | string | false)[]): HTMLElement {
    const form = element("div", {}, ...children);
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.isComposing || this.busy) return;
      event.stopPropagation();
      this.show("choose", opener);
    });
    return form;
  }

  private scopes(request: ApprovalRequest): Node | false {
    const offered = request.scopes ?? [];
    const [first] = offered;
    if (!first) return false;
    if (!offered.some((one) => one.scope === this.scope)) this.scope = first.scope;
    if (offered.length === 1) return first.scope !== "once" && element("p", {}, "Approving lasts: ", element("b", {}, first.words));
    return element(
      "fieldset",
      {},
      element("legend", {}, "Approve for how long?"),
      ...offered.map(({ scope, words }) => {
        const radio = element("input", { type: "radio", name: "scope", value: scope, "data-name": `scope-${scope}` });
        radio.checked = scope === this.scope;
        radio.addEventListener("change", () => {
          this.scope = scope;
        });
        return element("label", { class: "choice" }, radio, words);
      }),
    );
  }

  private reasonField(label: string): HTMLElement {
    const field = element("textarea", { id: "reason", "data-name": "reason", rows: "3" });
    field.value = this.reason;
    field.addEventListener("input", () => {
      this.reason = field.value;
    });
    return element("div", { class: "field" }, element("label", { for: "reason" }, label), field);
  }

  private show(form: Form, focus: string): void {
    this.form = form;
    this.panel.complain("");
    this.redraw();
    this.panel.named(focus)?.focus();
  }

  private approve(request: ApprovalRequest, editedArgs?: string): void {
    if (request.reasonRequired && this.reason.trim() === "") {
      this.panel.complain("Approving this takes a reason.");
      this.panel.named("reason")?.focus();
      return;
    }
    this.send(request, { outcome: "granted", ...(this.scope && { scope: this.scope }), ...(editedArgs !== undefined && { editedArgs }) });
  }

  private send(request: ApprovalRequest, choice: Choice): void {
    if (request.digest !== this.request?.digest) return; // what was pressed shows another version
    const reason = choice.outcome === "denied" || request.reasonRequired ? this.reason.trim() : "";
    void this.panel.during("Sending…", () => this.act.decide(reason ? { ...choice, reason } : choice));
  }
}

const wrongIn = (text: string): string => {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? "" : "Arguments are an object: { … }.";
  } catch (error) {
    return `This isn't JSON yet: ${error instanceof Error ? error.message : String(error)}`;
  }
};
