// The graph of an expression; backward walks it, and hooks fire. Data: book_tape --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const {tag, words, picture, escape} = Book;
  const WIDTH = 84, HEIGHT = 46, ACROSS = 124, DOWN = 74;

  // Column: the longest way from a leaf. Rows in the order of the values.
  function layout(data) {
    if (data.layout) return data.layout;
    const depth = [];
    data.values.forEach((v, i) => { depth[i] = v.inputs.length === 0 ? 0 : 1 + Math.max(...v.inputs.map(j => depth[j])); });
    // A leaf stands just before its first user.
    data.values.forEach((v, i) => {
      if (v.inputs.length > 0) return;
      const users = data.values.flatMap((u, j) => u.inputs.includes(i) ? [depth[j]] : []);
      depth[i] = users.length > 0 ? Math.min(...users) - 1 : 0;
    });
    const rows = [];
    const place = data.values.map((v, i) => [depth[i], (rows[depth[i]] = (rows[depth[i]] ?? -1) + 1)]);
    const most = Math.max(...rows.map(r => r ?? 0));
    return data.layout = {
      at: i => [8 + place[i][0] * ACROSS, 8 + (place[i][1] + (most - rows[place[i][0]]) / 2) * DOWN],
      width: 16 + Math.max(...depth) * ACROSS + WIDTH, height: 16 + most * DOWN + HEIGHT + 14};
  }

  // After so many moments: the gradients that have arrived, and the edges that they took.
  function stateAt(data, frame) {
    const gradients = new Map(), edges = new Map(), complete = new Set();
    data.moments.slice(0, frame).forEach((m, n) => {
      const now = n === frame - 1;
      gradients.set(m.item, m.arrived);
      if (m.name === 'hook') return complete.add(m.item);
      data.values[m.item].inputs.forEach((input, k) => {
        if (data.values[input].wants_gradient) edges.set(`${m.item} ${k}`, {text: m.passed_on[k], now});
      });
    });
    return {gradients, edges, complete, active: frame > 0 ? data.moments[frame - 1].item : -1};
  }

  function draw(data, frame) {
    const l = layout(data), s = stateAt(data, frame);
    const lines = [], passing = [];
    data.values.forEach((v, i) => v.inputs.forEach((input, k) => {
      const [x1, y1] = l.at(input), [x2, y2] = l.at(i);
      const spread = v.inputs.length === 2 ? (k === 0 ? -9 : 9) : 0;
      const from = [x1 + WIDTH, y1 + HEIGHT / 2 + (v.inputs[0] === v.inputs[1] ? spread : 0)], to = [x2, y2 + HEIGHT / 2 + spread];
      const edge = s.edges.get(`${i} ${k}`);
      lines.push(tag('path', {class: `edge${edge ? ' used' : ''}${edge?.now ? ' now' : ''}`,
                              d: `M${from} C${from[0] + 22} ${from[1]} ${to[0] - 22} ${to[1]} ${to}`}));
      if (edge?.now) passing.push(words((from[0] + to[0]) / 2, from[1] + 0.35 * (to[1] - from[1]) - 3, edge.text, 'passing'));
    }));
    const boxes = data.values.map((v, i) => {
      const [x, y] = l.at(i);
      const label = v.inputs.length === 0 && !v.leaf ? v.label : `${v.label} = ${v.value}`;
      const kind = `${v.leaf ? 'leaf' : v.inputs.length === 0 ? 'constant' : 'operation'}${i === s.active ? ' now' : ''}${s.complete.has(i) ? ' complete' : ''}`;
      const gradient = s.gradients.get(i);
      return tag('g', {class: `value ${kind}`}, tag('rect', {x, y, width: WIDTH, height: HEIGHT, rx: 8}), words(x + WIDTH / 2, y + (gradient === undefined ? 28 : 19), label, 'strong'),
                 gradient === undefined ? '' : words(x + WIDTH / 2, y + 36, `grad ${gradient}`, 'quiet'),
                 s.complete.has(i) ? words(x + WIDTH / 2, y + HEIGHT + 13, 'hook fired', 'fired') : '');
    });
    return picture(Math.max(l.width, 330), l.height, `graph of the expression: ${caption(data, frame)}`, lines, boxes, passing);
  }

  function caption(data, frame) {
    if (frame === 0) return 'Forward is done. Backward begins at the right, with gradient 1.';
    const m = data.moments[frame - 1], label = data.values[m.item].label;
    if (m.name === 'hook') return `All contributions to ${label} are in: its gradient is ${m.arrived}, and its hook fires.`;
    const to = data.values[m.item].inputs.map((input, k) => data.values[input].wants_gradient ? m.passed_on[k] : null).filter(g => g !== null);
    return `${m.name} gets ${m.arrived} and gives its inputs ${to.join(' and ')}.`;
  }

  const number = (name, value) => ({name, label: name, kind: 'range', min: -4, max: 4, step: 0.5, value});
  Book.figure({
    id: 'tape',
    title: 'The tape, and hooks that fire',
    about: 'Forward wrote the graph from left to right; backward walks it from right to left. A leaf’s hook fires when its ' +
      'last contribution is in: that is what DistributedDataParallel waits for.',
    lesson: ['chapter 03, Autograd', '03-autograd.html'],
    controls: [
      {name: 'expression', label: 'Expression', kind: 'text', value: '(w*x + b)*(w*x + b)*w', max: 60,
       suggestions: ['(w*x + b)*(w*x + b)*w', 'w*x + b', 'w*w*w', 'tanh(w*x + b) - x', 'relu(w*x) + relu(b*x)', 'exp(w)/(exp(w) + exp(b))']},
      number('w', 3), number('x', 2), number('b', 1),
    ],
    first: 3,
    command: v => ({program: 'book_tape', args: [v.expression, `w=${v.w}`, `x=${v.x}`, `b=${v.b}`]}),
    frames: data => data.moments.length + 1,
    caption,
    draw: (data, frame) => draw(data, Math.min(frame, data.moments.length)),
    verdict: data => {
      const fired = data.moments.filter(m => m.name === 'hook');
      return {good: true, text: `hooks fire in this order: ${fired.map(m => `${escape(data.values[m.item].label)} (${m.arrived})`).join(', ')}`};
    },
  });
})();
