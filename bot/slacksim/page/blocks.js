// Block Kit as DOM. What isn't simulated is shown as a box that says so: nothing is left out silently.

import { broadcast, date, el, emojiNode, group, link, person, textObject } from './text.js';
import { field } from './fields.js';

/**
 * blocks shows a list of blocks. The surface says how they come alive:
 *   directory: names of people, groups and channels, and who is looking
 *   press(element, block): somebody presses a button
 *   busy(element, block): whether that press still waits for the app
 *   draft(block), error(block): what was typed in an input, and what is wrong with it (in modals)
 */
export function blocks(list, surface) {
  return el('div', { class: 'blocks' }, ...(list ?? []).map((block) => {
    const show = BLOCKS[block?.type];
    return show ? show(block, surface) : unsupported('block', block?.type);
  }));
}

const unsupported = (what, type) => el('div', { class: 'unsupported', role: 'note' }, `Unsupported ${what}: ${type ?? 'without a type'}`);

const BLOCKS = {
  __proto__: null,

  section(block, surface) {
    const { directory } = surface;
    return el('div', { class: 'section' },
      el('div', { class: 'grow' },
        block.text ? el('div', { class: 'text' }, textObject(block.text, directory)) : null,
        block.fields ? el('div', { class: 'fields' }, ...block.fields.map((item) => el('div', { class: 'text' }, textObject(item, directory)))) : null),
      block.accessory ? button(block.accessory, block, surface) : null);
  },

  header(block, { directory }) {
    return el('h3', { class: 'header' }, textObject(block.text, directory));
  },

  context(block, { directory }) {
    return el('div', { class: 'context' }, ...block.elements.map((element) =>
      ['plain_text', 'mrkdwn'].includes(element.type)
        ? el('span', { class: 'text' }, textObject(element, directory))
        : unsupported('element', element.type)));
  },

  divider() {
    return el('hr');
  },

  actions(block, surface) {
    return el('div', { class: 'actions' }, ...block.elements.map((element) => button(element, block, surface)));
  },

  alert(block, { directory }) {
    const level = ['info', 'warning', 'error', 'success'].includes(block.level) ? block.level : 'default';
    const mark = { info: 'ℹ️', warning: '⚠️', error: '⛔', success: '✅', default: '💬' }[level];
    return el('div', { class: 'alert ' + level, role: 'note' },
      el('span', { 'aria-hidden': 'true' }, mark),
      el('div', { class: 'text' }, textObject(block.text, directory)));
  },

  rich_text(block, { directory }) {
    return el('div', { class: 'rich' }, ...block.elements.map((element) => {
      const show = RICH[element.type];
      return show ? show(element, directory) : unsupported('rich text', element.type);
    }));
  },

  input(block, surface) {
    return field(block, surface) ?? unsupported('input', block.element?.type);
  },
};

const line = (element, directory) => element.elements.map((part) => richPart(part, directory));

const RICH = {
  __proto__: null,
  rich_text_section: (element, directory) => el('div', { class: 'text' }, ...line(element, directory)),
  rich_text_preformatted: (element, directory) => el('pre', { tabindex: '0' }, ...line(element, directory)),
  rich_text_quote: (element, directory) => el('blockquote', {}, ...line(element, directory)),
  rich_text_list(element, directory) {
    const list = el(element.style === 'ordered' ? 'ol' : 'ul', {
      class: 'indent-' + Math.min(Number(element.indent) || 0, 8),
      start: element.style === 'ordered' && element.offset ? Number(element.offset) + 1 : null,
    });
    list.append(...element.elements.map((item) => el('li', {}, ...line(item, directory))));
    return list;
  },
};

const PARTS = {
  __proto__: null,
  text: (part) => document.createTextNode(part.text),
  link: (part) => link(part.url, part.text) ?? document.createTextNode(part.text ?? part.url),
  emoji: (part) => emojiNode(part.name, part.unicode),
  user: (part, directory) => person(part.user_id, directory),
  usergroup: (part, directory) => group(part.usergroup_id, directory),
  channel: (part, directory) => el('span', { class: 'mention' }, '#' + (directory.channels.get(part.channel_id)?.name ?? part.channel_id)),
  broadcast: (part) => broadcast(part.range),
  date: (part) => date(part.timestamp, part.format, part.fallback ?? '', part.url),
};

/** richPart shows a part of a line of rich text. Its style says how it looks; its text is never parsed. */
function richPart(part, directory) {
  const show = PARTS[part.type];
  if (!show) return unsupported('rich text', part.type);
  const style = part.style ?? {};
  return [['code', 'code'], ['strike', 's'], ['underline', 'u'], ['italic', 'em'], ['bold', 'strong']]
    .filter(([name]) => style[name])
    .reduce((inner, [, tag]) => el(tag, {}, inner), show(part, directory));
}

function button(element, block, surface) {
  if (element.type !== 'button') return unsupported('element', element.type);
  const busy = surface.busy(element, block);
  return el('button', {
    type: 'button',
    class: ['primary', 'danger'].includes(element.style) ? element.style : null,
    'data-action-id': element.action_id ?? '',
    'data-focus': 'button ' + (element.action_id ?? ''),
    'aria-label': element.accessibility_label,
    'aria-busy': busy ? 'true' : null,
    'aria-disabled': busy ? 'true' : null,
    click: () => busy || surface.press(element, block),
  }, el('span', { class: 'label' }, textObject(element.text, surface.directory)));
}
