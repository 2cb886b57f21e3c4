// A file is replaced, and the power cut before any operation. Data: book_crash --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const {tag, words, picture} = Book;
  const WIDTH = 92, WAYS = [
    ['--in-place create write fsync', 'written in its place'], ['create write rename', 'renamed'], ['create write fsync rename', 'flushed, renamed'],
    ['create write fsync rename sync-folder', 'and the folder flushed'], ['create write fsync sync-folder rename', 'the folder flushed too early']];
  const TEXT = {old: 'the old file', new: 'the new file', broken: 'neither', none: 'no file'};

  function draw(data, frame) {
    const parts = [words(0, 14, 'the program', 'quiet', 'start')];
    const x = n => n * (WIDTH - 8);
    data.way.forEach((operation, n) => parts.push(tag('g', {class: `block ${n < frame ? 'tone0' : 'tone7 free'}`}, tag('rect', {x: x(n) + 1, y: 24, width: WIDTH - 14, height: 30, rx: 5}),
                                                      words(x(n) + (WIDTH - 12) / 2, 43, operation))));
    const cut = x(frame) - 3;
    parts.push(tag('line', {x1: Math.max(1, cut), x2: Math.max(1, cut), y1: 18, y2: 66, class: 'mark'}), words(Math.max(0, cut), 80, 'power cut', 'fault', frame === 0 ? 'start' : frame >= data.way.length - 1 ? 'end' : 'middle'));
    parts.push(words(0, 108, 'what a reader may find afterwards', 'quiet', 'start'));
    data.moments[frame].forEach((found, n) => parts.push(tag('g', {class: `outcome${found === 'broken' || found === 'none' ? ' stale' : ''}`},
                                                             tag('rect', {x: n * 104 + 1, y: 118, width: 96, height: 34, rx: 5}), words(n * 104 + 49, 140, TEXT[found]))));
    return picture(Math.max(x(data.way.length), 4 * 104), 160, caption(data, frame), parts);
  }

  const caption = (data, frame) => `${frame === data.way.length ? `After ${data.way[frame - 1]}` : `Before ${data.way[frame]}`}: ${data.moments[frame].map(f => TEXT[f]).join(', or ')}.`;

  Book.figure({
    id: 'crash',
    title: 'Where the power goes',
    about: 'A program replaces a file by a new one. The disk is lab 16’s: what was not flushed may be there, in part or not at all.',
    lesson: ['chapter 16, Checkpoints', '16-checkpoint.html'],
    controls: [{name: 'way', label: 'The program', kind: 'choice', value: WAYS[1][0], options: WAYS}],
    command: v => ({program: 'book_crash', args: v.way.split(' ')}),
    frames: data => data.moments.length,
    caption,
    draw,
    verdict: data => {
      const bad = data.moments.filter(m => m.includes('broken') || m.includes('none')).length, last = data.moments[data.moments.length - 1];
      if (bad > 0) return {good: false, text: `in ${bad} of ${data.moments.length} places a cut may leave neither file whole`};
      return {good: true, text: last.length === 1 ? 'a reader finds the old or the new file, and after the last operation the new one' :
        'a reader finds the old or the new file, whole; but after the last operation it may still be the old one'};
    },
  });
})();
