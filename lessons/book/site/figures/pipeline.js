// A pipeline's schedule over time. Data: book_pipeline --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const {tag, words, picture, tone, plural} = Book;
  const LEFT = 58, WIDTH = 450, ROW = 26;

  function draw(data) {
    const x = t => LEFT + (t / data.time) * (WIDTH - LEFT - 4);
    const parts = [words(0, 12, 'forward pale, backward full; a colour is a micro-batch', 'quiet', 'start')];
    for (let s = 0; s < data.stages; ++s) {
      const y = 20 + s * ROW;
      parts.push(words(0, y + 15, `stage ${s}`, 'quiet', 'start'), tag('g', {class: 'slot'}, tag('rect', {x: LEFT, y, width: WIDTH - LEFT - 4, height: ROW - 5})));
    }
    for (const e of data.events) {
      const y = 20 + e.stage * ROW, width = x(e.end) - x(e.begin);
      parts.push(tag('g', {class: `${e.forward ? 'waiting' : 'block'} ${tone(e.micro)}`}, tag('title', {}, `${e.forward ? 'forward' : 'backward'} of micro-batch ${e.micro}, ${e.begin} to ${e.end}`),
                     tag('rect', {x: x(e.begin), y, width: Math.max(0.6, width - 0.6), height: ROW - 5, rx: 2}), width > 14 ? words(x(e.begin) + width / 2, y + 15, e.micro) : ''));
    }
    const bottom = 20 + data.stages * ROW + 12;
    for (const part of [0, 0.5, 1]) parts.push(words(x(data.time * part), bottom, `${(data.time * part).toFixed(1)}${part === 1 ? ' forwards' : ''}`, 'quiet', part === 0 ? 'start' : part === 1 ? 'end' : 'middle'));
    return picture(WIDTH, bottom + 8, `${plural(data.stages, 'stage')}, ${plural(data.microbatches, 'micro-batch')}`.replace('batchs', 'batches'), parts);
  }

  Book.figure({
    id: 'pipeline',
    title: 'A pipeline and its bubble',
    about: 'The runtime’s own schedules, checked and simulated. 1F1B does not shorten the bubble; it stores less, and so allows ' +
      'more micro-batches.',
    lesson: ['chapter 20, What does not fit', '20-fit.html'],
    controls: [
      {name: 'schedule', label: 'Schedule', kind: 'choice', value: '1f1b', options: [['1f1b', '1F1B'], ['gpipe', 'GPipe']]},
      {name: 'stages', label: 'Stages', kind: 'range', min: 1, max: 8, value: 4},
      {name: 'micro', label: 'Micro-batches', kind: 'range', min: 1, max: 24, value: 8},
      {name: 'backward', label: 'Backward, forwards', kind: 'steps', value: 2, steps: [1, 1.5, 2, 3]},
      {name: 'message', label: 'Message, forwards', kind: 'steps', value: 0, steps: [0, 0.1, 0.25, 0.5, 1]},
    ],
    command: v => ({program: 'book_pipeline', args: ['--schedule', v.schedule, '--stages', String(v.stages), '--microbatches', String(v.micro), '--backward', String(v.backward), '--message', String(v.message)]}),
    still: true,
    frames: () => 0,
    caption: () => '',
    draw,
    verdict: data => ({good: data.bubble <= 0.2, text: `${(100 * data.bubble).toFixed(1)} % of the time are a bubble, ${(100 * data.ideal).toFixed(1)} % without messages; ` +
      `stage 0 stores at most ${data.stored[0]} micro-batch${data.stored[0] === 1 ? '' : 'es'}`}),
  });
})();
