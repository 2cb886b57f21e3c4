// A tensor's memory and its views: the same cell colour is the same place. Data: book_strides --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const {tag, words, picture, tone} = Book;
  const CELL = 34;

  const last = data => data.tensors[data.tensors.length - 1];

  // Rows and columns of the last two dimensions; those before them make blocks.
  function blocksOf(tensor) {
    const sizes = tensor.sizes.length === 0 ? [1] : tensor.sizes;
    const columns = sizes[sizes.length - 1], rows = sizes.length > 1 ? sizes[sizes.length - 2] : 1;
    const each = rows * columns, count = tensor.places.length;
    return {columns, rows, blocks: each === 0 ? 0 : count / each};
  }

  function cellOf(x, y, text, place, lit, faded) {
    return tag('g', {class: `${tone(place)}${lit ? ' lit' : ''}${faded ? ' faded' : ''} place`},
               tag('rect', {x: x + 1, y: y + 1, width: CELL - 2, height: CELL - 2, rx: 4}), words(x + CELL / 2, y + CELL / 2 + 5, text));
  }

  function memory(data, frame) {
    const t = last(data), per = Math.min(12, t.storage);
    const held = new Map(t.places.map((place, n) => [place, t.values[n]]));
    const cells = Array.from({length: t.storage}, (_, place) => {
      const x = (place % per) * CELL, y = 24 + Math.floor(place / per) * CELL;
      return cellOf(x, y, held.get(place) ?? (t.view ? place : ''), place, frame > 0 && t.places[frame - 1] === place, !held.has(place));
    });
    const height = 24 + Math.ceil(t.storage / per) * CELL;
    return {width: per * CELL, height, parts: [words(0, 14, t.view ? 'the memory' : 'new memory: the last operation copied', 'strong', 'start'), ...cells]};
  }

  function tensor(data, frame, top) {
    const t = last(data), {columns, rows, blocks} = blocksOf(t);
    const parts = [words(0, top + 14, `the tensor: sizes [${t.sizes.join(', ')}], strides [${t.strides.join(', ')}], offset ${t.offset}`, 'strong', 'start')];
    let width = 0, x = 0, y = top + 24;
    for (let b = 0; b < blocks; ++b) {
      if (x > 0 && x + columns * CELL > 12 * CELL) { x = 0; y += rows * CELL + 14; }
      for (let i = 0; i < rows * columns; ++i) {
        const n = b * rows * columns + i;
        parts.push(cellOf(x + (i % columns) * CELL, y + Math.floor(i / columns) * CELL, t.values[n], t.places[n], frame === n + 1));
      }
      x += columns * CELL + 14;
      width = Math.max(width, x - 14);
    }
    return {width, height: blocks === 0 ? top + 30 : y + rows * CELL, parts};
  }

  const caption = (data, frame) => {
    const t = last(data);
    if (frame === 0 || t.places.length === 0) return t.places.length === 0 ? 'The tensor has no element.' : 'Step through the elements in the order of their indices.';
    const n = frame - 1, index = [];
    let rest = n;
    for (let d = t.sizes.length - 1; d >= 0; --d) {
      index.unshift(rest % t.sizes[d]);
      rest = Math.floor(rest / t.sizes[d]);
    }
    const sum = index.map((i, d) => `${i}*${t.strides[d]}`).join(' + ');
    return `Element [${index.join(', ')}] is at place ${t.offset}${sum ? ` + ${sum}` : ''} = ${t.places[n]}.`;
  };

  const OPERATIONS = ['', 'transpose:0,1', 'select:0,1', 'select:1,0', 'slice:0,0,2,1', 'slice:1,0,9,2', 'view:-1', 'reshape:-1', 'unsqueeze:0', 'squeeze:0',
                      'permute:2,0,1', 'expand:3,-1', 'expand:2,-1,-1', 'contiguous'];
  const choice = (name, label, value) => ({name, label, kind: 'choice', value, options: OPERATIONS.map(o => [o, o === '' ? 'nothing' : o])});

  Book.figure({
    id: 'strides',
    title: 'A tensor and its views',
    about: 'One row of memory, seen through sizes and strides. A cell keeps the colour of its place in memory.',
    lesson: ['chapter 01, Tensors and strides', '01-tensors.html'],
    controls: [
      {name: 'sizes', label: 'Sizes', kind: 'choice', value: '3,4', options: ['6', '2,3', '3,4', '4,4', '2,3,2', '1,5', '2,2,3,2'].map(s => [s, `[${s.replace(/,/g, ', ')}]`])},
      choice('one', 'First', 'transpose:0,1'), choice('two', 'Then', 'slice:0,0,2,1'), choice('three', 'Then', ''),
    ],
    first: 0,
    command: v => ({program: 'book_strides', args: ['--sizes', v.sizes, ...[v.one, v.two, v.three].filter(o => o !== '')]}),
    frames: data => last(data).places.length + 1,
    caption,
    draw: (data, frame) => {
      const m = memory(data, frame), t = tensor(data, frame, m.height + 18);
      return picture(Math.max(m.width, t.width, 400), t.height + 4, `memory and tensor: ${caption(data, frame)}`, m.parts, t.parts);
    },
    verdict: data => {
      const t = last(data);
      if (data.error !== '') return {good: false, text: data.error};
      return {good: true, text: `${t.view ? 'a view: nothing was copied' : 'a copy'}; ${t.contiguous ? 'contiguous' : 'strided'}`};
    },
  });
})();
