// A number in three formats, bit by bit. Data: book_bits --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const {tag, words, picture, tone} = Book;
  const CELL = 13, GAP = 6;

  function draw(data) {
    const parts = [words(0, 12, 'sign', 'quiet', 'start'), words(34, 12, 'exponent', 'quiet', 'start'), words(150, 12, 'fraction', 'quiet', 'start')];
    let y = 20;
    for (const format of data.formats) {
      parts.push(words(0, y + 14, format.name, 'strong', 'start'), words(40, y + 14, `holds ${format.held}`, '', 'start'));
      y += 20;
      [...format.bits].forEach((bit, n) => {
        const part = n === 0 ? 0 : n <= format.exponent ? 1 : 2;
        const x = n * CELL + part * GAP;
        parts.push(tag('g', {class: `bit ${bit === '0' ? 'zero ' : ''}${tone([6, 0, 2][part])}`}, tag('rect', {x, y, width: CELL - 1, height: 20, rx: 2}), words(x + CELL / 2 - 0.5, y + 14.5, bit)));
      });
      parts.push(words(0, y + 35, data.scale === '1' ? `relative error ${format.error}` : `divided: ${format.value}, relative error ${format.error}`, 'quiet', 'start'));
      y += 50;
    }
    return picture(32 * CELL + 3 * GAP, y - 8, `${data.number} in f32, bf16 and f16`, parts);
  }

  function verdict(data) {
    const bad = data.formats.filter(f => f.held.includes('inf') || f.held.includes('nan') || (Number(f.held) === 0 && Number(data.number) !== 0));
    return bad.length === 0 ? {good: true, text: `all three formats hold ${data.number}${data.scale === '1' ? '' : ` times ${data.scale}`}, as exactly as their fractions allow`} :
      {good: false, text: bad.map(f => `${f.name} holds ${f.held}`).join(', ') + `: ${data.number} times ${data.scale} is out of range`};
  }

  Book.figure({
    id: 'bits',
    title: 'One number in three formats',
    about: 'bf16 keeps the exponent of f32 and gives up digits; f16 keeps more digits and gives up range. A scale is multiplied ' +
      'before rounding, and divided afterwards.',
    lesson: ['chapter 14, Mixed precision', '14-precision.html'],
    controls: [
      {name: 'number', label: 'A number', kind: 'text', value: '0.1', max: 24, suggestions: ['0.1', '257', '1e-8', '65519', '65520', '3.4e38', '0.333333333']},
      {name: 'scale', label: 'Scale', kind: 'steps', value: 1, steps: [1, 256, 1024, 65536, 16777216]},
    ],
    command: v => ({program: 'book_bits', args: [`--number=${v.number}`, '--scale', String(v.scale)]}),
    still: true,
    frames: () => 0,
    caption: () => '',
    draw,
    verdict,
  });
})();
