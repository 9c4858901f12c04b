// Keeps a page as it is on the server without a reload: what is marked with
// data-live is replaced when a request changes. Times are shown in the reader's own
// time zone, and what is left until a deadline counts down.
"use strict";

const span = (milliseconds) => {
  const seconds = Math.max(Math.floor(milliseconds / 1000), 0);
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor(seconds / 60) % 60;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${seconds % 60} s`;
  return `${seconds} s`;
};

const localize = () => {
  for (const time of document.querySelectorAll("time[datetime]:not([data-local])")) {
    const at = new Date(time.dateTime);
    time.dataset.local = "yes";
    time.title = time.textContent;
    time.textContent = at.toLocaleString(undefined, {
      year: "numeric",
      month: "short",
      day: "numeric",
      hour: "2-digit",
      minute: "2-digit",
      second: time.closest(".timeline") ? "2-digit" : undefined,
      timeZoneName: "short",
    });
  }
};

// The server's clock counts, not this machine's.
const sent = Date.now();
const skew = Number(document.querySelector("meta[name=now]").content) - sent;

const countDown = () => {
  for (const left of document.querySelectorAll("[data-until]")) {
    const text = span(Number(left.dataset.until) - Date.now() - skew);
    if (left.textContent !== text) left.textContent = text;
  }
};

// A part that somebody works in stays as long as it is the same part.
const replace = (old, fresh) => {
  const clean = old.cloneNode(true);
  for (const time of clean.querySelectorAll("time[data-local]")) {
    time.textContent = time.title;
    time.removeAttribute("title");
    time.removeAttribute("data-local");
  }
  for (const left of [...clean.querySelectorAll("[data-until]"), ...fresh.querySelectorAll("[data-until]")]) left.textContent = "";
  // What a device is asked, and answers, is no change of the request; and a form that
  // it is asked for is sent from where it is.
  for (const line of clean.querySelectorAll("[data-passkey-problem]")) line.remove();
  for (const button of clean.querySelectorAll("[data-asking]")) button.removeAttribute("data-asking");
  if (clean.isEqualNode(fresh) || old.querySelector("[data-asking]")) return;
  for (const typed of old.querySelectorAll("textarea[id]")) {
    const field = fresh.querySelector(`#${typed.id}`);
    if (field) field.value = typed.value;
  }
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  old.replaceWith(document.importNode(fresh, true));
  if (focused) document.getElementById(focused)?.focus();
};

// Whoever reads one version must not decide on another that takes its place, so
// that one is announced and waits to be loaded.
const otherVersion = (next) => {
  const shown = document.querySelector("[data-shown]");
  const now = next.querySelector("[data-shown]");
  if (!shown || !now || shown.dataset.shown === now.dataset.shown) return false;
  const notice = document.createElement("p");
  notice.className = "changed";
  notice.setAttribute("role", "alert");
  const again = document.createElement("a");
  again.href = address;
  again.textContent = "Read it again";
  notice.append("The arguments have changed. ", again, ", before you decide.");
  shown.prepend(notice);
  for (const button of shown.querySelectorAll("button")) button.disabled = true;
  again.focus();
  return true;
};

// Where the page is to be had, which isn't where it is if it answers a form.
const address = document.querySelector("[data-address]")?.dataset.address ?? location.href;

let fetching = false;
let again = false;

const refresh = async () => {
  again = true;
  if (fetching) return;
  fetching = true;
  while (again) {
    again = false;
    try {
      const response = await fetch(address, { headers: { "Countersign-Unattended": "1" }, redirect: "error" });
      const next = new DOMParser().parseFromString(await response.text(), "text/html");
      const parts = document.querySelectorAll("[data-live]");
      if (otherVersion(next)) return;
      if (response.ok && !next.querySelector("[data-live]")) {
        // Somebody has to sign in again. A form that was answered isn't sent again.
        if (address === location.href) location.reload();
        else location.replace(address);
        return;
      }
      for (const part of parts) {
        const fresh = next.getElementById(part.id);
        if (fresh) replace(part, fresh);
      }
      localize();
      countDown();
    } catch {
      // The stream connects again by itself, and then the page is fetched again.
    }
  }
  fetching = false;
};

localize();
countDown();
if (document.querySelector("[data-live]")) {
  setInterval(countDown, 1000);
  let changes;
  // A browser has six connections for all tabs of a server without HTTP/2, so those
  // that nobody looks at do without.
  const follow = () => {
    changes?.close();
    if (document.hidden) return;
    changes = new EventSource("/live" + new URL(address, location.href).search);
    changes.addEventListener("changed", refresh);
    changes.addEventListener("open", refresh); // what was missed before
    changes.addEventListener("error", (event) => {
      if (event.target.readyState === EventSource.CLOSED) refresh(); // the session may be over
    });
  };
  document.addEventListener("visibilitychange", follow);
  follow();
}
