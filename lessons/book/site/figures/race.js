// Threads of a block, with and without a barrier, as the emulator ran them. Data: book_race --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const {tag, words, picture, tone, plural} = Book;
  const CELL = 52;
  const SEEDS = [1, 2, 3, 4, 5, 6, 7, 8], THREADS = [2, 4, 8];

  function draw(data, frame) {
    const n = data.threads, memory = Array(n).fill(null), got = Array(n).fill(null), last = Array(n).fill('');
    data.moments.slice(0, frame).forEach(m => {
      if (m.what === 'writes') memory[m.place] = m.value;
      if (m.what === 'reads') got[m.thread] = m;
      last[m.thread] = m.what;
    });
    const now = frame > 0 ? data.moments[frame - 1] : null;
    const left = 74, x = t => left + t * (CELL + 6);
    const parts = [words(0, 20, 'thread', 'quiet', 'start'), words(0, 97, 'shared', 'quiet', 'start'), words(0, 111, 'memory', 'quiet', 'start'), words(0, 170, 'has read', 'quiet', 'start')];
    for (let t = 0; t < n; ++t) {
      const active = now?.thread === t;
      const waits = last[t] === 'waits';
      parts.push(tag('g', {class: `thread${active ? ' now' : ''}${waits ? ' waiting' : ''}`}, tag('circle', {cx: x(t) + CELL / 2, cy: 16, r: 13}), words(x(t) + CELL / 2, 21, t, 'strong'),
                     words(x(t) + CELL / 2, 46, waits ? 'waits' : '', 'quiet')));
      const touched = now && (now.what === 'writes' || now.what === 'reads') && now.place === t;
      parts.push(tag('g', {class: `place ${memory[t] === null ? 'empty' : tone(t)}${touched ? ' lit' : ''}`},
                     tag('rect', {x: x(t), y: 76, width: CELL, height: 44, rx: 5}), words(x(t) + CELL / 2, 103, memory[t] ?? '?', 'strong')));
      const r = got[t];
      if (r) parts.push(tag('g', {class: r.stale ? 'outcome stale' : 'outcome'}, tag('rect', {x: x(t), y: 146, width: CELL, height: 40, rx: 5}),
                            words(x(t) + CELL / 2, 171, `${r.value}`, 'strong'), words(x(t) + CELL / 2, 202, r.stale ? 'early' : 'right', r.stale ? 'fault' : 'quiet')));
    }
    if (now && now.what === 'writes') parts.push(tag('path', {class: 'edge now', d: `M${x(now.thread) + CELL / 2} 30 L${x(now.place) + CELL / 2} 74`}));
    if (now && now.what === 'reads') parts.push(tag('path', {class: 'edge now', d: `M${x(now.place) + CELL / 2} 122 L${x(now.thread) + CELL / 2} 144`}));
    return picture(x(n) + 4, 212, `${plural(n, 'thread')}: ${caption(data, frame)}`, parts);
  }

  function caption(data, frame) {
    if (frame === 0) return 'Shared memory holds nothing of this block yet.';
    const m = data.moments[frame - 1];
    if (m.what === 'writes') return `Thread ${m.thread} writes ${m.value} into place ${m.place}.`;
    if (m.what === 'waits') return `Thread ${m.thread} waits at the barrier.`;
    if (m.what === 'passes') return `Thread ${m.thread} passes the barrier: all have come.`;
    return `Thread ${m.thread} reads place ${m.place}: ${m.stale ? `${m.value}, since thread ${m.place} has not written it yet` : m.value}.`;
  }

  Book.figure({
    id: 'race',
    title: 'A race, and the barrier that ends it',
    about: 'Each thread writes its place and reads its neighbour’s. Recorded on the emulator, which runs the threads of a ' +
      'block in an order that its seed decides.',
    lesson: ['chapter 02, Kernels', '02-kernels.html'],
    controls: [
      {name: 'threads', label: 'Threads', kind: 'steps', value: 4, steps: THREADS},
      {name: 'seed', label: 'Seed', kind: 'range', min: 1, max: SEEDS.length, value: 3},
      {name: 'barrier', label: 'Barrier', kind: 'choice', value: '', options: [['', 'none'], ['yes', '__syncthreads()']]},
    ],
    recorded: true,
    all: () => THREADS.flatMap(threads => SEEDS.flatMap(seed => ['', 'yes'].map(barrier => ({threads, seed, barrier})))),
    command: v => ({program: 'book_race', args: ['--threads', String(v.threads), '--seed', String(v.seed), ...(v.barrier ? ['--barrier'] : [])]}),
    frames: data => data.moments.length + 1,
    caption,
    draw,
    verdict: data => ({good: data.wrong === 0, text: `${data.wrong} of ${data.threads} threads read a number that was not there yet`}),
  });
})();
