// Exposed communication over the bucket cap. Data: book_caps --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const CAPS = [1, 2, 4, 8, 16, 32, 64, 128, 256], TIMES = [0.1, 1, 10, 100, 1000, 10000];

  function draw(data) {
    const most = data.rows[data.rows.length - 1].cap, least = 0.01;
    const all = data.rows.flatMap(r => [r.exposed, r.last]).filter(t => t >= least);
    const min = 10 ** Math.floor(Math.log10(Math.min(...all, data.bound > least ? data.bound : 1)));
    const max = 10 ** Math.ceil(Math.log10(Math.max(...all, min * 10) * 1.0001));
    const best = data.rows.reduce((a, b) => b.exposed < a.exposed ? b : a);
    return Book.chart('Exposed communication over the bucket cap', {label: 'bucket cap, MiB', log: true, min: 1, max: Math.max(2, most), ticks: CAPS.filter(c => c <= most).map(c => [c, c])},
                      {label: 'ms', log: true, min, max, ticks: TIMES.filter(t => t >= min && t <= max).map(t => [t, t])},
                      [{name: 'exposed', tone: 0, points: data.rows.map(r => [r.cap, r.exposed])}, {name: 'the last bucket', tone: 3, points: data.rows.map(r => [r.cap, r.last])},
                       {name: 'bound', tone: 4, dash: true, points: [[1, data.bound], [Math.max(2, most), data.bound]]}], [{x: best.cap, text: `best: ${best.cap} MiB`}]);
  }

  Book.figure({
    id: 'caps',
    title: 'The best bucket',
    about: 'To the left of the best cap the buckets queue, and each pays alpha. To the right the last bucket starts late.',
    lesson: ['chapter 15, Profiling and tuning', '15-profiling.html'],
    controls: [
      {name: 'world', label: 'Ranks', kind: 'steps', value: 16, steps: [2, 4, 8, 16, 32, 64, 128]},
      {name: 'alpha', label: 'Alpha, us', kind: 'steps', value: 50, steps: [0, 5, 10, 20, 50, 100, 200, 500]},
      {name: 'bandwidth', label: 'Link, GB/s', kind: 'steps', value: 12.5, steps: [1, 3, 6, 12.5, 25, 50, 450]},
      {name: 'backward', label: 'Backward, ms', kind: 'steps', value: 60, steps: [10, 20, 30, 60, 120, 240]},
    ],
    command: v => ({program: 'book_caps', args: ['--world', String(v.world), '--alpha', String(v.alpha), '--bandwidth', String(v.bandwidth), '--backward', String(v.backward)]}),
    still: true,
    frames: () => 0,
    caption: () => '',
    draw,
    verdict: data => {
      const best = data.rows.reduce((a, b) => b.exposed < a.exposed ? b : a);
      return {good: true, text: `best is ${best.cap} MiB, ${Book.plural(best.buckets, 'bucket')}: ${best.exposed.toFixed(2)} ms exposed; no cap exposes less than ${data.bound.toFixed(2)} ms`};
    },
  });
})();
