// A litmus test: an execution of each outcome, step by step. Data: lesson19_litmus TEST ORDERS told --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const {tag, words, picture, tone, plural} = Book;
  const TESTS = [['mp', 'message passing'], ['sb', 'store buffering'], ['lb', 'load buffering'], ['bells', 'two bells'], ['update', 'a third thread updates'], ['store', 'a third thread stores']];
  const ORDERS = ['relaxed', 'release', 'acquire', 'both', 'seq_cst', 'acq_rel-fences', 'seq_cst-fences'];
  const ROW = 30, LEFT = 24, COLUMN = 205;

  // "  3  reader  flag.load(relaxed) -> 1      step 2's" -> {thread, what, from}
  const stepsOf = told => told.split('\n').filter(l => /^\s*\d+ /.test(l)).map(line => {
    const [, , thread, what, note] = line.match(/^\s*(\d+)\s\s(.+?)\s\s+(\S.*?)(?:\s\s+(.*))?$/);
    const from = (note ?? '').match(/^step (\d+)'s/);
    return {thread, what: what.trim(), note: note ?? '', from: from ? Number(from[1]) - 1 : -1};
  });
  const shown = (data, frame) => data.failure ? {text: data.failure, told: data.told} : data.outcomes[frame];

  function draw(data, frame) {
    const one = shown(data, frame);
    if (!one) return picture(450, 30, 'no execution', [words(0, 18, `no outcome is recorded: ${plural(data.executions, 'execution')}`, '', 'start')]);
    const steps = stepsOf(one.told), threads = [...new Set(steps.map(s => s.thread))].sort();
    const x = t => LEFT + threads.indexOf(t) * COLUMN, y = n => 30 + n * ROW;
    const parts = threads.map(t => words(x(t) + 4, 16, t, 'strong', 'start'));
    steps.forEach((s, n) => {
      parts.push(words(0, y(n) + 18, n + 1, 'quiet', 'start'),
                 tag('g', {class: `block ${tone(threads.indexOf(s.thread) * 3)}`}, tag('rect', {x: x(s.thread), y: y(n), width: COLUMN - 18, height: ROW - 6, rx: 4}),
                     words(x(s.thread) + 6, y(n) + 16.5, s.what, '', 'start')));
      if (s.from >= 0 && steps[s.from].thread !== s.thread) {
        const a = x(steps[s.from].thread), b = x(s.thread), right = a < b;
        parts.push(tag('path', {class: 'edge used', d: `M${right ? a + COLUMN - 18 : a} ${y(s.from) + 12}L${right ? b : b + COLUMN - 18} ${y(n) + 12}`}));
      }
    });
    return picture(LEFT + threads.length * COLUMN, y(steps.length) + 4, caption(data, frame), parts);
  }

  const caption = (data, frame) => data.failure ? `Wrong: ${data.failure}.` : !data.outcomes[frame] ? '' :
    `Outcome ${frame + 1} of ${data.outcomes.length}: ${data.outcomes[frame].text}, in ${plural(data.outcomes[frame].count, 'execution')}.`;

  Book.figure({
    id: 'litmus',
    title: 'Every outcome that the orders allow',
    about: 'The explorer of this chapter ran each pair when the book was built; step through one execution of each outcome. A line ' +
      'leads from a store to the load that reads it.',
    lesson: ['chapter 19, Memory order', '19-order.html'],
    controls: [
      {name: 'test', label: 'The threads', kind: 'choice', value: 'mp', options: TESTS},
      {name: 'orders', label: 'The orders', kind: 'choice', value: 'relaxed', options: ORDERS.map(o => [o, o])},
    ],
    recorded: true,
    all: () => TESTS.flatMap(([test]) => ORDERS.map(orders => ({test, orders}))),
    command: v => ({program: 'lesson19_litmus', args: [v.test, v.orders, 'told']}),
    frames: data => data.failure ? 1 : data.outcomes.length,
    first: 0,
    caption,
    draw,
    verdict: data => data.failure ? {good: false, text: `Wrong: ${data.failure}`} :
      {good: true, text: `${data.what}: ${plural(data.outcomes.length, 'outcome')} in ${plural(data.executions, 'execution')}`},
  });
})();
