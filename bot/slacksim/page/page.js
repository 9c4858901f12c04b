// The page of the simulated workspace. The server sends the whole state at each change; this script makes the page look like
// it, replacing only what differs. It holds nothing that the server should know but doesn't, except what is being typed.

import { blocks } from './blocks.js';
import { confirmed, keepFocus, openLink, showView } from './modal.js';
import { clock, el, longDate, mrkdwn, nearDay } from './text.js';

const at = (id) => document.getElementById(id);
const scroller = at('scroller');

let user = '', channel = ''; // from the address; empty means the first one
let state = null;
let source = null;
const busy = new Set(); // presses that wait for the app
const warnings = new Map(); // message to the error that the last press in it showed
const seen = new Map(); // channel to the last message that was on screen there
let pinned = true; // whether the newest message is kept in sight

function readAddress() {
  const parameters = new URLSearchParams(location.search);
  user = parameters.get('user') ?? '';
  channel = parameters.get('channel') ?? '';
}

const address = (person, conversation) => {
  const parameters = new URLSearchParams({ user: person });
  if (conversation) parameters.set('channel', conversation);
  return '?' + parameters;
};

/** go moves to another person or channel without loading the page again. */
function go(person, conversation) {
  history.pushState(null, '', address(person, conversation));
  arrive();
}

function arrive() {
  const before = user;
  readAddress();
  pinned = true;
  at('you-toggle').setAttribute('aria-expanded', 'false');
  if (source && before === user) render();
  else connect();
}

function connect() {
  source?.close();
  const mine = source = new EventSource('events?user=' + encodeURIComponent(user));
  mine.onopen = () => notice('');
  mine.onmessage = (event) => {
    state = JSON.parse(event.data);
    if (!user && state.you) {
      user = state.you;
      history.replaceState(null, '', address(user, channel));
    }
    render();
  };
  mine.onerror = () => {
    notice('Not connected. Is the simulator still running? Trying again…');
    // A stream that broke off is opened again by the browser; one that was refused isn't.
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => mine === source && connect(), 2000);
  };
}

function notice(text) {
  at('connection').hidden = !text;
  at('connection').textContent = text;
}

/** act sends what the person does, and returns what Slack would show of it. */
async function act(path, body) {
  try {
    const response = await fetch(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ user: state.you, ...body }) });
    return response.headers.get('Content-Type') === 'application/json' ? await response.json() : { shown: await response.text(), errors: null };
  } catch {
    return { shown: "The simulator can't be reached. Is it still running?", errors: null };
  }
}

const viewActs = {
  click: (view, block, element, values) => act('click', { view: view.id, block: block.block_id, action: element.action_id ?? '', values }),
  submit: (view, values) => act('submit', { view: view.id, values }),
  close: (view) => act('close', { view: view.id }),
};

async function press(message, block, element) {
  const key = pressKey(message, block, element);
  if (element.confirm && !await confirmed(element.confirm, directory())) return;
  openLink(element);
  busy.add(key);
  warnings.delete(message.ts);
  render();
  const said = await act('click', { channel: message.channel, ts: message.ts, block: block.block_id, action: element.action_id ?? '' });
  busy.delete(key);
  if (said.shown) warnings.set(message.ts, said.shown);
  render();
}

const pressKey = (message, block, element) => [message.ts, block.block_id, element.action_id].join(' ');

const directory = () => ({
  you: state.you,
  people: new Map(state.people.map((p) => [p.id, p])),
  groups: new Map(state.groups.map((g) => [g.id, g])),
  channels: new Map(state.channels.map((c) => [c.id, c])),
});

function render() {
  if (!state) return;
  const open = state.channels.find((c) => c.id === channel) ?? state.channels.find((c) => !c.direct) ?? state.channels[0];
  renderSide(open);
  renderChannel(open);
  renderConsoles();
  showView(state.view, directory(), viewActs);
}

function renderSide(open) {
  at('workspace').textContent = state.workspace;
  for (const c of state.channels) if (!seen.has(c.id) || c.id === open?.id) seen.set(c.id, newest(c.id));
  reconcile(at('channels'), state.channels, (c) => c.id, (c) => {
    const unread = newest(c.id) > seen.get(c.id);
    return el('li', {}, el('a', {
      href: address(state.you, c.id),
      'data-channel-id': c.id,
      'aria-current': c.id === open?.id ? 'page' : null,
      class: unread ? 'unread' : null,
      click: (event) => follow(event, () => go(state.you, c.id)),
    }, channelName(c), unread ? el('span', { class: 'dot', role: 'img', 'aria-label': 'new messages' }) : null));
  }, (c) => [c, state.you, c.id === open?.id, newest(c.id) > seen.get(c.id)]);
  const choices = state.people.filter((p) => !p.app && !p.gone);
  const you = choices.find((p) => p.id === state.you);
  at('you-toggle').replaceChildren(...(you ? [avatar(you), el('span', { class: 'name' }, 'You are ', el('b', {}, you.name))] : ['Choose who you are']));
  reconcile(at('people'), choices, (p) => p.id, (p) => el('li', {}, el('a', {
    href: address(p.id, channel),
    'data-user-id': p.id,
    'aria-current': p.id === state.you ? 'true' : null,
    click: (event) => follow(event, () => go(p.id, channel)),
  }, avatar(p), el('span', { class: 'name' }, p.name), p.kind ? el('span', { class: 'badge' }, p.kind) : null)),
  (p) => [p, channel, p.id === state.you]);
}

/** follow runs what a plain click on a link does; other clicks (a new tab) are the browser's. */
function follow(event, run) {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  run();
}

const channelName = (c) => (c.direct ? '' : '#') + c.name + (c.direct ? ' (messages from the app)' : '');
const newest = (id) => state.messages.findLast((m) => m.channel === id)?.ts ?? '';

function renderChannel(open) {
  const empty = at('empty');
  at('channel-name').textContent = open ? channelName(open) : state.workspace;
  at('channel-topic').textContent = open?.topic ?? '';
  document.title = (open ? channelName(open) + ' · ' : '') + state.workspace;
  const messages = open ? state.messages.filter((m) => m.channel === open.id) : [];
  empty.hidden = messages.length > 0;
  empty.textContent = !state.you ? `There is nobody here with the id ${user}. Choose who you are.`
    : open ? 'No messages yet. They appear here as they come.' : 'You are in no channel here.';

  const known = new Set(messages.map((m) => m.ts));
  const names = [[...directory().people.values()], state.groups, state.channels];
  const threads = Map.groupBy(messages.filter((m) => m.thread_ts && known.has(m.thread_ts)), (m) => m.thread_ts);
  const items = [];
  let day = '';
  for (const m of messages) {
    const replies = threads.get(m.ts) ?? [];
    if (m.thread_ts && known.has(m.thread_ts) && !m.broadcast) continue;
    const posted = dayName(when(m));
    if (posted !== day) items.push({ key: 'day ' + posted, day: posted });
    day = posted;
    items.push({ key: m.ts, message: m, replies });
  }
  const added = reconcile(at('messages'), items, (item) => item.key,
    (item) => item.day ? el('h2', { class: 'day' }, el('span', {}, item.day)) : message(item.message, item.replies),
    (item) => [item, state.you, names, [item.message, ...item.replies ?? []].map((m) => m && [warnings.get(m.ts), [...busy].filter((key) => key.startsWith(m.ts + ' '))])]);
  if (pinned || added.some((node) => node.classList.contains('ephemeral'))) scroller.scrollTop = scroller.scrollHeight;
  onScroll();
}

const when = (m) => new Date(Number(m.ts) * 1000);

function dayName(date) {
  const near = nearDay(date);
  if (near) return near[0].toUpperCase() + near.slice(1);
  return date.toLocaleDateString(undefined, { weekday: 'long', month: 'long', day: 'numeric' });
}

function message(m, replies) {
  const names = directory();
  const author = names.people.get(m.user) ?? { id: m.user, name: m.user };
  const surface = {
    directory: names,
    busy: (element, block) => busy.has(pressKey(m, block, element)),
    press: (element, block) => press(m, block, element),
  };
  const warning = warnings.get(m.ts);
  const posted = when(m);
  return el('article', {
    class: m.ephemeral ? 'message ephemeral' : 'message',
    tabindex: '-1',
    'aria-label': `${author.name}, ${clock(posted)}`,
    'data-message-ts': m.ts,
    'data-author-id': m.user,
    'data-visible-to': m.ephemeral ? state.you : null,
  },
  avatar(author),
  el('div', { class: 'content' },
    m.ephemeral ? el('p', { class: 'quiet only-you' }, '👁 Only visible to you') : null,
    m.broadcast ? el('p', { class: 'quiet' }, 'replied to a thread:') : null,
    el('div', { class: 'byline' },
      el('b', {}, author.name),
      author.app ? el('span', { class: 'badge' }, 'APP') : null,
      el('time', { class: 'quiet', datetime: posted.toISOString(), title: longDate(posted) }, clock(posted))),
    m.blocks ? blocks(m.blocks, surface) : el('div', { class: 'text plain' }, mrkdwn(m.text, names)),
    m.edited ? el('span', { class: 'quiet edited' }, '(edited)') : null,
    warning ? el('p', { class: 'warning', role: 'alert', 'data-shown-error': true }, '⚠️ ' + warning) : null,
    replies?.length ? el('section', { class: 'thread', 'aria-label': 'Thread' },
      el('p', { class: 'quiet' }, replies.length === 1 ? '1 reply' : replies.length + ' replies'),
      ...replies.map((reply) => message(reply))) : null));
}

function avatar(who) {
  const words = who.name.replace(/\(.*?\)/g, ' ').match(/[\p{L}\p{N}]+/gu) ?? ['?'];
  const initials = [words[0], words.length > 1 ? words.at(-1) : ''].map((word) => [...word][0] ?? '').join('').toUpperCase();
  const tint = [...who.id].reduce((sum, character) => (sum * 31 + character.codePointAt(0)) % 997, 7) % 6;
  return el('span', { class: `avatar tint-${tint}` + (who.app ? ' app' : ''), 'aria-hidden': 'true' }, initials);
}

function renderConsoles() {
  reconcile(at('consoles'), state.consoles, (c) => c.title, (c) => el('details', { class: 'console', open: true, 'data-console': c.title },
    el('summary', {}, c.title),
    el('div', { class: 'lines', role: 'log', tabindex: '0', 'aria-label': c.title })), (c) => c.title);
  at('consoles').hidden = state.consoles.length === 0;
  state.consoles.forEach((c, i) => {
    const lines = at('consoles').children[i].querySelector('.lines');
    const follows = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
    const gone = (lines.shown ?? []).findIndex((line) => JSON.stringify(line) === JSON.stringify(c.lines[0]));
    const kept = gone < 0 ? [] : lines.shown.slice(gone);
    while (lines.children.length > kept.length) lines.firstChild.remove();
    lines.append(...c.lines.slice(kept.length).map((line) => {
      const at = new Date(line.at);
      return el('p', {}, el('time', { class: 'quiet', datetime: at.toISOString() }, at.toLocaleTimeString(undefined, { hourCycle: 'h23' })), el('span', {}, line.text));
    }));
    lines.shown = c.lines;
    if (follows) lines.scrollTop = lines.scrollHeight;
  });
}

const prints = new WeakMap();

/**
 * reconcile makes the children of a list match the items, one each: by key, made anew only when what identify returns has
 * changed. It returns the nodes that are new.
 */
function reconcile(parent, items, keyOf, make, identify) {
  const wanted = new Set(items.map(keyOf));
  for (const node of [...parent.children]) if (!wanted.has(prints.get(node).key)) node.remove();
  const old = new Map([...parent.children].map((node) => [prints.get(node).key, node]));
  const added = [];
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item), print = JSON.stringify(identify(item));
    let node = old.get(key);
    if (!node) {
      node = make(item);
      added.push(node);
    } else if (prints.get(node).print !== print) {
      const stale = node;
      node = make(item);
      if (stale === next) next = node;
      keepFocus(stale, () => {
        stale.replaceWith(node);
        return node;
      });
    }
    if (node === next) next = node.nextElementSibling;
    else parent.insertBefore(node, next);
    prints.set(node, { key, print });
  }
  return added;
}

function onScroll() {
  pinned = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 48;
  at('latest').hidden = pinned;
}

scroller.addEventListener('scroll', onScroll, { passive: true });
new ResizeObserver(() => {
  if (pinned) scroller.scrollTop = scroller.scrollHeight;
}).observe(scroller);
at('latest').addEventListener('click', () => {
  scroller.scrollTop = scroller.scrollHeight;
});
at('you-toggle').addEventListener('click', () => {
  const toggle = at('you-toggle');
  toggle.setAttribute('aria-expanded', String(toggle.getAttribute('aria-expanded') !== 'true'));
});
addEventListener('popstate', arrive);
readAddress();
connect();
