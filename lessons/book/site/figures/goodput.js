// The useful share of the time over the interval between saves. Data: book_goodput --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const TIMES = [[16, '16 s'], [60, '1 min'], [600, '10 min'], [3600, '1 h'], [36000, '10 h']];

  const duration = s => s < 120 ? `${s.toFixed(0)} s` : s < 7200 ? `${(s / 60).toFixed(0)} min` : s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(0)} days`;

  function draw(data) {
    const last = data.intervals[data.intervals.length - 1];
    return Book.chart('Useful share over the interval between saves', {label: 'work between two saves', log: true, min: 16, max: last, ticks: TIMES},
                      {label: '% useful', min: 0, max: 100, ticks: [0, 25, 50, 75, 100].map(p => [p, p])},
                      [{name: 'exact', tone: 0, points: data.intervals.map((t, i) => [t, data.exact[i]])},
                       {name: 'first order', tone: 3, dash: true, points: data.intervals.map((t, i) => [t, data.simple[i]])}],
                      data.daly >= 16 && data.daly <= last ? [{x: data.daly, text: `Daly: ${duration(data.daly)}`}] : []);
  }

  Book.figure({
    id: 'goodput',
    title: 'How often to save',
    about: 'On the left a job saves all the time, on the right it repeats lost work. More GPUs fail more often: the best interval moves ' +
      'to the left, and its share falls.',
    lesson: ['chapter 18, Scale', '18-scale.html'],
    controls: [
      {name: 'gpus', label: 'GPUs', kind: 'steps', value: 16384, steps: [8, 128, 1024, 4096, 16384, 65536, 131072, 1048576]},
      {name: 'years', label: 'A GPU fails every, years', kind: 'steps', value: 5.8, steps: [1, 2, 5.8, 10, 50]},
      {name: 'save', label: 'Save, s', kind: 'steps', value: 20, steps: [0.1, 1, 5, 10, 20, 60, 300]},
      {name: 'restart', label: 'Restart, s', kind: 'steps', value: 300, steps: [0, 1, 10, 60, 150, 300, 1200]},
    ],
    command: v => ({program: 'book_goodput', args: ['--gpus', String(v.gpus), '--years', String(v.years), '--save', String(v.save), '--restart', String(v.restart)]}),
    still: true,
    frames: () => 0,
    caption: () => '',
    draw,
    verdict: data => ({good: data.best >= 90, text: `the job fails every ${duration(data.mtbf)}; save every ${duration(data.daly)}, and ${data.best.toFixed(1)} % of the time are useful`}),
  });
})();
