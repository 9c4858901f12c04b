// The Approval Gate: what a host shows beside a conversation while an agent waits
// for a person to decide.
import { App } from "@modelcontextprotocol/ext-apps";

import { announce, announcer } from "./announce";
import { Decision } from "./decision";
import { element } from "./element";
import { Recorded, Revocation } from "./receipt";
import { type ApprovalRequest, type Choice, contentOf, type Decided, Refusal, Server } from "./server";
import { instead, Shown } from "./show";
import { follow } from "./theme";
import { span } from "./time";

const app = new App({ name: "countersign-approval-gate", version: "1.0.0" });
const server = new Server(app);

const main = element("main");
const shown = new Shown();
const decision = new Decision({ decide, open });
const recorded = new Recorded();
const revocation = new Revocation(revoke);

let request: ApprovalRequest | undefined;
let turn = 0; // a search for a request, or a wait for its changes, ends when the next begins
let closed = false;
let unsure = false; // whether something was sent that no answer came to
let poll: AbortController | undefined;

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

// What nobody looks at isn't asked for.
const seen = (): Promise<void> =>
  new Promise((resolve) => {
    if (!document.hidden) return resolve();
    document.addEventListener("visibilitychange", () => resolve(), { once: true });
  });

const say = (text: string, again?: () => void): void => {
  if (!request) main.replaceChildren(instead(text, again));
};

// ---- which request it is

const searching = { each: 500, times: 60 };

/** Looks for the held call that the host's tool input belongs to, which may not be there yet. */
const search = async (asked: Record<string, unknown>): Promise<void> => {
  const mine = ++turn;
  say("Loading…");
  let wrong = "";
  for (let tried = 0; tried < searching.times; tried++) {
    try {
      const found = await server.find(asked);
      if (mine !== turn || closed) return;
      if (found) return arrive(found);
      wrong = "";
    } catch (error) {
      wrong = error instanceof Refusal ? error.message : "The server doesn't answer.";
    }
    await pause(searching.each);
    if (mine !== turn || closed) return;
  }
  say(wrong || "The server holds no such request. If the agent still waits, look again. If it doesn't, nothing was approved: let it ask anew.", () => void search(asked));
};

/** Loads the request that the agent's call was about, which may be long decided. */
const reopen = async (requestId: string): Promise<void> => {
  if (request?.requestId === requestId) return attend();
  const mine = ++turn;
  say("Loading…");
  try {
    const found = await server.load(requestId);
    if (mine === turn && !closed) arrive(found);
  } catch (error) {
    if (mine !== turn || closed) return;
    say(error instanceof Refusal ? error.message : "The server doesn't answer. Look again in a moment.", () => void reopen(requestId));
  }
};

const arrive = (found: ApprovalRequest): void => {
  request = undefined;
  main.replaceChildren(...shown.before, decision.element, recorded.element, revocation.element, ...shown.after);
  draw(found, false);
  attend();
};

// ---- keeping it as it is on the server

/** Whether nothing about a request can change any more. */
const over = (one: ApprovalRequest): boolean => one.status !== "pending" && one.status !== "approved";

/** Shows the request as it is on the server now, and from then on, one call at a time. */
function attend(): void {
  poll?.abort();
  const mine = ++turn;
  void (async () => {
    let failures = 0;
    let known: number | undefined;
    while (request && !over(request) && mine === turn && !closed) {
      await seen();
      if (mine !== turn) return;
      const began = performance.now();
      poll = new AbortController();
      try {
        const { requestId, revision } = request;
        const now = await server.load(requestId, known, poll.signal);
        if (mine !== turn || closed) return;
        failures = 0;
        lost.hidden = true;
        const news = now.revision > revision || now.status !== request.status;
        draw(now, false);
        known = shown.tick() === 0 ? undefined : now.revision;
        // A server that answers at once, although nothing is new, isn't asked at once again.
        if (!news && performance.now() - began < 1000) await pause(1000);
      } catch {
        if (mine !== turn || closed) return;
        failures++;
        lost.hidden = failures < 2;
        await pause(Math.min(1000 * 2 ** (failures - 1), 15_000));
        known = undefined;
      }
    }
  })();
}

const lost = element("p", { class: "lost", role: "status", hidden: true }, "The server doesn't answer. What is shown may be old; it is asked again.");

/** Draws what the server said; own is whether it answers what was decided here. */
function draw(now: ApprovalRequest, own: boolean): void {
  const before = request;
  if (before && now.revision < before.revision) return;
  const couldDecide = decision.open;
  const inForm = decision.element.contains(document.activeElement);
  request = now;
  if (before && before.status === "pending" && now.status !== "pending" && couldDecide && !own) {
    decision.say(
      unsure
        ? "No answer came to what was sent from here. This is what the server has recorded."
        : now.status === "expired"
          ? "" // the outcome says so
          : "This was settled meanwhile, and not from here.",
    );
  }
  const moved = shown.draw(now);
  decision.draw(now);
  const receipt = recorded.draw(now);
  revocation.draw(now);
  if (!main.contains(lost)) shown.before[0]?.after(lost);
  if (moved || receipt) {
    decision.settle();
    revocation.settle();
  }
  if (!before || before.stage !== now.stage) announce(now.stage);
  else if (before.digest !== now.digest) announce("The arguments have changed.");
  if (inForm && before?.status !== now.status) decision.element.querySelector<HTMLElement>("[data-name=heading]")?.focus({ preventScroll: true });
}

// ---- what a person does

/** Sends something about what is shown; whatever comes of it is shown. */
async function send(to: Decision | Revocation, ask: (shown: ApprovalRequest) => Promise<Decided>): Promise<void> {
  if (!request) return;
  turn++;
  poll?.abort();
  try {
    const { receiptId, request: now } = await ask(request);
    recorded.confirm(receiptId);
    unsure = false;
    draw(now, true);
  } catch (error) {
    if (error instanceof Refusal) {
      to.complain(error.code === "stale" ? "The arguments have changed meanwhile, so nothing was decided. Read them again; what you typed is still here." : error.message);
    } else {
      unsure = true;
      to.complain("No answer came, so it isn't known whether this arrived. It is looked up now.");
    }
  }
  attend();
}

function decide(choice: Choice): Promise<void> {
  return send(decision, (one) => server.decide(one, choice));
}

function revoke(reason: string): Promise<void> {
  return send(revocation, (one) => server.revoke(one, reason));
}

async function open(url: string): Promise<boolean> {
  try {
    return !(await app.openLink({ url })).isError;
  } catch {
    return false;
  }
}

// ---- time

let announced = Infinity;
let up = false;

setInterval(() => {
  const left = shown.tick();
  if (left === undefined || !request || over(request)) return;
  if (left > 60_000) announced = Infinity;
  for (const mark of [60_000, 10_000]) {
    if (left > mark || announced <= mark) continue;
    announced = mark;
    if (left > mark - 5000) announce(`${span(left)} left${request.status === "pending" ? " to decide" : ""}.`);
  }
  // The server says what has expired; it is asked once its time has come.
  if (left === 0 && !up && !decision.busy && !revocation.busy) attend();
  up = left === 0;
}, 1000);

// ---- the host

app.ontoolinput = ({ arguments: asked }) => {
  if (!request) void search(asked ?? {});
};
app.ontoolresult = (result) => {
  const id = contentOf(result)?.requestId;
  if (typeof id === "string") return void reopen(id);
  turn++;
  say("The agent's call has ended without a request. Nothing was approved.");
  if (request) attend();
};
app.ontoolcancelled = () => {
  if (request) return attend();
  turn++;
  say("The agent's call was cancelled. Nothing was approved.");
};
app.onhostcontextchanged = () => follow(app.getHostContext());
app.onteardown = () => {
  closed = true;
  poll?.abort();
  return {};
};

document.body.append(announcer, main);
say("Loading…");
app
  .connect()
  .then(() => follow(app.getHostContext()))
  .catch(() => say("The host doesn't answer, so there is nothing to decide here."));
