// One training step: gradients fill buckets, buckets are reduced beside backward, a slow rank makes
// all wait. Data: book_buckets --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const {tag, words, picture, tone, plural} = Book;
  const LEFT = 52, WIDTH = 450, ROW = 26;

  const ms = ns => (ns / 1e6).toFixed(ns < 1e7 ? 2 : 1);
  const bucketOf = (data, gradient) => data.reductions.findIndex(r => r.gradients.includes(gradient));

  function draw(data) {
    const end = data.end, x = t => LEFT + (t / end) * (WIDTH - LEFT - 4);
    const bar = (from, to, y, kind, title, text = '') => {
      const width = x(to) - x(from);
      return tag('g', {class: kind}, tag('title', {}, title), tag('rect', {x: x(from), y, width: Math.max(0.5, width - 0.8), height: ROW - 7, rx: 2}),
                 width > 6.5 * text.length + 4 && text ? words(x(from) + width / 2, y + 13.5, text) : '');
    };
    const parts = [];
    let y = 18;
    parts.push(words(0, 10, 'forward, then each gradient in the colour of its bucket', 'quiet', 'start'));
    data.ranks.forEach((rank, r) => {
      parts.push(words(0, y + 14, `rank ${r}`, 'quiet', 'start'), bar(0, rank.forward, y, 'forward', `forward, ${ms(rank.forward)} ms`, 'forward'));
      let before = rank.forward;
      for (let g = rank.gradients.length - 1; g >= 0; --g) {
        const b = bucketOf(data, g);
        parts.push(bar(before, rank.gradients[g], y, `block ${tone(b)}`, `gradient ${g}, ${data.gradients[g]} KiB, bucket ${b}: ready at ${ms(rank.gradients[g])} ms`, `g${g}`));
        before = rank.gradients[g];
      }
      y += ROW;
    });
    y += 16;
    parts.push(words(0, y - 8, 'the network; pale: ranks wait for the slowest', 'quiet', 'start'));
    let before = 0;
    const slowest = Math.max(...data.ranks.map(r => r.backward));
    data.reductions.forEach((r, b) => {
      const first = Math.max(before, Math.min(...r.ready));
      if (r.begin > first) parts.push(bar(first, r.begin, y, `waiting ${tone(b)}`, `bucket ${b} waits for the slowest rank, ${ms(r.begin - first)} ms`));
      parts.push(bar(r.begin, r.end, y, `block ${tone(b)}`, `bucket ${b}, ${r.kib} KiB: all-reduce from ${ms(r.begin)} to ${ms(r.end)} ms`, `#${b}`));
      before = r.end;
    });
    parts.push(words(0, y + 14, 'bucket', 'quiet', 'start'));
    const done = x(Math.min(...data.ranks.map(r => r.backward)));
    parts.push(tag('line', {x1: done, x2: done, y1: 16, y2: y + ROW, class: 'mark'}));
    const slow = x(slowest);
    if (slow - done > 2) parts.push(tag('line', {x1: slow, x2: slow, y1: 16, y2: y + ROW, class: 'mark'}));
    y += ROW + 12;
    parts.push(words(Math.min(Math.max(done, LEFT + 70), WIDTH - 80), y, 'backward is over', 'quiet'));
    for (const part of [0, 0.5, 1]) parts.push(words(x(end * part), y + 18, `${ms(end * part)}${part === 1 ? ' ms' : ''}`, 'quiet', part === 0 ? 'start' : part === 1 ? 'end' : 'middle'));
    return picture(WIDTH, y + 24, `one step of ${plural(data.ranks.length, 'rank')}, ${ms(end)} ms`, parts);
  }

  const MODELS = [['2048,256,1024,256,1024,256,1024,256,1024,64', 'layers of two sizes'], ['512,512,512,512,512,512,512,512,512,512,512,512', 'twelve equal ones'],
                  ['8192,64,64,64,64,64,64,64', 'a large embedding first'], ['64,64,64,64,64,64,64,8192', 'a large layer last']];
  const KIB = [1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 25600];

  Book.figure({
    id: 'buckets',
    title: 'Buckets fill while backward goes on',
    about: 'Too small buckets pay for each message, too large ones start too late, and a slow rank makes all others wait.',
    lesson: ['chapter 09, DistributedDataParallel', '09-ddp.html'],
    controls: [
      {name: 'model', label: 'Gradients', kind: 'choice', value: MODELS[0][0], options: MODELS},
      {name: 'first', label: 'First bucket, KiB', kind: 'steps', value: 512, steps: KIB},
      {name: 'cap', label: 'Others, KiB', kind: 'steps', value: 2048, steps: KIB},
      {name: 'world', label: 'Ranks', kind: 'range', min: 1, max: 8, value: 4},
      {name: 'slow', label: 'Slow rank, times', kind: 'range', min: 1, max: 3, step: 0.1, value: 1.3},
      {name: 'backward', label: 'Backward, ms', kind: 'steps', value: 8, steps: [1, 2, 4, 6, 8, 12, 16, 32]},
      {name: 'alpha', label: 'Alpha, us', kind: 'steps', value: 50, steps: [0, 1, 5, 10, 20, 50, 100, 200, 500]},
      {name: 'bandwidth', label: 'Link, GB/s', kind: 'steps', value: 2, steps: [0.1, 0.5, 1, 2, 5, 10, 25, 100]},
    ],
    command: v => ({program: 'book_buckets', args: ['--gradients', v.model, '--first', String(v.first), '--cap', String(v.cap), '--world', String(v.world),
                                                   '--slow', String(v.slow), '--backward', String(v.backward), '--alpha', String(v.alpha), '--bandwidth', String(v.bandwidth)]}),
    still: true,  // nothing to step through
    frames: () => 0,
    caption: () => '',
    draw,
    verdict: data => {
      const shown = data.ranks.map((r, n) => ({n, hidden: Math.round(100 * r.hidden), exposed: r.exposed}));
      const first = shown[0], slow = shown[shown.length - 1];
      const one = s => `rank ${s.n} hides ${s.hidden} % of its communication, ${ms(s.exposed)} ms are exposed`;
      return {good: true, text: `${plural(data.reductions.length, 'bucket')}; ${one(first)}${slow.n > 0 && slow.exposed !== first.exposed ? `; ${one(slow)}` : ''}`};
    },
  });
})();
