#include "labs/apps/train/report_page.hpp"

#include <nlohmann/json.hpp>

namespace ringsmith::apps {

namespace {

constexpr const char* kHead = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
      content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>ringsmith: a training run</title>
<style>
  :root {
    --paper: #f6f7f9; --card: #ffffff; --ink: #1d2330; --soft: #5a6375; --line: #dfe3ea;
    --blue: #0b67b2; --orange: #c9510c; --green: #0b7d5a; --purple: #8a4fa8; --yellow: #b98300;
    --red: #c0283a; --grey: #98a1b0; --shade: rgba(11, 103, 178, .12);
  }
  @media (prefers-color-scheme: dark) {
    :root {
      --paper: #12151b; --card: #1a1f28; --ink: #e7eaf1; --soft: #9aa4b6; --line: #2e3542;
      --blue: #5fb0f2; --orange: #f58a4b; --green: #43c79b; --purple: #c792e6; --yellow: #e9bd4a;
      --red: #f2707e; --grey: #6b7586; --shade: rgba(95, 176, 242, .16);
    }
  }
  * { box-sizing: border-box; }
  body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.45;
         font: 15px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
  main { max-width: 1320px; margin: 0 auto; padding: 24px 20px 48px; }
  h1 { font-size: 24px; margin: 0 0 4px; overflow-wrap: anywhere; }
  h2 { font-size: 16px; margin: 0; }
  p { margin: 0; }
  .soft, figcaption, th, dt { color: var(--soft); }
  .numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
             margin: 20px 0; }
  .number, figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
  .number { padding: 12px 16px; }
  .number b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
  .figures { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
  figure { margin: 0; padding: 16px; min-width: 0; position: relative; }
  figure.wide { grid-column: 1 / -1; }
  figcaption { font-size: 13px; margin: 2px 0 8px; }
  svg { display: block; width: 100%; }
  svg text { fill: var(--soft); font-size: 12px; }
  .grid { stroke: var(--line); }
  .axis { stroke: var(--grey); }
  .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
  .faint { opacity: .35; stroke-width: 1.2; }
  .rule { stroke: var(--grey); stroke-dasharray: 3 3; }
  .bar text { pointer-events: none; }
  .legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; margin: 6px 0 0;
            padding: 0; list-style: none; }
  .legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px;
              margin-right: 6px; vertical-align: -1px; }
  .tip { position: absolute; pointer-events: none; background: var(--ink); color: var(--card);
         font-size: 12px; padding: 6px 9px; border-radius: 6px; white-space: pre; z-index: 2;
         font-variant-numeric: tabular-nums; }
  .scroll { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; font-size: 13px;
          font-variant-numeric: tabular-nums; }
  th { font-weight: 500; text-align: right; padding: 4px 8px; white-space: nowrap; }
  td { text-align: right; padding: 4px 8px; border-top: 1px solid var(--line); white-space: nowrap; }
  th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; white-space: normal; }
  td.share { background: linear-gradient(var(--shade), var(--shade)) no-repeat 0 / var(--part) 100%; }
  dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 16px; margin: 8px 0 0;
       font-size: 13px; }
  dd { margin: 0; overflow-wrap: anywhere; white-space: pre-line; }
  @media (max-width: 760px) {
    main { padding: 16px 10px 32px; }
    .figures { grid-template-columns: minmax(0, 1fr); }
    .numbers { grid-template-columns: repeat(2, minmax(0, 1fr)); }
    figure { padding: 12px 10px; }
    .spare { display: none; }
    dl { grid-template-columns: minmax(0, 1fr); }
    dt { margin-top: 4px; }
  }
</style>
</head>
<body>
<main>
  <h1 id="title">A training run</h1>
  <p class="soft" id="subtitle"></p>
  <noscript><p>The figures are drawn by a script in this file, but scripts are disabled.</p></noscript>
  <section class="numbers" id="numbers" aria-label="The run in numbers"></section>
  <section class="figures" id="figures" aria-label="Figures"></section>
</main>
<script type="application/json" id="data">)html";

// Functions that all figures use.
constexpr const char* kTools = R"html(</script>
<script>
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const SVG = 'http://www.w3.org/2000/svg';
function make(tag, attributes, ...children) {
  const svg = ['svg', 'g', 'path', 'line', 'rect', 'text', 'title', 'circle', 'pattern', 'defs'].includes(tag);
  const out = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) out.setAttribute(name, value);
  out.append(...children.filter(child => child != null));
  return out;
}
const colour = name => 'var(--' + name + ')';
function digits(v, n = 3) {
  if (v == null || !isFinite(v)) return '?';
  if (v !== 0 && Math.abs(v) < 1e-3) return v.toExponential(n - 1);
  return String(Number(v.toPrecision(n)));
}
function scaled(v, names, base) {
  if (v == null || !isFinite(v)) return '?';
  let i = 0;
  while (Math.abs(v) >= base * .9995 && i + 1 < names.length) { v /= base; ++i; }
  return digits(v) + names[i];
}
const bytes = v => scaled(v, [' B', ' KiB', ' MiB', ' GiB', ' TiB'], 1024);
const count = v => scaled(v, ['', 'k', 'M', 'G', 'T'], 1000);
const ms = v => v >= 1000 ? digits(v / 1000) + ' s' : digits(v) + ' ms';
const last = values => { for (let i = values.length; i-- > 0;) if (values[i] != null) return values[i]; return null; };

function ticks(low, high, most, powers) {
  if (!(high > low)) high = low + (Math.abs(low) || 1);
  const rough = (high - low) / most, size = powers ? 2 ** Math.ceil(Math.log2(rough))
    : [1, 2, 5, 10].map(m => m * 10 ** Math.floor(Math.log10(rough))).find(s => s >= rough);
  const out = [];
  for (let i = Math.floor(low / size + 1e-9); ; ++i) {
    out.push(i * size);
    if (i * size >= high * (1 - 1e-12)) return out;
  }
}

function figure(title, caption, options = {}) {
  const out = make('figure', {id: options.id || '', class: options.wide ? 'wide' : ''},
                   make('h2', {}, title), make('figcaption', {}, caption));
  document.getElementById('figures').append(out);
  return out;
}
function legend(host, entries) {
  host.append(make('ul', {class: 'legend'}, ...entries.map(([name, hue]) =>
    make('li', {}, make('i', {style: 'background: ' + colour(hue)}), name))));
}
// Draws the figure now, and again whenever the width of the page changes.
function drawn(host, label, height, draw) {
  const place = make('div', {});
  host.append(place);
  let width = 0;
  const again = () => {
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    const h = typeof height === 'function' ? height(width) : height;
    const svg = make('svg', {viewBox: `0 0 ${width} ${h}`, height: h, role: 'img', 'aria-label': label});
    place.replaceChildren(svg);
    draw(svg, width, h);
  };
  again();
  new ResizeObserver(again).observe(place);
}
// text(x, y) returns the tip for a point of the drawing: {x, text}, optionally with the top and
// bottom of a vertical line, or nothing.
function tip(host, svg, text) {
  let box = null, rule = null;
  const leave = () => { box?.remove(); rule?.remove(); box = rule = null; };
  svg.addEventListener('pointerleave', leave);
  svg.addEventListener('pointermove', event => {
    const at = svg.getBoundingClientRect(), frame = host.getBoundingClientRect();
    const found = text(event.clientX - at.left, event.clientY - at.top);
    if (!found) return leave();
    if (!box) { box = make('div', {class: 'tip', role: 'status'}); host.append(box); }
    box.textContent = found.text;
    if (found.top != null) {
      rule?.remove();
      rule = make('line', {class: 'rule', x1: found.x, x2: found.x, y1: found.top, y2: found.bottom});
      svg.append(rule);
    }
    const left = at.left - frame.left + found.x + 12;
    box.style.left = Math.max(4, Math.min(left, frame.width - box.offsetWidth - 4)) + 'px';
    box.style.top = (event.clientY - frame.top + 14) + 'px';
  });
}

// Curves over steps. series: {name, key, hue, steps, values, dots, faint}; stacked: areas on top of
// each other; most: end of the axis, beyond which curves are clipped.
function chart(host, label, series, format, options = {}) {
  drawn(host, label, 240, (svg, width, height) => {
    const left = 58, right = width - 10, top = 10, bottom = height - 24;
    const all = series.flatMap(s => s.values.filter(v => v != null));
    if (!all.length) return;
    const sums = options.stacked ? series[0].values.map((_, i) => series.reduce((a, s) => a + s.values[i], 0)) : all;
    const high = Math.min(sums.reduce((a, b) => Math.max(a, b), -Infinity), options.most ?? Infinity);
    const low = options.zero || options.stacked ? 0 : all.reduce((a, b) => Math.min(a, b), Infinity);
    const marks = ticks(low, high, 5, options.powers), from = marks[0], to = marks[marks.length - 1];
    const steps = series.flatMap(s => s.steps);
    const first = steps.reduce((a, b) => Math.min(a, b)), end = Math.max(first + 1, steps.reduce((a, b) => Math.max(a, b)));
    const x = step => left + (step - first) / (end - first) * (right - left);
    const y = v => bottom - (v - from) / (to - from) * (bottom - top);
    for (const mark of marks) {
      svg.append(make('line', {class: 'grid', x1: left, x2: right, y1: y(mark), y2: y(mark)}),
                 make('text', {x: left - 7, y: y(mark) + 4, 'text-anchor': 'end', 'data-tick': mark,
                               'data-at': y(mark)}, format(mark)));
    }
    svg.append(make('text', {x: left - 22, y: height - 6, 'text-anchor': 'end'}, 'step'));
    for (const mark of ticks(first, end, Math.max(2, Math.floor(width / 70))).filter(m => m >= first && m <= end))
      svg.append(make('text', {x: x(mark), y: height - 6, 'text-anchor': mark === end ? 'end' : 'middle'}, count(mark)));
    svg.append(make('line', {class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom}));
    const below = series[0].steps.map(() => 0);
    for (const s of series) {
      const base = below.slice();
      if (options.stacked) s.values.forEach((v, i) => below[i] += v);
      const shown = options.stacked ? below.slice() : s.values;
      let way = '', pen = 'M';
      shown.forEach((v, i) => {
        if (v == null) { pen = 'M'; return; }
        way += pen + x(s.steps[i]).toFixed(2) + ' ' + y(v).toFixed(3);
        pen = 'L';
      });
      if (options.stacked)
        svg.append(make('path', {fill: colour(s.hue), 'data-series': s.key, d: way +
          base.map((_, k) => base.length - 1 - k).map(i => 'L' + x(s.steps[i]).toFixed(2) + ' ' + y(base[i]).toFixed(3)).join('') + 'Z'}));
      else
        svg.append(make('path', {class: s.faint ? 'curve faint' : 'curve', stroke: colour(s.hue), 'data-series': s.key, d: way}));
      if (s.dots || s.steps.length === 1) s.values.forEach((v, i) => v == null || svg.append(
        make('circle', {cx: x(s.steps[i]), cy: y(v), r: 3.5, fill: colour(s.hue)})));
    }
    tip(host, svg, (px) => {
      const step = first + (px - left) / (right - left) * (end - first);
      const known = series[0].steps;
      let i = 0;
      for (let k = 0; k < known.length; ++k) if (Math.abs(known[k] - step) < Math.abs(known[i] - step)) i = k;
      const lines = series.flatMap(s => {
        const k = s.steps === known ? i : s.steps.indexOf(known[i]);
        return k < 0 || s.values[k] == null ? [] : [s.name + '  ' + format(s.values[k])];
      });
      return {x: x(known[i]), top, bottom, text: ['step ' + known[i], ...lines].join('\n')};
    });
  });
}
)html";

constexpr const char* kFigures = R"html(
const steps = data.steps, series = data.series, has = key => series[key]?.some(v => v != null);
const phases = [['data_ms', 'data', 'purple'], ['forward_ms', 'forward', 'blue'], ['backward_ms', 'backward', 'orange'],
                ['exposed_ms', 'exposed communication', 'red'], ['optimizer_ms', 'optimizer', 'green'], ['other_ms', 'other', 'grey']];
const mean = values => { const v = values.filter(v => v != null); return v.length ? v.reduce((a, b) => a + b, 0) / v.length : null; };
const thinned = data.every > 1 ? ` Every ${data.every}th step is drawn.` : '';

document.title = data.title;
document.getElementById('title').textContent = data.title;
document.getElementById('subtitle').textContent = data.subtitle;
for (const [name, value] of data.numbers)
  document.getElementById('numbers').append(make('div', {class: 'number'}, make('b', {}, value), make('span', {class: 'soft'}, name)));

{ // loss
  const line = [{name: 'loss', key: 'loss', hue: 'blue', steps, values: series.loss, faint: steps.length > 60}];
  const names = [['training, mean of the ranks', 'blue']];
  if (steps.length > 60) {
    const n = Math.max(5, Math.round(steps.length / 40));
    line.push({name: `mean of ${n}`, key: 'loss-mean', hue: 'blue', steps, values: series.loss.map((_, i) =>
      i + 1 < n ? null : mean(series.loss.slice(i + 1 - n, i + 1)))});
    names[0][0] += ` (bold: of ${n} steps)`;
  }
  let caption = `From ${digits(series.loss[0], 4)} at step ${steps[0]} to ${digits(last(series.loss), 4)} at step ${steps[steps.length - 1]}.`;
  if (data.evaluations.length) {
    line.push({name: 'held out', key: 'validation_loss', hue: 'orange', dots: true, steps: data.evaluations.map(e => e.step), values: data.evaluations.map(e => e.loss)});
    names.push(['held-out data', 'orange']);
    caption += ` On held-out data ${digits(last(data.evaluations.map(e => e.loss)), 4)} at the end.`;
  }
  const host = figure('Loss', caption + thinned, {id: 'loss'});
  chart(host, 'Loss by step. ' + caption, line, v => digits(v, 4));
  legend(host, names);
}
if (data.evaluations.some(e => e.accuracy != null)) {
  const values = data.evaluations.map(e => e.accuracy);
  const caption = `${digits(100 * last(values), 4)} % of the held-out targets at the end.`;
  chart(figure('Accuracy', caption, {id: 'accuracy'}), 'Accuracy by step. ' + caption,
        [{name: 'held out', key: 'validation_accuracy', hue: 'orange', dots: true, steps: data.evaluations.map(e => e.step), values}],
        v => digits(100 * v) + ' %', {zero: true});
}
{ // learning rate
  const caption = `At most ${digits(Math.max(...series.lr))}, ${digits(last(series.lr))} at the end.`;
  chart(figure('Learning rate', caption, {id: 'lr'}), 'Learning rate by step. ' + caption,
        [{name: 'learning rate', key: 'lr', hue: 'green', steps, values: series.lr}], v => digits(v), {zero: true});
}
{ // throughput
  const unit = data.unit + '/s', known = series.rate.filter(v => v > 0);
  // Harmonic mean of the rates: the samples of all steps divided by the time of all steps.
  const caption = `${count(known.length / known.reduce((a, v) => a + 1 / v, 0))} ${unit} on average, of all ranks together.`;
  chart(figure('Throughput', caption, {id: 'rate'}), 'Throughput by step. ' + caption,
        [{name: unit, key: 'rate', hue: 'purple', steps, values: series.rate}], count, {zero: true});
}
if (has('forward_ms')) {
  // The first step, or one while another program runs, may take 100 times as long as the others.
  const sorted = [...series.step_ms].sort((a, b) => a - b), usual = 4 * sorted[Math.floor(.95 * (sorted.length - 1))];
  const long = steps.filter((_, i) => series.step_ms[i] > usual), longest = ms(sorted[sorted.length - 1]);
  const caption = 'Of rank 0. Communication counts only where it is exposed: hidden communication is part of forward and backward.' +
    (long.length ? ` Longer than the axis: ${long.length === 1 ? `step ${long[0]}, ${longest}` : `${long.length} steps, up to ${longest}`}.` : '');
  const host = figure('Time by phase', caption, {id: 'phases'});
  const all = mean(series.step_ms);
  chart(host, 'Milliseconds of each phase by step. ' + phases.map(([key, name]) => `${name} ${ms(mean(series[key]))}`).join(', '),
        phases.map(([key, name, hue]) => ({name, key, hue, steps, values: series[key]})), ms,
        {stacked: true, most: sorted.findLast(v => v <= usual)});
  legend(host, phases.map(([key, name, hue]) => [`${name} ${ms(mean(series[key]))} (${(100 * mean(series[key]) / all).toFixed(1)} %)`, hue]));
} else figure('Time by phase', 'Not recorded: the run had --no-trace.', {id: 'phases'});
if (has('resident_bytes')) {
  const names = [['resident_bytes', 'resident on the host', 'blue'], ['device_bytes', 'tensors on the GPU', 'orange']].filter(([key]) => has(key));
  const caption = 'Of rank 0, after each step.';
  const host = figure('Memory', caption, {id: 'memory'});
  chart(host, 'Memory of rank 0 by step', names.map(([key, name, hue]) => ({name, key, hue, steps, values: series[key]})), bytes, {zero: true, powers: true});
  legend(host, names.map(([, name, hue]) => [name, hue]));
}

const paint = {data: 'purple', forward: 'blue', backward: 'orange', optimizer: 'green', batch: 'purple'};
// The longest part of a span in which the rank does not wait: there its label is legible.
function plain(span, all) {
  let from = span.begin, best = [from, from];
  const end = span.begin + span.ms, until = to => { if (to - from > best[1] - best[0]) best = [from, to]; };
  for (const s of all.filter(s => s.cat === 'wait' && s.begin < end && s.begin + s.ms > span.begin)) {
    until(s.begin);
    from = Math.max(from, s.begin + s.ms);
  }
  until(end);
  return best;
}
if (data.timeline) {
  const t = data.timeline, row = 20, gap = 14, named = s => s.bucket != null ? `bucket ${s.bucket}` : s.name;
  const host = figure(`Overlap in step ${t.step}`, `Step ${t.step}, of typical length, on ${t.ranks.length === 1 ? 'one rank' : 'each rank'}: computation above, communication below. ` +
    'Communication under a bar of forward or backward is hidden; striped: the rank waits.' + (t.left_out ? ` ${t.left_out} more ranks are not drawn.` : ''), {id: 'timeline', wide: true});
  const label = `Timeline of step ${t.step}: ` + t.ranks.map(r => `rank ${r.rank}: ` + r.spans.map(s => `${named(s)} from ${digits(s.begin)} to ${ms(s.begin + s.ms)}`).join(', ')).join('; ');
  drawn(host, label, 30 + t.ranks.length * (2 * row + gap), (svg, width, height) => {
    const left = width < 500 ? 46 : 64, right = width - 12, bottom = height - 24;
    const x = at => left + at / t.ms * (right - left);
    svg.append(make('defs', {}, (() => {
      const p = make('pattern', {id: 'stripes', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'});
      p.append(make('rect', {width: 6, height: 6, fill: colour('card'), opacity: .55}), make('rect', {width: 2.5, height: 6, fill: colour('grey')}));
      return p;
    })()));
    for (const mark of ticks(0, t.ms, Math.max(3, Math.floor(width / 130))).filter(m => m <= t.ms))
      svg.append(make('line', {class: 'grid', x1: x(mark), x2: x(mark), y1: 0, y2: bottom}),
                 make('text', {x: x(mark), y: height - 7, 'text-anchor': 'middle'}, ms(mark)));
    const bars = [];
    t.ranks.forEach((rank, r) => {
      const top = 4 + r * (2 * row + gap);
      svg.append(make('text', {x: 0, y: top + row + 4}, `rank ${rank.rank}`));
      const order = {compute: 0, data: 0, optim: 0, comm: 0, wait: 1};
      for (const s of [...rank.spans].sort((a, b) => order[a.cat] - order[b.cat])) {
        const below = s.cat === 'comm', w = Math.max(1, x(s.begin + s.ms) - x(s.begin));
        const hue = s.cat === 'comm' ? (s.bucket == null ? 'grey' : ['red', 'yellow'][s.bucket % 2]) : paint[s.name] || 'grey';
        const y = top + (below ? row + 2 : 0);
        svg.append(make('rect', {x: x(s.begin), y, width: w, height: row, rx: 2, fill: s.cat === 'wait' ? 'url(#stripes)' : colour(hue),
                                 'data-span': named(s), 'data-rank': rank.rank, 'data-begin': s.begin, 'data-ms': s.ms}));
        const word = s.cat === 'wait' ? '' : below ? (s.bucket != null ? String(s.bucket) : '') : s.name;
        const [from, to] = below ? [s.begin, s.begin + s.ms] : plain(s, rank.spans);
        if (word && x(to) - x(from) > 7.5 * word.length + 8)
          svg.append(make('text', {x: x((from + to) / 2), y: y + 14, 'text-anchor': 'middle', style: 'fill: var(--card); pointer-events: none'}, word));
        bars.push({s, rank: rank.rank, x1: x(s.begin), x2: x(s.begin) + w, y, front: order[s.cat]});
      }
    });
    tip(host, svg, (px, py) => {
      const hit = bars.filter(b => px >= b.x1 - 2 && px <= b.x2 + 2 && py >= b.y && py <= b.y + row).sort((a, b) => b.front - a.front)[0];
      return hit && {x: px, text: `rank ${hit.rank}: ${named(hit.s)}\n${ms(hit.s.begin)} + ${ms(hit.s.ms)}` + (hit.s.bytes ? `\n${bytes(hit.s.bytes)}` : '')};
    });
  });
  legend(host, [['data', 'purple'], ['forward', 'blue'], ['backward', 'orange'], ['optimizer', 'green'], ['bucket (even)', 'red'], ['bucket (odd)', 'yellow'], ['other calls', 'grey']]);
}

function table(host, heads, rows) {
  const cells = (tag, row) => row.map((cell, i) => make(tag, {class: (heads[i].spare ? 'spare ' : '') + (cell?.part != null ? 'share' : ''),
    ...(cell?.part != null ? {style: `--part: ${cell.part}%`} : {}), ...(tag === 'th' ? {scope: 'col'} : {})}, cell?.text ?? cell));
  host.append(make('div', {class: 'scroll'}, make('table', {},
    make('thead', {}, make('tr', {}, ...cells('th', heads.map(h => h.name)))),
    make('tbody', {}, ...rows.map(row => make('tr', {}, ...cells('td', row)))))));
}
if (data.memory.length) {
  const keys = [['resident', 'resident'], ['tensors', 'tensors'], ['communication', 'communication'], ['device', 'tensors on GPU']].filter(([key]) => data.memory.some(m => m[key] > 0));
  const host = figure('Memory by rank', 'Peaks of resident memory and of tensors in it; communication memory at the end, with shared pages divided among the ranks.', {id: 'memory-ranks', wide: true});
  const most = Math.max(...data.memory.flatMap(m => keys.map(([key]) => m[key])));
  table(host, [{name: 'rank'}, ...keys.map(([, name]) => ({name}))],
        data.memory.map((m, rank) => [String(rank), ...keys.map(([key]) => ({text: bytes(m[key]), part: 100 * m[key] / most}))]));
}
if (data.operations) {
  const o = data.operations, rows = o.rows, most = rows.length ? rows[0].ms : 1, rest = o.step_ms - rows.reduce((a, r) => a + r.ms, 0);
  const host = figure('Operations', `Means of a step on rank 0${o.on_device ? '; times are those on the GPU' : ''}. Between operations: ${ms(rest)}.`, {id: 'operations', wide: true});
  const rate = (amount, t) => amount > 0 && t > 0 ? digits(amount / t / 1e6) : '';
  table(host, [{name: 'operation'}, {name: 'calls', spare: true}, {name: 'time'}, {name: 'share'}, {name: 'host', spare: true}, {name: 'FLOP', spare: true},
               {name: 'GFLOP/s'}, {name: 'bytes', spare: true}, {name: 'GB/s', spare: true}],
        rows.map(r => [r.name, digits(r.calls), {text: ms(r.ms), part: 100 * r.ms / most}, (100 * r.ms / o.step_ms).toFixed(1) + ' %', ms(r.host_ms),
                       r.flop ? count(r.flop) : '', rate(r.flop, r.ms), r.bytes ? bytes(r.bytes) : '', rate(r.bytes, r.ms)]));
}
{ // facts
  const host = figure('The run', '', {id: 'facts', wide: true});
  host.append(make('dl', {}, ...data.facts.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)])));
}
</script>
</body>
</html>
)html";

}  // namespace

std::string report_page(const nlohmann::ordered_json& data) {
  std::string json;
  for (const char c : data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
    switch (c) {
      case '<':
        json += "\\u003c";
        break;
      case '>':
        json += "\\u003e";
        break;
      case '&':
        json += "\\u0026";
        break;
      default:
        json += c;
    }
  return kHead + json + kTools + kFigures;
}

}  // namespace ringsmith::apps
