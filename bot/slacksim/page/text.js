// Text as Slack shows it: mrkdwn, dates, mentions and emoji. Everything becomes DOM nodes whose text is set as text, so
// nothing in it is ever read as HTML.

/** el makes an element. Attributes that are null or false are left out; functions listen to the event of that name. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** textObject shows a Block Kit text object: plain_text as it is, mrkdwn with its markup. */
export function textObject(object, directory) {
  if (object?.type === 'mrkdwn') return mrkdwn(object.text, directory);
  const fragment = document.createDocumentFragment();
  const text = String(object?.text ?? '');
  fragment.append(object?.emoji === false ? text : text.replace(/:([a-z0-9_+-]+):/g, (all, name) => EMOJI[name] ?? all));
  return fragment;
}

/** mrkdwn shows Slack's own markup. Links appear only where it says so; nothing is linked because it looks like one. */
export function mrkdwn(text, directory) {
  const fragment = document.createDocumentFragment();
  String(text ?? '').split(/```\n?([\s\S]+?)\n?```\n?/).forEach((part, i) => {
    if (i % 2) fragment.append(el('pre', {}, unescape(part)));
    else quotes(part, directory, fragment);
  });
  return fragment;
}

/** quotes gathers lines that begin with > in block quotes and leaves the others as they are. */
function quotes(text, directory, into) {
  let quote = null;
  let pending = [];
  const flush = () => {
    if (pending.length) inline(pending.join('\n'), directory, into);
    pending = [];
  };
  for (const line of text.split('\n')) {
    const quoted = /^(?:&gt;|>) ?(.*)$/.exec(line);
    if (quoted) {
      flush();
      if (quote) quote.append('\n');
      else into.append(quote = el('blockquote'));
      inline(quoted[1], directory, quote);
    } else {
      quote = null;
      pending.push(line);
    }
  }
  flush();
}

const STYLES = { '*': 'strong', _: 'em', '~': 's' };

function inline(text, directory, into) {
  const match = (pattern, at) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  const code = /`([^`\n]+)`/y, angle = /<([^<>\n]+)>/y, emoji = /:([a-z0-9_+-]+):/y;
  let plain = '';
  const flush = () => {
    if (plain) into.append(unescape(plain));
    plain = '';
  };
  for (let i = 0; i < text.length;) {
    const character = text[i];
    let found;
    if (character === '`' && (found = match(code, i))) {
      flush();
      into.append(el('code', {}, unescape(found[1])));
      i += found[0].length;
    } else if (character === '<' && (found = match(angle, i))) {
      flush();
      into.append(reference(found[1], directory));
      i += found[0].length;
    } else if (character === ':' && (found = match(emoji, i)) && EMOJI[found[1]]) {
      flush();
      into.append(emojiNode(found[1]));
      i += found[0].length;
    } else if (STYLES[character] && (found = closing(text, i)) > 0) {
      flush();
      const styled = el(STYLES[character]);
      inline(text.slice(i + 1, found), directory, styled);
      into.append(styled);
      i = found + 1;
    } else {
      plain += character;
      i++;
    }
  }
  flush();
}

/** closing finds the mark that ends the bold, italic or struck text that may start at i; 0 if none does. */
function closing(text, i) {
  const word = /[\p{L}\p{N}]/u, space = /\s/;
  if (i + 1 >= text.length || space.test(text[i + 1]) || (i > 0 && word.test(text[i - 1]))) return 0;
  for (let j = i + 1; j < text.length && text[j] !== '\n'; j++) {
    if (text[j] === '`' || text[j] === '<') {
      const end = text.indexOf(text[j] === '<' ? '>' : '`', j + 1);
      if (end > 0) j = end;
    } else if (text[j] === text[i] && j > i + 1 && !space.test(text[j - 1]) && !(j + 1 < text.length && word.test(text[j + 1]))) {
      return j;
    }
  }
  return 0;
}

/** reference shows what stands in angle brackets: a mention, a date or a link. What is none of them stays as it is. */
function reference(content, directory) {
  const bar = content.indexOf('|');
  const target = bar < 0 ? content : content.slice(0, bar);
  const label = bar < 0 ? '' : unescape(content.slice(bar + 1));
  if (target.startsWith('@')) return person(target.slice(1), directory);
  if (target.startsWith('#')) return mention('#' + (directory.channels.get(target.slice(1))?.name ?? (label || target.slice(1))));
  if (target.startsWith('!subteam^')) return group(target.slice('!subteam^'.length), directory, label);
  if (target.startsWith('!date^')) {
    const [, timestamp, format, url] = target.split('^');
    return date(Number(timestamp), unescape(format ?? ''), label, url);
  }
  if (['!here', '!channel', '!everyone'].includes(target)) return broadcast(target.slice(1));
  return link(unescape(target), label) ?? document.createTextNode('<' + unescape(content) + '>');
}

/** link shows a link, or returns null if the address isn't one that a message may lead to. */
export function link(url, label) {
  if (!/^(?:https?:\/\/|mailto:)/i.test(url)) return null;
  return el('a', { href: url, target: '_blank', rel: 'noopener noreferrer' }, label || url);
}

const mention = (text, attributes = {}) => el('span', { class: 'mention', ...attributes }, text);

/** person mentions somebody by their name. */
export function person(id, directory) {
  return mention('@' + (directory.people.get(id)?.name ?? id), { 'data-mention': id, class: id === directory.you ? 'mention self' : 'mention' });
}

/** group mentions a user group by its handle. */
export function group(id, directory, label = '') {
  return mention('@' + (directory.groups.get(id)?.handle ?? (label.replace(/^@/, '') || id)), { 'data-mention': id });
}

/** broadcast mentions everybody, and looks like it. */
export function broadcast(range) { return mention('@' + range, { class: 'mention self', 'data-mention': range }); }

/** date shows a Slack date in the reader's time zone, or its fallback. The timestamp is in seconds. */
export function date(seconds, format, fallback, url) {
  const at = new Date(seconds * 1000);
  const text = Number.isNaN(at.valueOf()) ? null : formatDate(at, format);
  if (text === null) return document.createTextNode(fallback);
  const shown = el('time', { datetime: at.toISOString(), title: longDate(at) }, text);
  const around = url && link(unescape(url), ' ');
  if (around) around.replaceChildren(shown);
  return around || shown;
}

export const longDate = (at) => at.toLocaleString(undefined, { dateStyle: 'full', timeStyle: 'long' });

export const clock = (at) => at.toLocaleTimeString(undefined, { hour: 'numeric', minute: '2-digit' });

/** nearDay names the day if it is next to today, in the reader's time zone. */
export function nearDay(at) {
  const midnight = (d) => new Date(d.getFullYear(), d.getMonth(), d.getDate());
  const days = Math.round((midnight(at) - midnight(new Date())) / 86_400_000);
  return { '-1': 'yesterday', 0: 'today', 1: 'tomorrow' }[days] ?? null;
}

function formatDate(at, format) {
  const year = at.getFullYear() === new Date().getFullYear() ? {} : { year: 'numeric' };
  const day = (options) => at.toLocaleDateString(undefined, options);
  const number = (n) => String(n).padStart(2, '0');
  const short = () => day({ month: 'short', day: 'numeric', ...year });
  const medium = () => day({ month: 'long', day: 'numeric', ...year });
  const long = () => day({ weekday: 'long', month: 'long', day: 'numeric', ...year });
  const forms = {
    date_num: () => [at.getFullYear(), number(at.getMonth() + 1), number(at.getDate())].join('-'),
    date_slash: () => [number(at.getMonth() + 1), number(at.getDate()), at.getFullYear()].join('/'),
    date_short: short,
    date: medium,
    date_long: long,
    date_short_pretty: () => nearDay(at) ?? short(),
    date_pretty: () => nearDay(at) ?? medium(),
    date_long_pretty: () => nearDay(at) ?? long(),
    time: () => clock(at),
    time_secs: () => at.toLocaleTimeString(),
    ago: () => ago(at),
  };
  let known = true;
  const text = format.replace(/\{(\w+)\}/g, (_, name) => {
    known &&= name in forms;
    return known ? forms[name]() : '';
  });
  return known ? text : null;
}

function ago(at) {
  const seconds = (at - Date.now()) / 1000;
  const [unit, size] = [['day', 86_400], ['hour', 3600], ['minute', 60], ['second', 1]].find(([, n]) => Math.abs(seconds) >= n) ?? ['second', 1];
  return new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' }).format(Math.round(seconds / size), unit);
}

const unescape = (text) => text.replace(/&(amp|lt|gt);/g, (_, name) => ({ amp: '&', lt: '<', gt: '>' })[name]);

/** emojiNode shows an emoji by its name; one that isn't known here stays :name:. */
export function emojiNode(name, codePoints = '') {
  const points = codePoints.split('-').map((hex) => parseInt(hex, 16));
  const given = codePoints && points.every((n) => n > 0 && n <= 0x10ffff) ? String.fromCodePoint(...points) : '';
  const character = EMOJI[name] ?? given;
  if (!character) return document.createTextNode(':' + name + ':');
  return el('span', { role: 'img', 'aria-label': name.replaceAll('_', ' '), title: ':' + name + ':' }, character);
}

const EMOJI = {
  __proto__: null,
  '+1': '👍', '-1': '👎', thumbsup: '👍', thumbsdown: '👎', wave: '👋', raised_hand: '✋', eyes: '👀', tada: '🎉', fire: '🔥', rocket: '🚀',
  white_check_mark: '✅', heavy_check_mark: '✔️', ballot_box_with_check: '☑️', x: '❌', no_entry: '⛔', no_entry_sign: '🚫',
  octagonal_sign: '🛑', warning: '⚠️', rotating_light: '🚨', exclamation: '❗', question: '❓', information_source: 'ℹ️',
  large_yellow_circle: '🟡', large_green_circle: '🟢', large_orange_circle: '🟠', large_blue_circle: '🔵', red_circle: '🔴',
  white_circle: '⚪', black_circle: '⚫', hourglass: '⌛', hourglass_flowing_sand: '⏳', stopwatch: '⏱️', alarm_clock: '⏰', zzz: '💤',
  lock: '🔒', unlock: '🔓', key: '🔑', shield: '🛡️', mag: '🔍', bell: '🔔', no_bell: '🔕', pencil: '📝', memo: '📝', pencil2: '✏️',
  scissors: '✂️', wastebasket: '🗑️', arrows_counterclockwise: '🔄', repeat: '🔁', arrow_right: '➡️', leftwards_arrow_with_hook: '↩️',
  gear: '⚙️', wrench: '🔧', hammer_and_wrench: '🛠️', construction: '🚧', package: '📦', link: '🔗', email: '📧', bulb: '💡',
  robot_face: '🤖', bust_in_silhouette: '👤', busts_in_silhouette: '👥', speech_balloon: '💬', page_facing_up: '📄', clipboard: '📋',
  bar_chart: '📊', chart_with_upwards_trend: '📈', money_with_wings: '💸', moneybag: '💰', credit_card: '💳', globe_with_meridians: '🌐',
};
