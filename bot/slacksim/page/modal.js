// The modal that the person has open, and confirm dialogs. What was typed survives every update of the page.

import { blocks } from './blocks.js';
import { fieldKey, fieldValue } from './fields.js';
import { el, textObject } from './text.js';

const dialog = document.getElementById('modal');
const drafts = new Map(); // view id to what was typed, by fieldKey
let current = null; // the view on screen
let printed = ''; // what it was made from
let answer = { view: '', hash: '', shown: '', errors: null }; // to the last act in it
let waiting = ''; // the act that waits for the app

/**
 * showView shows the view on top of the person's stack, or none. The acts are functions that send an act and return what
 * the page hears of it: click(view, block, element, values), submit(view, values), close(view).
 */
export function showView(view, directory, acts) {
  if (!view) {
    current = null;
    printed = '';
    drafts.clear();
    if (dialog.open) dialog.close();
    return;
  }
  const mine = answer.view === view.id && answer.hash === view.hash ? answer : null;
  const errors = mine?.errors ?? view.errors ?? {};
  const print = JSON.stringify([view, errors, mine?.shown, waiting, [...directory.people], [...directory.groups]]);
  if (print === printed) return;
  printed = print;

  const redraw = () => showView(current, directory, acts);
  const run = async (name, send) => {
    if (waiting) return;
    waiting = name;
    answer = { view: '', hash: '', shown: '', errors: null };
    redraw();
    const said = await send();
    waiting = '';
    answer = { view: view.id, hash: view.hash, ...said };
    if (!current) return;
    redraw();
    dialog.querySelector('[aria-invalid]')?.focus();
  };
  const values = () => Object.fromEntries(inputs(view).map((block) => [block.block_id, fieldValue(block, dialog)]));
  const surface = {
    directory,
    busy: (element, block) => waiting === block.block_id + '/' + element.action_id,
    press: async (element, block) => {
      if (element.confirm && !await confirmed(element.confirm, directory)) return;
      openLink(element);
      run(block.block_id + '/' + element.action_id, () => acts.click(view, block, element, values()));
    },
    draft: (block) => drafts.get(view.id)?.get(fieldKey(block)),
    error: (block) => errors[block.block_id],
  };
  const close = () => run('close', () => acts.close(view));
  const form = el('form', {
    method: 'dialog',
    novalidate: true,
    submit: (event) => {
      event.preventDefault();
      if (view.submit) run('submit', () => acts.submit(view, values()));
    },
    input: () => drafts.set(view.id, new Map(inputs(view).map((block) => [fieldKey(block), fieldValue(block, dialog)]))),
  },
  el('header', {},
    el('h2', { id: 'modal-title' }, view.title),
    el('button', { type: 'button', class: 'quiet-button', 'aria-label': 'Close', 'data-focus': 'x', click: close }, '✕')),
  el('div', { class: 'body', 'data-scroll': true }, blocks(view.blocks, surface)),
  el('footer', {},
    mine?.shown ? el('p', { class: 'warning', role: 'alert', 'data-shown-error': true }, '⚠️ ' + mine.shown) : null,
    el('button', { type: 'button', 'data-close': true, 'data-focus': 'close', click: close }, el('span', { class: 'label' }, view.close || 'Close')),
    view.submit ? el('button', {
      type: 'submit',
      class: 'primary',
      'data-submit': true,
      'data-focus': 'submit',
      'aria-busy': waiting === 'submit' ? 'true' : null,
      'aria-disabled': waiting === 'submit' ? 'true' : null,
    }, el('span', { class: 'label' }, view.submit)) : null));

  const same = current?.id === view.id;
  const scrolled = same ? dialog.querySelector('[data-scroll]')?.scrollTop ?? 0 : 0;
  current = view;
  dialog.dataset.viewCallbackId = view.callback_id;
  dialog.dataset.viewId = view.id;
  keepFocus(dialog, () => { dialog.replaceChildren(form); });
  dialog.querySelector('[data-scroll]').scrollTop = scrolled;
  if (!dialog.open) dialog.showModal();
  if (!dialog.contains(document.activeElement) || !same) {
    (form.querySelector('[autofocus]') ?? form.querySelector('[data-block-id]') ?? form.querySelector('footer button')).focus({ preventScroll: true });
  }
  dialog.oncancel = (event) => {
    event.preventDefault();
    close();
  };
  // A browser closes a dialog by itself at a second Escape; it is open until the workspace says otherwise.
  dialog.onclose = () => {
    if (current) dialog.showModal();
  };
}

const inputs = (view) => (view.blocks ?? []).filter((block) => block.type === 'input');

/**
 * keepFocus changes what is in an element and puts the focus back on what takes the place of the focused control. The change
 * may put another element in the place of the first; it returns that.
 */
export function keepFocus(root, change) {
  const active = document.activeElement;
  const within = root.contains(active);
  const { value, type, selectionStart, selectionEnd, scrollTop } = active;
  const now = change() ?? root;
  if (!within || now.contains(active)) return;
  const alike = [...now.querySelectorAll('[data-focus]')].filter((control) => control.dataset.focus === active.dataset.focus);
  const next = alike.find((control) => control.value === value) ?? alike[0];
  (next ?? now).focus({ preventScroll: true });
  if (!next || !['text', 'textarea'].includes(type)) return;
  next.setSelectionRange(selectionStart, selectionEnd);
  next.scrollTop = scrollTop;
}

/** confirmed asks what a confirm object asks, and resolves to whether the person confirmed it. */
export function confirmed(object, directory) {
  const box = document.getElementById('confirm');
  return new Promise((resolve) => {
    const button = (text, yes, attributes) => el('button', { value: yes ? 'yes' : '', ...attributes }, el('span', { class: 'label' }, textObject(text, directory)));
    box.replaceChildren(el('form', { method: 'dialog' },
      el('h2', { id: 'confirm-title' }, textObject(object.title, directory)),
      el('p', { id: 'confirm-text', class: 'text' }, textObject(object.text, directory)),
      el('footer', {},
        button(object.deny, false, { 'data-confirm-no': true, autofocus: true }),
        button(object.confirm, true, { 'data-confirm-yes': true, class: object.style === 'danger' ? 'danger' : 'primary' }))));
    box.returnValue = '';
    box.onclose = () => resolve(box.returnValue === 'yes');
    box.showModal();
  });
}

/** openLink opens what a button with an address leads to. The app is told of the click as well. */
export function openLink(element) {
  if (/^https?:\/\//i.test(element.url ?? '')) window.open(element.url, '_blank', 'noopener,noreferrer');
}
