// What all live figures share. A classic script, since pages from file:// may not load modules; the
// build runs it under node to draw what a page shows before JavaScript.
//
// A figure has: id, title, about (HTML), lesson [title, page], program, controls, command(values) ->
// {program, args}, draw(data, frame) -> HTML, frames(data) (the positions to step through; still: there are none),
// caption(data, frame), verdict(data) -> {text, good}.
'use strict';
globalThis.Book = globalThis.Book ?? {};
(() => {
  const {Book} = globalThis;
  Book.figures = {};
  Book.packed = {};  // modules, by figure

  Book.figure = figure => { Book.figures[figure.id] = figure; };
  Book.defaults = figure => Object.fromEntries(figure.controls.map(c => [c.name, c.value]));
  Book.last = (figure, data) => Math.max(0, figure.frames(data) - 1);

  const escape = text => String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');
  Book.escape = escape;

  // Attributes may be false or undefined: left out. Numbers have at most two decimals.
  Book.tag = (name, attributes, ...inner) => {
    const list = Object.entries(attributes).filter(([, v]) => v !== undefined && v !== false)
      .map(([k, v]) => ` ${k}="${escape(typeof v === 'number' ? Math.round(v * 100) / 100 : v)}"`).join('');
    return `<${name}${list}>${inner.flat().join('')}</${name}>`;
  };
  Book.words = (x, y, text, kind = '', anchor = 'middle') =>
    Book.tag('text', {x, y, class: kind || undefined, 'text-anchor': anchor}, escape(text));
  Book.picture = (width, height, title, ...parts) =>
    Book.tag('svg', {viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`, role: 'img', class: 'drawn',
                     style: `max-width:${Math.ceil(width * 1.25)}px;min-width:${Math.ceil(width * 0.7)}px`}, Book.tag('title', {}, escape(title)), ...parts);

  // Eight hues that stand apart in light and dark: style.css gives .tone0 to .tone7 their colours.
  Book.tone = n => `tone${((n % 8) + 8) % 8}`;
  Book.plural = (n, noun) => `${n} ${noun}${n === 1 ? '' : 's'}`;
})();
