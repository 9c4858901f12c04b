// Has the device make a passkey, or sign with one, when somebody presses a button
// that names in data-passkey where to ask what. What the device answers goes along
// with the form, in its field "passkey".
const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));

const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

const withBytes = (keys) => (keys ?? []).map((key) => ({ ...key, id: bytes(key.id) }));

// Some password managers answer without the methods of the standard, so what is
// needed is taken out by hand.
const make = async (asked) => {
  const { id, response, rawId } = await navigator.credentials.create({
    publicKey: {
      ...asked,
      challenge: bytes(asked.challenge),
      user: { ...asked.user, id: bytes(asked.user.id) },
      excludeCredentials: withBytes(asked.excludeCredentials),
    },
  });
  return {
    id: rawId ? text(rawId) : id,
    clientData: text(response.clientDataJSON),
    attestation: text(response.attestationObject),
    transports: response.getTransports?.() ?? [],
  };
};

const sign = async (asked) => {
  const { id, response, rawId } = await navigator.credentials.get({
    publicKey: { ...asked, challenge: bytes(asked.challenge), allowCredentials: withBytes(asked.allowCredentials) },
  });
  return {
    id: rawId ? text(rawId) : id,
    clientData: text(response.clientDataJSON),
    authenticatorData: text(response.authenticatorData),
    signature: text(response.signature),
  };
};

const inWords = (error, failed, without) => {
  switch (error.name) {
    case "InvalidStateError":
      return "This device has a passkey here already.";
    case "SecurityError":
      return "Passkeys don't work at this address.";
    default:
      return `${failed}: it was given up, took too long, or this device ${without}.`;
  }
};

const say = (button, problem) => {
  let line = button.form.querySelector("[data-passkey-problem]");
  if (!line) {
    line = document.createElement("p");
    line.className = "problem";
    line.dataset.passkeyProblem = "";
    line.setAttribute("role", "alert");
    button.form.append(line);
  }
  line.textContent = problem;
  line.hidden = !problem;
};

const ask = async (button) => {
  if (!window.PublicKeyCredential) throw new Error("This browser can't use passkeys.");
  const response = await fetch(button.dataset.passkey, {
    method: "POST",
    body: new URLSearchParams(new FormData(button.form, button)),
    redirect: "error",
  }).catch(() => new Response());
  const asked = await response.json().catch(() => ({ problem: "The server didn't answer. Please try again in a moment." }));
  if (asked.problem) throw new Error(asked.problem);
  const answer = asked.create
    ? await make(asked.create).catch((error) => {
        throw new Error(inWords(error, "No passkey was added", "can't make sure who you are"));
      })
    : await sign(asked.get).catch((error) => {
        throw new Error(inWords(error, "Nothing was signed", "has none of your passkeys"));
      });
  return JSON.stringify({ nonce: asked.nonce, ...answer });
};

// The page may have been replaced meanwhile, so nothing is kept of a form.
document.addEventListener("submit", async (event) => {
  const button = event.submitter;
  if (!button?.dataset.passkey) return;
  const field = button.form.elements.passkey;
  if (field.value) return; // it goes along now
  event.preventDefault();
  if (button.dataset.asking) return;
  button.dataset.asking = "yes";
  say(button, "");
  try {
    field.value = await ask(button);
    const shown = document.querySelector("[data-passkey]");
    if (button.isConnected) button.form.requestSubmit(button);
    else if (shown) say(shown, "This page has changed meanwhile. Please read it, and press again.");
  } catch (error) {
    say(button, error.message);
  } finally {
    field.value = ""; // it counts once
    delete button.dataset.asking;
  }
});
