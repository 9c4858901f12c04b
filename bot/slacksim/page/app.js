"use strict";

// The page draws what the server says one person sees, and tells the server what they press. It keeps no state of its own but
// who they are, the channel, and what is typed into an open modal.
(() => {
  const by = (id) => document.getElementById(id);
  const address = new URL(location.href);
  let user = address.searchParams.get("user") || "";
  let channel = address.searchParams.get("channel") || "";
  let stream;

  // Drawing

  function dates(root) {
    for (const time of root.querySelectorAll("time[data-unix]")) {
      const text = showDate(Number(time.dataset.unix), time.dataset.format);
      if (text) time.textContent = text;
      time.title = new Date(Number(time.dataset.unix) * 1000).toString();
    }
  }

  function choices(select, list, chosen) {
    const same = list.length === select.options.length && list.every((c, i) => select.options[i].value === c.id && select.options[i].text === c.label);
    if (!same) select.replaceChildren(...list.map((c) => new Option(c.label, c.id)));
    if (select.value !== chosen) select.value = chosen;
  }

  // Only messages that changed are drawn anew, so nothing flickers and a focused button stays focused.
  const shown = new Map();
  function messages(list) {
    const container = by("messages");
    const room = container.scrollHeight - container.scrollTop - container.clientHeight;
    const atEnd = room < 80;
    const keys = new Set(list.map((m) => m.key));
    for (const [key, item] of shown) {
      if (!keys.has(key)) {
        item.element.remove();
        shown.delete(key);
      }
    }
    let newest = null;
    let previous = null;
    for (const message of list) {
      let item = shown.get(message.key);
      if (!item) {
        const element = document.createElement("li");
        element.dataset.messageTs = message.key;
        item = { element, html: null };
        shown.set(message.key, item);
        newest = element;
      }
      if (item.html !== message.html) {
        const focused = item.element.contains(document.activeElement);
        item.html = message.html;
        item.element.innerHTML = message.html;
        dates(item.element);
        if (focused) {
          item.element.tabIndex = -1;
          (item.element.querySelector("button") || item.element).focus({ preventScroll: true });
        }
      }
      const place = previous ? previous.nextSibling : container.firstChild;
      if (place !== item.element) container.insertBefore(item.element, place);
      previous = item.element;
    }
    by("empty").hidden = list.length > 0;
    // The end of the channel, but never past the top of what is new: what decides is at the top of a card.
    if (newest && (atEnd || room < 400)) {
      container.scrollTop = Math.min(container.scrollHeight, newest.offsetTop - container.offsetTop);
    } else if (atEnd) {
      container.scrollTop = container.scrollHeight;
    }
  }

  function typed(root) {
    const values = {};
    for (const input of root.querySelectorAll("[data-input]")) {
      const name = input.dataset.input;
      if (input.tagName === "FIELDSET") {
        values[name] = [...input.querySelectorAll("input:checked")].map((choice) => choice.value).join("\n");
      } else {
        values[name] = input.value;
      }
    }
    return values;
  }

  function retype(root, values) {
    for (const input of root.querySelectorAll("[data-input]")) {
      const value = values[input.dataset.input];
      if (value === undefined) continue;
      if (input.tagName === "FIELDSET") {
        const chosen = value.split("\n");
        for (const choice of input.querySelectorAll("input")) choice.checked = chosen.includes(choice.value);
      } else {
        input.value = value;
      }
    }
  }

  let drawnModal = { key: null, html: null };
  function modal(view) {
    const dialog = by("modal");
    if (!view) {
      drawnModal = { key: null, html: null };
      if (dialog.open) dialog.close();
      dialog.replaceChildren();
      return;
    }
    if (view.html === drawnModal.html && view.key === drawnModal.key) return;
    const kept = view.key === drawnModal.key ? typed(dialog) : {};
    const focused = view.key === drawnModal.key ? document.activeElement?.dataset?.input : undefined;
    drawnModal = view;
    dialog.innerHTML = view.html;
    dates(dialog);
    retype(dialog, kept);
    dialog.setAttribute("aria-label", dialog.querySelector("h2").textContent);
    if (!dialog.open) dialog.showModal();
    // Never the submit button: Enter on a button that opened a modal would go on to submit it.
    const wrong = dialog.querySelector(".error")?.closest(".block")?.querySelector("input, textarea, select");
    const again = focused && dialog.querySelector(`[data-input="${CSS.escape(focused)}"]`);
    (wrong || again || dialog.querySelector("[data-input]") || dialog.querySelector("footer [data-close]")).focus();
  }

  function consoles(list) {
    const aside = by("consoles");
    aside.hidden = list.length === 0;
    document.body.classList.toggle("with-consoles", list.length > 0);
    list.forEach((panel, i) => {
      let section = aside.children[i];
      if (!section) {
        section = document.createElement("section");
        section.dataset.console = panel.title;
        section.append(document.createElement("h2"), document.createElement("ol"));
        section.lastChild.setAttribute("role", "log");
        section.lastChild.setAttribute("aria-label", panel.title);
        aside.append(section);
      }
      const [title, lines] = section.children;
      title.textContent = panel.title;
      const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
      const first = JSON.stringify(panel.lines[0]);
      if (lines.dataset.first !== first || lines.children.length > panel.lines.length) lines.replaceChildren();
      lines.dataset.first = first;
      for (const line of panel.lines.slice(lines.children.length)) {
        const item = document.createElement("li");
        const time = document.createElement("time");
        time.textContent = new Date(line.unix * 1000).toLocaleTimeString("en", { hour12: false });
        item.append(time, document.createTextNode(line.text));
        lines.append(item);
      }
      if (atEnd) lines.scrollTop = lines.scrollHeight;
    });
  }

  function draw(scene) {
    if (scene.user !== user || scene.channel !== channel) remember(scene.user, scene.channel);
    document.title = `${scene.name} · ${scene.workspace} (simulated Slack)`;
    by("workspace").textContent = scene.workspace;
    by("name").textContent = scene.name;
    by("topic").textContent = scene.topic;
    choices(by("user"), scene.people, scene.user);
    choices(by("channel"), scene.channels, scene.channel);
    by("channel").parentElement.hidden = scene.channels.length < 2;
    document.body.dataset.userId = scene.user;
    document.body.dataset.channelId = scene.channel;
    consoles(scene.consoles); // before the messages: it changes how much room they have
    messages(scene.messages);
    modal(scene.modal);
  }

  function remember(newUser, newChannel) {
    user = newUser;
    channel = newChannel;
    address.searchParams.set("user", user);
    address.searchParams.set("channel", channel);
    history.replaceState(null, "", address);
  }

  // A new person or channel is a new stream; the browser reconnects a broken one by itself.
  function listen() {
    stream?.close();
    stream = new EventSource(`/page/events?user=${encodeURIComponent(user)}&channel=${encodeURIComponent(channel)}`);
    stream.onmessage = (event) => {
      document.body.classList.remove("offline");
      draw(JSON.parse(event.data));
    };
    stream.onerror = () => {
      document.body.classList.add("offline");
      if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
    };
  }

  // Acting

  // A popover is above an open modal. It stays until the person does something else.
  function notice(text) {
    const element = by("notice");
    if (element.matches(":popover-open")) element.hidePopover();
    element.textContent = text;
    if (text) element.showPopover();
  }

  async function tell(what, act, button) {
    button?.setAttribute("aria-busy", "true");
    notice("");
    try {
      const response = await fetch(`/page/${what}`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ user, channel, ...act }),
      });
      if (!response.ok) throw new Error(await response.text());
      notice((await response.json()).shown);
    } catch {
      notice("The simulator doesn't answer. Is it still running?");
    } finally {
      button?.removeAttribute("aria-busy");
    }
  }

  // Asks as Slack's own dialog does before it sends a click.
  function confirmed(button) {
    if (!button.dataset.confirm) return Promise.resolve(true);
    const asked = JSON.parse(button.dataset.confirm);
    const dialog = by("confirm");
    const make = (tag, className, text) => {
      const element = document.createElement(tag);
      element.className = className;
      element.textContent = text;
      return element;
    };
    const header = make("header", "", "");
    header.append(make("h2", "", asked.title.text));
    const body = make("div", "body", asked.text.text);
    const footer = make("footer", "", "");
    const deny = make("button", "button", asked.deny.text);
    const go = make("button", "button " + (asked.style || "primary"), asked.confirm.text);
    deny.dataset.deny = "";
    go.dataset.confirmYes = "";
    footer.append(deny, go);
    dialog.replaceChildren(header, body, footer);
    return new Promise((resolve) => {
      let answer = false;
      deny.onclick = () => dialog.close();
      go.onclick = () => {
        answer = true;
        dialog.close();
      };
      dialog.onclose = () => resolve(answer);
      dialog.setAttribute("aria-label", asked.title.text);
      dialog.showModal();
      deny.focus();
    });
  }

  document.addEventListener("click", async (event) => {
    const close = event.target.closest("[data-close]");
    const view = event.target.closest("[data-view-id]");
    if (close?.getAttribute("aria-busy")) return;
    if (close) {
      tell("close", { view: view.dataset.viewId }, close);
      return;
    }
    const button = event.target.closest("[data-action-id]");
    if (!button || button.getAttribute("aria-busy") || !(await confirmed(button))) return;
    if (button.dataset.url) window.open(button.dataset.url, "_blank", "noopener,noreferrer");
    const act = { block: button.closest("[data-block-id]").dataset.blockId, action: button.dataset.actionId };
    if (view) {
      Object.assign(act, { view: view.dataset.viewId, values: typed(view) });
    } else {
      act.ts = button.closest("[data-message-ts]").dataset.messageTs;
    }
    tell("click", act, button);
  });

  document.addEventListener("submit", (event) => {
    event.preventDefault();
    const view = event.target.closest("[data-view-id]");
    if (view.querySelector("[data-submit]").getAttribute("aria-busy")) return;
    tell("submit", { view: view.dataset.viewId, values: typed(view) }, view.querySelector("[data-submit]"));
  });

  // Escape closes a modal as its close button does, so that the app hears of it.
  by("modal").addEventListener("cancel", (event) => {
    event.preventDefault();
    by("modal").querySelector("[data-close]")?.click();
  });

  by("user").addEventListener("change", (event) => {
    remember(event.target.value, channel);
    listen();
  });
  by("channel").addEventListener("change", (event) => {
    remember(user, event.target.value);
    listen();
  });

  listen();
})();
