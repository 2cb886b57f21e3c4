// The time of an all-reduce over its size, for four algorithms. Data: book_costs --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const SIZES = [[1 << 10, '1 KiB'], [1 << 15, '32 KiB'], [1 << 20, '1 MiB'], [1 << 25, '32 MiB']];
  const TIMES = [[1, '1 us'], [10, '10 us'], [100, '100 us'], [1e3, '1 ms'], [1e4, '10 ms'], [1e5, '100 ms'], [1e6, '1 s'], [1e7, '10 s'], [1e8, '100 s']];

  function draw(data) {
    const all = data.times.flat().filter(t => t > 0);
    const min = 10 ** Math.floor(Math.log10(Math.min(...all, 1e8))), max = 10 ** Math.ceil(Math.log10(Math.max(...all, min * 10)));
    return Book.chart(`Time of an all-reduce on ${Book.plural(data.world, 'rank')}`, {label: 'size of the array', log: true, min: 256, max: 1 << 28, ticks: SIZES},
                      {label: 'time', log: true, min, max, ticks: TIMES.filter(([t]) => t >= min && t <= max)},
                      data.names.map((name, n) => ({name: name === 'halving' ? 'halving and doubling' : name, tone: [6, 2, 0, 4][n], dash: n === 3,
                                                    points: data.bytes.map((b, i) => [b, Math.max(data.times[i][n], min)])})));
  }

  // From which size on the last algorithm is best, and which is best for small arrays.
  function verdict(data) {
    const last = data.best[data.best.length - 1], from = data.best.findLastIndex(b => b !== last) + 1;
    const size = bytes => bytes < 1024 ? `${bytes} bytes` : bytes < 1 << 20 ? `${bytes / 1024} KiB` : `${bytes / (1 << 20)} MiB`;
    return {good: true, text: from === 0 ? `${last} is the fastest at every size shown` :
      `${data.best[0]} is the fastest at ${size(data.bytes[0])}, ${last} from ${size(data.bytes[from])} on`};
  }

  Book.figure({
    id: 'costs',
    title: 'Which algorithm, for which size?',
    about: 'Each algorithm pays alpha for a message and beta for a byte, in another mixture. Both axes are logarithmic.',
    lesson: ['chapter 05, What communication costs', '05-cost.html'],
    controls: [
      {name: 'world', label: 'Ranks', kind: 'steps', value: 8, steps: [2, 3, 4, 6, 8, 16, 64, 100, 128, 1024]},
      {name: 'alpha', label: 'Alpha, us', kind: 'steps', value: 5, steps: [0, 0.5, 1, 2, 5, 10, 20, 50, 100]},
      {name: 'bandwidth', label: 'Link, GB/s', kind: 'steps', value: 10, steps: [0.1, 1, 5, 10, 12.5, 25, 50, 450]},
      {name: 'adding', label: 'Adding, GB/s', kind: 'steps', value: 20, steps: [1, 5, 20, 100, 1000]},
    ],
    command: v => ({program: 'book_costs', args: ['--world', String(v.world), '--alpha', String(v.alpha), '--bandwidth', String(v.bandwidth), '--adding', String(v.adding)]}),
    still: true,
    frames: () => 0,
    caption: () => '',
    draw,
    verdict,
  });
})();
