// A part in which a person presses buttons. It makes sure that nobody presses what
// has only just come under their finger, and nothing twice.
import { element, keep } from "./element";

// Long enough for somebody to see that what they were about to press has changed.
const settling = 500;

export class Panel {
  private readonly status = element("p", { class: "status", role: "status" });
  private readonly problem = element("p", { class: "problem", role: "alert", tabindex: "-1" });
  private readonly content = element("div");
  readonly element: HTMLElement;
  private timer: number | undefined;

  constructor(id: string, label: string) {
    this.element = element("section", { id, "aria-label": label, hidden: true }, this.content, this.problem, this.status);
    this.element.addEventListener("click", (event) => this.guard(event), { capture: true });
  }

  private guard(event: Event): void {
    const pressed = event.target instanceof Element && event.target.closest("button, input, label");
    if (!pressed || (!this.busy && !("settling" in this.element.dataset))) return;
    event.preventDefault();
    event.stopPropagation();
  }

  get busy(): boolean {
    return "busy" in this.element.dataset;
  }

  /** Ignores what is pressed for a moment, because something has moved. */
  settle(): void {
    this.element.dataset.settling = "";
    clearTimeout(this.timer);
    this.timer = setTimeout(() => delete this.element.dataset.settling, settling);
  }

  /** Draws what is in the panel if it has changed; whoever was in it stays where they were. */
  draw(shows: unknown, children: () => (Node | string | false | undefined)[]): void {
    const active = document.activeElement;
    const inside = active instanceof HTMLElement && this.content.contains(active) ? active : undefined;
    const name = inside?.dataset.name;
    const typing = inside instanceof HTMLTextAreaElement ? ([inside.selectionStart, inside.selectionEnd, inside.scrollTop] as const) : undefined;
    if (!keep(this.content, shows, children)) return;
    this.settle();
    this.element.hidden = !this.content.hasChildNodes();
    if (!inside) return;
    const same = name ? this.named(name) : undefined;
    (same ?? this.named("heading"))?.focus({ preventScroll: true });
    if (typing && same instanceof HTMLTextAreaElement) {
      same.setSelectionRange(typing[0], typing[1]);
      same.scrollTop = typing[2];
    }
  }

  /** What has a name in the panel. */
  named(name: string): HTMLElement | undefined {
    return this.content.querySelector<HTMLElement>(`[data-name="${name}"]`) ?? undefined;
  }

  /** Does something that takes the server's answer; until then nothing else is pressed. */
  async during(saying: string, work: () => Promise<void>): Promise<void> {
    this.complain("");
    this.lock(true);
    this.status.textContent = saying;
    try {
      await work();
    } finally {
      this.status.textContent = "";
      this.lock(false);
    }
  }

  // What is disabled loses the focus, so it is only said to be, and does nothing.
  private lock(locked: boolean): void {
    if (locked) this.element.dataset.busy = "";
    else delete this.element.dataset.busy;
    for (const control of this.element.querySelectorAll("button, input, textarea")) {
      if (control instanceof HTMLTextAreaElement) control.readOnly = locked;
      else if (locked) control.setAttribute("aria-disabled", "true");
      else control.removeAttribute("aria-disabled");
    }
  }

  /** Says what went wrong, beneath what was pressed, so that nothing moves. */
  complain(text: string, focus = false): void {
    if (this.problem.textContent !== text) this.problem.textContent = text;
    if (focus && text) this.problem.focus({ preventScroll: true });
  }
}
