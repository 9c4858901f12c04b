// Tells people who listen what has changed, without interrupting them.
import { element } from "./element";

export const announcer = element("p", { class: "unseen", role: "status", "aria-live": "polite" });

export const announce = (text: string): void => {
  announcer.textContent = text;
};
