// Messages on a link, and the slots that wait for their credits. Data: book_window --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const {tag, words, picture, tone, plural} = Book;
  const LEFT = 58, WIDTH = 450, ROW = 24;

  function draw(data) {
    const end = Math.max(...data.first.map(m => m.credit)), x = t => LEFT + (t / end) * (WIDTH - LEFT - 4);
    const bar = (from, to, y, kind, text) => tag('g', {class: kind}, tag('rect', {x: x(from), y, width: Math.max(0.6, x(to) - x(from) - 0.6), height: ROW - 6, rx: 2}),
                                                 text !== '' && x(to) - x(from) > 12 ? words((x(from) + x(to)) / 2, y + 13.5, text) : '');
    const parts = [words(0, 14, 'link', 'quiet', 'start')];
    data.first.forEach((m, n) => parts.push(bar(m.begin, m.end, 0, `block ${tone(n % data.slots)}`, String(n))));
    const rows = Math.min(data.slots, 8);
    for (let s = 0; s < rows; ++s) {
      const y = 34 + s * ROW;
      parts.push(words(0, y + 14, `slot ${s}`, 'quiet', 'start'));
      data.first.forEach((m, n) => {
        if (n % data.slots !== s) return;
        parts.push(bar(m.begin, m.end, y, `block ${tone(s)}`, String(n)), bar(m.end, m.credit, y, `waiting ${tone(s)}`, ''));
      });
    }
    const bottom = 34 + rows * ROW + 14;
    for (const part of [0, 0.5, 1]) parts.push(words(x(end * part), bottom, `${(end * part).toFixed(1)}${part === 1 ? ' us' : ''}`, 'quiet', part === 0 ? 'start' : part === 1 ? 'end' : 'middle'));
    return picture(WIDTH, bottom + 8, `${plural(data.slots, 'slot')}: ${data.speed} GB/s`, parts);
  }

  Book.figure({
    id: 'window',
    title: 'Slots and credits',
    about: 'A slot is busy until its credit is back (pale). With too few slots the link is idle, however fast it is.',
    lesson: ['chapter 12, The ring between machines', '12-rdma-ring.html'],
    controls: [
      {name: 'slots', label: 'Slots', kind: 'range', min: 1, max: 12, value: 2},
      {name: 'bytes', label: 'Bytes of a slot', kind: 'steps', value: 65536, steps: [1024, 4096, 16384, 32768, 65536, 131072, 262144]},
      {name: 'delay', label: 'Delay, us', kind: 'steps', value: 5, steps: [0, 1, 2, 5, 10, 50, 500]},
      {name: 'bandwidth', label: 'Link, GB/s', kind: 'steps', value: 10, steps: [1, 5, 10, 12.5, 25, 50]},
    ],
    command: v => ({program: 'book_window', args: ['--slots', String(v.slots), '--bytes', String(v.bytes), '--delay', String(v.delay), '--bandwidth', String(v.bandwidth)]}),
    still: true,
    frames: () => 0,
    caption: () => '',
    draw,
    verdict: data => ({good: data.idle < 0.01, text: `${data.speed.toFixed(2)} GB/s, the link is idle ${(100 * data.idle).toFixed(0)} % of the time; ` +
      `${plural(data.slots, 'slot')} hold ${(data.slots * data.bytes).toLocaleString('en')} bytes, a round trip and a message are ${Math.round(data.needed).toLocaleString('en')}`}),
  });
})();
