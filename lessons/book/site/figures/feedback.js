// The loss when only some gradients travel. Data: book_feedback --json.
'use strict';
(() => {
  const {Book} = globalThis;

  function draw(data) {
    const steps = data.curves[0].losses.length - 1, max = Math.max(...data.curves.flatMap(c => c.losses), 1);
    const top = Math.min(100, Math.ceil(max / 5) * 5);
    return Book.chart(`Loss of ${steps} steps`, {label: 'step', min: 0, max: steps, ticks: [0, steps / 4, steps / 2, 3 * steps / 4, steps].map(t => [t, t])},
                      {label: 'loss above the best', min: 0, max: top, ticks: [0, top / 2, top].map(t => [t, t])},
                      data.curves.map((c, n) => ({name: c.name, tone: [2, 0, 6][n], dash: n === 0, points: c.losses.map((loss, step) => [step, loss])})));
  }

  Book.figure({
    id: 'feedback',
    title: 'What is not sent, waits',
    about: 'Two ranks send the k largest of eight gradients. Three elements are large on both ranks and cancel in the sum; the other ' +
      'five are to be learned.',
    lesson: ['chapter 17, Beyond DDP', '17-beyond.html'],
    controls: [
      {name: 'k', label: 'k of 8 travel', kind: 'range', min: 1, max: 8, value: 1},
      {name: 'rate', label: 'Learning rate', kind: 'steps', value: 0.02, steps: [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]},
      {name: 'steps', label: 'Steps', kind: 'steps', value: 300, steps: [20, 100, 300, 1000]},
    ],
    command: v => ({program: 'book_feedback', args: ['--k', String(v.k), '--rate', String(v.rate), '--steps', String(v.steps)]}),
    still: true,
    frames: () => 0,
    caption: () => '',
    draw,
    verdict: data => {
      const [all, waits, forgotten] = data.curves.map(c => c.losses[c.losses.length - 1]);
      const text = x => Math.abs(x) > 1e4 ? 'more than 10,000' : x.toFixed(3);
      return {good: waits <= all + 0.1, text: `at the end ${text(all)} if all travel, ${text(waits)} if the rest waits, ${text(forgotten)} if it is forgotten`};
    },
  });
})();
