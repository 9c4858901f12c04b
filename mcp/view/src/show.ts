// Draws what is asked: the server's own copy, never what the agent handed the host.
import { button, element, folded, keep, laidOut, pieces } from "./element";
import type { ApprovalRequest } from "./server";
import { Countdown, span } from "./time";

const marks: Record<string, string> = { pending: "🟡", approved: "✅", applied: "🔵", rejected: "⛔", expired: "⌛" };

/** What is asked, in one line. */
export const what = (request: ApprovalRequest): (Node | string | false)[] => [
  element("code", { class: "word" }, request.action),
  request.count ? ` on ${request.count}` : false,
];

export class Shown {
  private readonly stage = element("p", { class: "stage" });
  private readonly left = element("p", { class: "left", role: "timer" });
  private readonly notice = element("p", { class: "notice" });
  private readonly asked = element("h1");
  private readonly undo = element("p", { class: "undo" });
  private readonly facts = element("dl", { class: "facts" });
  private readonly warnings = element("ul", { class: "warnings", "aria-label": "Warnings" });
  private readonly payload = element("section", { class: "arguments" });
  private readonly purpose = element("section", { class: "purpose" });
  private readonly history = element("section", { class: "history" });
  private readonly print = element("p", { class: "print" });
  private readonly whole = element("p", { class: "note more", hidden: true }, "This is longer than it looks: scroll to read all of it.");
  private countdown: Countdown | undefined;
  private deciding = true;

  /** What stands before the decision, and what stands after it. */
  readonly before: HTMLElement[] = [
    element("header", { class: "where" }, this.stage, this.left),
    this.notice,
    this.asked,
    this.undo,
    this.facts,
    this.warnings,
    this.payload,
    this.purpose,
  ];
  readonly after: HTMLElement[] = [this.history, this.print];

  constructor() {
    new ResizeObserver(() => this.measure()).observe(this.payload);
  }

  /** Draws the request, and says whether anything moved. */
  draw(request: ApprovalRequest): boolean {
    const { arguments: given, purpose, reversible, environment } = request;
    this.countdown = request.expiresAt && request.now ? new Countdown(request.expiresAt, request.now) : undefined;
    this.deciding = request.status === "pending";
    this.tick();
    const changed = [
      keep(this.stage, [request.status, request.stage, environment], () => [
        element("span", { "aria-hidden": "true" }, marks[request.status] ?? "⚪"),
        " ",
        element("b", {}, request.stage),
        environment ? " · " : false,
        environment ? element("b", { class: "environment" }, environment) : false,
      ]),
      keep(this.notice, request.notice, () => [request.notice]),
      keep(this.asked, [request.action, request.count], () => what(request)),
      keep(this.undo, reversible, () => {
        if (reversible === undefined) return ["It isn't known whether this can be undone."];
        return reversible ? ["The agent says that this can be undone."] : [element("span", { "aria-hidden": "true" }, "⚠️ "), "Can't be undone."];
      }),
      keep(this.facts, request.facts, () =>
        (request.facts ?? []).map((fact) => element("div", {}, element("dt", {}, fact.label), element("dd", {}, ...pieces(fact.value)))),
      ),
      keep(this.warnings, request.warnings, () =>
        (request.warnings ?? []).map((warning) => element("li", {}, element("span", { "aria-hidden": "true" }, "⚠️ "), ...pieces(warning))),
      ),
      keep(this.payload, given, () => [
        element("h2", {}, ...pieces(given.label)),
        laidOut("Arguments", given.text, "payload"),
        this.whole,
        given.hidden > 0 && element("p", { class: "note" }, `The policy hides ${given.hidden === 1 ? "a value" : `${given.hidden} values`} here.`),
        folded("Exact text", laidOut("Arguments, exactly as written", given.exact)),
      ]),
      keep(this.purpose, purpose, () => (purpose ? [element("h2", {}, ...pieces(purpose.label)), element("blockquote", { dir: "auto" }, purpose.text)] : [])),
      keep(this.history, request.history, () =>
        request.history?.length
          ? [element("h2", {}, "What happened"), element("ul", {}, ...request.history.map((line) => element("li", {}, ...pieces(line))))]
          : [],
      ),
      keep(this.print, [request.requestVersion, request.digest, request.requestId], () => [
        `Version ${request.requestVersion} · Digest ${request.digest} · ${request.requestId}`,
      ]),
    ].some(Boolean);
    this.undo.classList.toggle("final", reversible === false);
    this.measure();
    return changed;
  }

  /** Counts down, and returns what is left in milliseconds; undefined if nothing ends. */
  tick(): number | undefined {
    const left = this.countdown?.left();
    const text = left === undefined ? "" : left > 0 ? `${span(left)} left${this.deciding ? " to decide" : " to run it"}` : "The time is up";
    if (this.left.textContent !== text) this.left.textContent = text;
    this.left.classList.toggle("soon", left !== undefined && left < 60_000);
    return left;
  }

  private measure(): void {
    const text = this.payload.querySelector(".payload");
    if (text) this.whole.hidden = text.scrollHeight <= text.clientHeight + 1;
  }
}

/** What stands there while there is nothing to show, and what to do then. */
export const instead = (text: string, again?: () => void): HTMLElement =>
  element("section", { class: "instead", role: "status" }, element("p", {}, text), again && button("Look again", "quiet", "again", again));
