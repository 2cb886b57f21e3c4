// What all live figures share. A classic script, since pages from file:// may not load modules; the
// build runs it under node to draw what a page shows before JavaScript.
//
// A figure has: id, title, about (HTML), lesson [title, page], program, controls, command(values) ->
// {program, args}, draw(data, frame) -> HTML, frames(data) (the positions to step through; still: there are none),
// caption(data, frame), verdict(data) -> {text, good}; recorded: its outputs are recorded when the book is built, and
// all() lists the values that they are recorded for.
'use strict';
globalThis.Book = globalThis.Book ?? {};
(() => {
  const {Book} = globalThis;
  Book.figures = {};
  Book.packed = {};    // modules, by figure
  Book.recorded = {};  // of a figure without a module: {"ARGUMENTS": {text, json}, ...}

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
  // A chart of curves. x and y: {label, log, min, max, ticks: [[value, text], ...]}; curves: [{name, tone, dash,
  // points: [[x, y], ...]}], of which points beyond the frame are left out; marks: [{x, text}], vertical lines.
  Book.chart = (title, x, y, curves, marks = []) => {
    const LEFT = 50, TOP = 12 + 18 * Math.ceil(curves.length / 2), WIDTH = 450, HEIGHT = 190, RIGHT = 12;
    const part = (axis, v) => axis.log ? Math.log(v / axis.min) / Math.log(axis.max / axis.min) : (v - axis.min) / (axis.max - axis.min);
    const at = v => LEFT + part(x, v) * (WIDTH - LEFT - RIGHT), up = v => TOP + HEIGHT * (1 - part(y, v));
    const inside = v => Math.min(Math.max(v, y.min), y.max);
    const parts = [];
    for (const [v, text] of y.ticks)
      parts.push(Book.tag('line', {x1: LEFT, x2: WIDTH - RIGHT, y1: up(v), y2: up(v), class: 'axis'}), Book.words(LEFT - 6, up(v) + 4, text, 'quiet', 'end'));
    for (const [v, text] of x.ticks)
      parts.push(Book.tag('line', {x1: at(v), x2: at(v), y1: TOP + HEIGHT, y2: TOP + HEIGHT + 4, class: 'axis'}), Book.words(at(v), TOP + HEIGHT + 18, text, 'quiet'));
    parts.push(Book.words(WIDTH - RIGHT, TOP + HEIGHT + 36, x.label, 'quiet', 'end'), Book.words(0, TOP + HEIGHT + 36, y.label, 'quiet', 'start'));
    for (const {x: v, text} of marks)
      parts.push(Book.tag('line', {x1: at(v), x2: at(v), y1: TOP, y2: TOP + HEIGHT, class: 'mark'}),
                 Book.words(at(v) + (part(x, v) > 0.6 ? -5 : 5), TOP + 12, text, 'quiet', part(x, v) > 0.6 ? 'end' : 'start'));
    curves.forEach((curve, n) => {
      const left = n % 2 * (WIDTH / 2), top = 14 + 18 * Math.floor(n / 2);
      const line = curve.points.filter(([v]) => v >= x.min && v <= x.max).map(([a, b], i) => `${i ? 'L' : 'M'}${at(a).toFixed(1)} ${up(inside(b)).toFixed(1)}`).join('');
      const kind = `curve${curve.dash ? ' dash' : ''} ${Book.tone(curve.tone)}`;
      parts.push(Book.tag('path', {d: line, class: kind}), Book.tag('path', {d: `M${left} ${top - 4}h22`, class: kind}), Book.words(left + 28, top, curve.name, '', 'start'));
    });
    return Book.picture(WIDTH, TOP + HEIGHT + 42, title, parts);
  };

  Book.plural = (n, noun) => `${n} ${noun}${n === 1 ? '' : 's'}`;
})();
