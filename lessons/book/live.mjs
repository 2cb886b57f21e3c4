// The live figures, as the build sees them: which there are, where in the lessons they belong, and
// how each looks before a reader touches it.
//
// site/figures/NAME.js draws a figure from what its program prints as JSON, in the browser and
// here: so the drawing in the page, which readers without JavaScript keep, is the program's own.
import {createRequire} from 'node:module';
import {escapeHtml} from './template.mjs';

const require = createRequire(import.meta.url);
require('./site/figures.js');  // makes globalThis.Book
for (const name of ['schedule', 'strides', 'tape', 'buckets', 'race', 'costs', 'window', 'bits', 'caps', 'crash', 'feedback', 'goodput', 'litmus', 'pipeline'])
  require(`./site/figures/${name}.js`);
const {Book} = globalThis;

export const liveFigures = {
  modules: Object.values(Book.figures).filter(f => !f.recorded).map(f => f.id),  // compiled
  recorded: Object.values(Book.figures).filter(f => f.recorded).map(f => f.id),
  // In a lesson, behind the paragraph with these words or this picture (and its caption).
  places: [['lessons/06-ring/README.md', 'src="figures/ring_3.svg"', 'schedule'],
           ['lessons/01-tensors/README.md', 'src="figures/strides.svg"', 'strides'],
           ['lessons/03-autograd/README.md', 'src="figures/tape.svg"', 'tape'],
           ['lessons/09-ddp/README.md', 'src="figures/overlap.svg"', 'buckets'],
           ['lessons/02-kernels/README.md', '<strong>data race</strong>', 'race'],
           ['lessons/05-cost/README.md', 'src="figures/costs.svg"', 'costs'],
           ['lessons/12-rdma-ring/README.md', '<strong>bandwidth-delay product</strong>', 'window'],
           ['lessons/14-precision/README.md', 'src="figures/formats.svg"', 'bits'],
           ['lessons/15-profiling/README.md', 'src="figures/caps.svg"', 'caps'],
           ['lessons/16-checkpoint/README.md', 'src="figures/crash_points.svg"', 'crash'],
           ['lessons/17-beyond/README.md', 'src="figures/feedback.svg"', 'feedback'],
           ['lessons/18-scale/README.md', 'src="figures/goodput.svg"', 'goodput'],
           ['lessons/19-order/README.md', 'src="figures/executions_mp.svg"', 'litmus'],
           ['lessons/20-fit/README.md', 'src="figures/pipelines.svg"', 'pipeline']],
};

function command(figure, values) {
  const {program, args} = figure.command(values);
  return {program, args, line: [program, ...args.map(a => /[\s*()=]/.test(a) ? `"${a}"` : a)].join(' ')};
}

// The figure with its first values, as HTML; live.js gives it controls.
export function placedFigure(id, run) {
  const figure = Book.figures[id];
  const {program, args, line} = command(figure, Book.defaults(figure));
  const text = run(program, args);
  const data = JSON.parse(run(program, [...args, '--json']));
  return `<section class="live" data-figure="${id}" aria-label="${escapeHtml(figure.title)}">
<p class="live-title">${escapeHtml(figure.title)}</p>
<p class="live-about">${figure.about}</p>
<div class="live-controls"></div>
<div class="live-drawing" tabindex="0" role="group" aria-label="Drawing">${figure.draw(data, figure.first ?? Book.last(figure, data))}</div>
<p class="live-verdict" role="status">${escapeHtml(figure.verdict(data).text)}</p>
<details class="live-text"><summary>In a terminal</summary><pre class="terminal" tabindex="0" role="region" aria-label="Terminal"><code><span class="typed"><span class="prompt">$ </span>${escapeHtml(line)}</span>
<span class="printed">${escapeHtml(text.replace(/\n$/, ''))}</span></code></pre></details>
<noscript><p class="live-off">With JavaScript this figure can be changed here; the command above does the same in a terminal.</p></noscript>
</section>`;
}

export function figurePage(run) {
  const parts = Object.values(Book.figures).map(figure => ({
    id: `live-${figure.id}`, level: 2, text: figure.title, html: placedFigure(figure.id, run), lesson: figure.lesson}));
  const html = parts.map(p => `<h2 id="${p.id}">${escapeHtml(p.text)}</h2>\n${p.html}
<p>Explained in <a href="${p.lesson[1]}">${escapeHtml(p.lesson[0])}</a>.</p>`).join('\n');
  return {headings: parts, html: `<h1>Play: live figures</h1>
<p>Each figure runs a program of this repository, compiled to WebAssembly from the same sources that train. Below each you
find the command that prints the same in a terminal. The race and the memory orders are different: the emulator's threads
and the explorer's cannot run in a browser, so the page plays what they printed when the book was built.</p>
${html}`};
}

// All that the page can ask of a recorded figure: Book.recorded.race = {"--threads 2 --seed 1": {text, json}, ...}
export function recordedFigure(id, run) {
  const figure = Book.figures[id];
  const all = {};
  for (const values of figure.all()) {
    const {program, args} = command(figure, values);
    all[args.join(' ')] = {text: run(program, args), json: run(program, [...args, '--json'])};
  }
  return `Book.recorded.${id} = ${JSON.stringify(all)};\n`;
}
