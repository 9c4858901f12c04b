// The inputs of a modal: each is a native control, so it works as people and screen readers expect.

import { el, textObject } from './text.js';

let serial = 0;

/** field shows an input block with its label, hint and error; null if its element isn't simulated. */
export function field(block, surface) {
  const make = CONTROLS[block.element?.type];
  if (!make) return null;
  const { directory } = surface;
  const id = 'field-' + ++serial;
  const error = surface.error(block);
  const label = [el('span', {}, textObject(block.label, directory)), block.optional ? el('span', { class: 'quiet' }, ' (optional)') : null];
  const described = [block.hint ? id + '-hint' : null, error ? id + '-error' : null].filter(Boolean).join(' ') || null;
  const common = {
    'data-block-id': block.block_id,
    'data-focus': block.block_id,
    'aria-describedby': described,
    'aria-invalid': error ? 'true' : null,
  };
  const notes = [
    block.hint ? el('p', { class: 'hint quiet', id: id + '-hint' }, textObject(block.hint, directory)) : null,
    error ? el('p', { class: 'error', id: id + '-error', role: 'alert', 'data-error-for': block.block_id }, error) : null,
  ];
  const value = surface.draft(block) ?? initial(block.element);
  if (choices(block.element)) {
    return el('fieldset', { class: 'field', 'aria-describedby': described }, el('legend', {}, ...label), make(block, value, common, directory), ...notes);
  }
  const control = make(block, value, { id, 'aria-required': block.optional ? null : 'true', ...common }, directory);
  if (block.element.focus_on_load) control.setAttribute('autofocus', '');
  return el('div', { class: 'field' }, el('label', { for: id }, ...label), control, ...notes);
}

/** fieldKey tells inputs apart: what was typed stays with the same block and element when the app updates the view. */
export const fieldKey = (block) => block.block_id + '/' + (block.element?.action_id ?? '');

/** fieldValue reads what an input block holds now: several options, of checkboxes, on a line each. */
export function fieldValue(block, root) {
  const controls = [...root.querySelectorAll('[data-block-id]')].filter((control) => control.dataset.blockId === block.block_id);
  if (!choices(block.element)) return controls[0]?.value ?? '';
  return controls.filter((control) => control.checked).map((control) => control.value).join('\n');
}

const choices = (element) => ['radio_buttons', 'checkboxes'].includes(element.type);

function initial(element) {
  if (element.initial_options) return element.initial_options.map((option) => option.value).join('\n');
  return element.initial_option?.value ?? element.initial_date ?? element.initial_value ?? '';
}

function line(type, mode) {
  return (block, value, attributes) => {
    const control = el('input', { type, inputmode: mode, autocomplete: 'off', placeholder: block.element.placeholder?.text, ...attributes });
    control.value = value;
    return control;
  };
}

function options(type) {
  return (block, value, attributes, directory) => {
    const chosen = value.split('\n');
    const name = 'options-' + ++serial;
    return el('div', {}, ...block.element.options.map((option) => {
      const control = el('input', { type, name, value: option.value, ...attributes });
      control.checked = chosen.includes(option.value);
      return el('label', { class: 'option' }, control, el('span', {},
        textObject(option.text, directory),
        option.description ? el('span', { class: 'quiet description' }, textObject(option.description, directory)) : null));
    }));
  };
}

const CONTROLS = {
  __proto__: null,

  plain_text_input(block, value, attributes, directory) {
    if (!block.element.multiline) return line('text')(block, value, attributes, directory);
    const control = el('textarea', { rows: '4', placeholder: block.element.placeholder?.text, ...attributes });
    control.value = value;
    return control;
  },

  // Not the browser's own types: they would refuse what Slack, or the app, is to answer.
  email_text_input: line('text', 'email'),
  url_text_input: line('text', 'url'),
  number_input: line('text', 'decimal'),
  datepicker: line('date'),

  static_select(block, value, attributes) {
    const control = el('select', attributes,
      el('option', { value: '' }, block.element.placeholder?.text ?? 'Choose an option'),
      ...block.element.options.map((option) => el('option', { value: option.value }, option.text.text)));
    control.value = value;
    return control;
  },

  radio_buttons: options('radio'),
  checkboxes: options('checkbox'),
};
