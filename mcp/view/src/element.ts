// Makes elements. What is put into them is text: nothing that comes from elsewhere
// is ever read as HTML.
import type { Line } from "./server";
import { moment } from "./time";

type Child = Node | string | false | undefined;

/** An element with attributes and what is in it; what is false or undefined is left out. */
export const element = <Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Record<string, string | boolean | undefined> = {},
  ...children: Child[]
): HTMLElementTagNameMap[Name] => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (typeof value === "string") made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== false && child !== undefined));
  return made;
};

export const button = (label: string, kind: string, name: string, press: () => void): HTMLButtonElement => {
  const made = element("button", { type: "button", class: kind, "data-name": name }, label);
  made.addEventListener("click", press);
  return made;
};

/** The parts of a line, each kept apart from what is written around it. */
export const pieces = (line: Line | undefined): Node[] =>
  (line ?? []).map((piece) => {
    if (piece.time) return element("time", { datetime: piece.time }, moment(piece.time));
    const name = piece.style === "strong" ? "b" : piece.style === "code" ? "code" : "span";
    return element(name, { class: piece.style === "code" ? "word" : undefined }, piece.text ?? "");
  });

/** A text laid out as it is written, that can be scrolled with the keyboard too. */
export const laidOut = (label: string, text: string, kind = ""): HTMLElement =>
  element("pre", { tabindex: "0", role: "region", "aria-label": label, dir: "ltr", class: kind }, text);

/** What is folded away until somebody wants it. */
export const folded = (summary: string, ...children: Child[]): HTMLElement => element("details", {}, element("summary", {}, summary), ...children);

const drawn = new WeakMap<Element, string>();

/** Draws a part anew if what it shows has changed, and says whether it has. */
export const keep = (part: Element, shows: unknown, draw: () => Child[]): boolean => {
  const key = JSON.stringify(shows ?? null);
  if (drawn.get(part) === key) return false;
  drawn.set(part, key);
  part.replaceChildren(...draw().filter((child) => child !== false && child !== undefined));
  return true;
};
