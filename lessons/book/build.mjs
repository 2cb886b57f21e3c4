// The book: every page of the course as static HTML that works from file://, offline, without
// JavaScript, and with it has search, tooltips and live figures.
//
//     node build.mjs OUT BIN LIVE [SLIDES]
//
// OUT: the folder of the site. BIN: where the figures' programs are, for the drawing that a page
// shows before, or without, JavaScript, and for the figures that are recorded here. LIVE: the
// WebAssembly modules of the others. SLIDES: decks, if they are built.
//
//   lessons/*.md, labs/*/README.md ──► markdown-it ──► tooltips, captions, figures ──► OUT/*.html
//   each file that a page links to ──► highlight.js ───────────────────────► OUT/source/*.html
//
// A link that leads nowhere, or a glossary entry that cannot be read, ends the build.
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import {fileURLToPath} from 'node:url';
import zlib from 'node:zlib';
import hljs from 'highlight.js';
import MarkdownIt from 'markdown-it';

import {formulasOf, isFormula, writeStyle} from './formulas.mjs';
import {figurePage, liveFigures, placedFigure, recordedFigure} from './live.mjs';
import {glossaryOf, markTerms, withTermIds} from './terms.mjs';
import {escapeHtml, pageOf} from './template.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.resolve(HERE, '../..');
const [OUT, BIN, LIVE, SLIDES] = process.argv.slice(2).map(p => path.resolve(p));

const read = file => fs.readFileSync(path.join(ROOT, file), 'utf8');
const isFile = file => fs.existsSync(path.join(ROOT, file)) && fs.statSync(path.join(ROOT, file)).isFile();
const isFolder = file => fs.existsSync(path.join(ROOT, file)) && fs.statSync(path.join(ROOT, file)).isDirectory();

function fail(text) {
  console.error(`book: ${text}`);
  process.exit(1);
}

// ---- which file is which page ----

const chapters = fs.readdirSync(path.join(ROOT, 'lessons')).filter(n => /^\d\d-/.test(n)).sort();
const titleOf = text => (text.match(/^# (.*)$/m) ?? [, ''])[1];

// lessons/06-ring/README.md -> 06-ring.html; labs/06-ring/README.md -> lab-06-ring.html
function pageName(file) {
  const lesson = file.match(/^lessons\/(\d\d-[^/]+)\/README\.md$/);
  if (lesson) return `${lesson[1]}.html`;
  const lab = file.match(/^labs\/(\d\d-[^/]+)\/README\.md$/);
  if (lab) return `lab-${lab[1]}.html`;
  if (file === 'lessons/README.md') return 'contents.html';
  if (file === 'README.md') return 'ringsmith.html';
  const name = file.replace(/(\/README)?\.md$/, '').replace(/^lessons\//, '').replace(/\//g, '-').toLowerCase();
  return `${name}.html`;
}

const pages = new Map();     // file -> {file, name, title, html, headings}
const sources = new Set();   // files and folders that a page links to
const waiting = [];

function wanted(file) {
  if (!pages.has(file)) {
    pages.set(file, null);
    waiting.push(file);
  }
  return pageName(file);
}

// Where a link of `file` leads, from the page `from` (a path in OUT).
function resolve(href, file, from) {
  if (/^[a-z]+:/.test(href)) return href;
  const [target, hash] = href.split('#');
  const suffix = hash === undefined ? '' : `#${hash}`;
  if (target === '') return suffix;
  const found = path.posix.normalize(path.posix.join(path.posix.dirname(file), target)).replace(/\/$/, '') || '.';
  const to = place(found, suffix);
  if (to === null) fail(`${file} links to '${href}', which is not there`);
  return path.posix.relative(path.posix.dirname(from), to.name) + to.suffix;
}

function place(found, suffix) {
  if (found === '.') return {name: wanted('README.md'), suffix};
  const deck = found.match(/^slides\/(\d\d-[^/]+)\.md$/);
  if (deck && decks.has(deck[1])) return {name: `slides/${deck[1]}.html`, suffix: ''};
  if (isFolder(found) && isFile(`${found}/README.md`)) return {name: wanted(`${found}/README.md`), suffix};
  if (isFile(found) && found.endsWith('.md') && !deck) return {name: wanted(found), suffix};
  if (isFile(found) || isFolder(found)) {
    sources.add(found);
    return {name: sourceName(found), suffix: suffix.replace(/^#L(\d+).*/, '#L$1')};
  }
  return null;
}

const sourceName = file => `source/${isFolder(file) ? `${file}/index` : file}.html`;

// ---- markdown ----

const slug = text => text.toLowerCase().replace(/<[^>]*>/g, '').replace(/[^\p{L}\p{N}\s_-]/gu, '').trim().replace(/\s/g, '-');

const LANGUAGES = {hpp: 'cpp', cpp: 'cpp', cu: 'cpp', cuh: 'cpp', h: 'cpp', c: 'c', py: 'python', sh: 'bash', md: 'markdown',
                   json: 'json', toml: 'ini', txt: 'cmake', cmake: 'cmake', mjs: 'javascript', js: 'javascript', css: 'css'};

function coloured(text, language) {
  return hljs.getLanguage(language) ? hljs.highlight(text, {language, ignoreIllegals: true}).value : escapeHtml(text);
}

// A terminal: the typed lines stand out from what is printed.
function terminal(text) {
  let typed = false;
  return text.replace(/\n$/, '').split('\n').map(line => {
    const starts = line.startsWith('$ ');
    const mine = starts || typed;
    typed = mine && line.endsWith('\\');
    if (!mine) return `<span class="printed">${escapeHtml(line)}</span>`;
    return `<span class="typed">${starts ? '<span class="prompt">$ </span>' : ''}${escapeHtml(starts ? line.slice(2) : line)}</span>`;
  }).join('\n');
}

// The line of `file` where the quoted text begins; 1 if it was not found.
function lineOf(file, text) {
  const first = text.split('\n').map(l => l.trim()).filter(l => l !== '')[0];
  const at = read(file).split('\n').findIndex(line => line.trim() === first);
  return at + 1 || 1;
}

const markdown = new MarkdownIt({html: true});

function renderer(file, name) {
  const headings = [];
  const used = new Map();
  const md = markdown;
  const rules = md.renderer.rules;
  let quoted = null;
  rules.heading_open = (tokens, i, options, env, self) => {
    const text = tokens[i + 1].children.map(t => t.content).join('');
    let id = slug(text);
    const times = used.get(id) ?? 0;
    used.set(id, times + 1);
    if (times > 0) id += `-${times}`;
    headings.push({level: Number(tokens[i].tag[1]), text, id});
    tokens[i].attrSet('id', id);
    return self.renderToken(tokens, i, options);
  };
  rules.heading_close = (tokens, i, options, env, self) => {
    const {id, level, text} = headings[headings.length - 1];
    const anchor = level === 1 ? '' : ` <a class="anchor" href="#${id}" aria-label="Link to: ${escapeHtml(text)}">#</a>`;
    return anchor + self.renderToken(tokens, i, options);
  };
  rules.html_block = (tokens, i) => {
    const text = tokens[i].content;
    const quote = text.match(/<!-- quote: (\S+) ?(\S*)/);
    if (quote) quoted = {path: quote[1], symbol: quote[2]};
    return text.replace(/<!--[\s\S]*?-->\s*/g, '');
  };
  rules.html_inline = (tokens, i) => tokens[i].content.replace(/<!--[\s\S]*?-->/g, '');
  rules.fence = (tokens, i) => {
    const words = tokens[i].info.trim().split(/\s+/);
    const text = tokens[i].content;
    const caption = quoted;
    quoted = null;
    if (words[0] === 'console')
      return `<pre class="terminal" tabindex="0" role="region" aria-label="Terminal"><code>${terminal(text)}</code></pre>\n`;
    const block = `<pre class="code" tabindex="0" role="region" aria-label="Code"><code>${coloured(text, words[0])}</code></pre>\n`;
    if (!caption) return block;
    const line = lineOf(caption.path, text);
    sources.add(caption.path);
    const href = path.posix.relative(path.posix.dirname(name), sourceName(caption.path));
    return `<figure class="quoted"><figcaption><a href="${href}#L${line}">${escapeHtml(caption.path)}, line ${line}</a>` +
      `</figcaption>${block}</figure>\n`;
  };
  rules.code_block = (tokens, i) => /^lessons\/\d\d-/.test(file) && isFormula(tokens[i].content) ? formulasOf(tokens[i].content) :
    `<pre class="plain" tabindex="0" role="region" aria-label="Text"><code>${escapeHtml(tokens[i].content)}</code></pre>\n`;
  rules.table_open = () => '<div class="wide" tabindex="0" role="region" aria-label="Table"><table>\n';
  rules.table_close = () => '</table></div>\n';
  rules.link_open = (tokens, i, options, env, self) => {
    const href = resolve(tokens[i].attrGet('href'), file, name);
    tokens[i].attrSet('href', href);
    if (/^https?:/.test(href)) tokens[i].attrSet('rel', 'noreferrer');
    return self.renderToken(tokens, i, options);
  };
  rules.image = (tokens, i) => {
    const src = tokens[i].attrGet('src');
    const found = path.posix.normalize(path.posix.join(path.posix.dirname(file), src));
    if (!isFile(found)) fail(`${file} shows '${src}', which is not there`);
    images.add(found);
    const shown = `figures/${path.posix.basename(found)}`;
    const [width, height] = sizeOf(found);
    return `<img src="${path.posix.relative(path.posix.dirname(name), shown)}" alt="${escapeHtml(tokens[i].content)}" ` +
      `width="${width}" height="${height}" loading="lazy">`;
  };
  return {headings, render: text => md.render(text)};
}

const images = new Set();
function sizeOf(file) {
  const box = read(file).match(/viewBox="0 0 ([\d.]+) ([\d.]+)"/);
  return box ? [Math.round(box[1]), Math.round(box[2])] : [640, 360];
}

// ---- pages ----

const decks = new Set();
if (SLIDES && fs.existsSync(SLIDES))
  for (const file of fs.readdirSync(SLIDES)) if (/^\d\d-.*\.html$/.test(file)) decks.add(file.replace(/\.html$/, ''));

const glossary = glossaryOf(read('lessons/GLOSSARY.md'), fail);
const navigation = {
  chapters: chapters.map(folder => ({
    number: folder.slice(0, 2),
    title: titleOf(read(`lessons/${folder}/README.md`)).replace(/^\d\d /, ''),
    page: `${folder}.html`,
    lab: isFile(`labs/${folder}/README.md`) ? `lab-${folder}.html` : null,
    deck: decks.has(folder) ? `slides/${folder}.html` : null,
  })),
  more: [['Play: live figures', 'play.html'], ['Your own program', 'your-own-program.html'],
         ...(isFile('labs/torch/README.md') ? [['From PyTorch, in five minutes', 'labs-torch.html']] : []),
         ['Glossary', 'glossary.html'],
         ['What tutorials claim', 'claims.html'], ['About ringsmith', 'ringsmith.html']],
};

function write(name, text) {
  const file = path.join(OUT, name);
  fs.mkdirSync(path.dirname(file), {recursive: true});
  fs.writeFileSync(file, text);
}

const searchable = [];
function index(name, title, html) {
  const parts = html.split(/(?=<h[23] id=")/);
  for (const part of parts) {
    const head = part.match(/^<h[23] id="([^"]+)"[^>]*>([\s\S]*?)<\/h[23]>/);
    const text = plain(head ? part.slice(head[0].length) : part);
    if (text.length > 0)
      searchable.push([head ? `${name}#${head[1]}` : name, title, head ? plain(head[2].replace(/<a class="anchor"[\s\S]*?<\/a>/, '')) : '', text]);
  }
}
const plain = html => html.replace(/<span class="katex-mathml">[\s\S]*?<\/math><\/span>/g, ' ').replace(/<svg[\s\S]*?<\/svg>/g, ' ').replace(/<[^>]*>/g, ' ').replace(/&lt;/g, '<').replace(/&gt;/g, '>')
  .replace(/&quot;/g, '"').replace(/&#39;/g, "'").replace(/&amp;/g, '&').replace(/\s+/g, ' ').trim();

// A lesson's page has its live figure behind the picture or the paragraph that it belongs to.
function withLive(file, html) {
  for (const [lesson, words, id] of liveFigures.places) {
    if (lesson !== file) continue;
    const at = html.indexOf(words);
    if (at < 0) fail(`${file} has no ${words}: live.mjs puts the figure ${id} behind it`);
    // Behind the caption, which is a paragraph in italics, if there is one.
    let end = html.indexOf('</p>', at) + 4;
    const caption = html.slice(end).match(/^\s*<p><em>[\s\S]*?<\/em><\/p>/);
    if (caption) end += caption[0].length;
    html = `${html.slice(0, end)}\n${placedFigure(id, run)}${html.slice(end)}`;
  }
  return html;
}

function run(program, args) {
  try {
    return execFileSync(path.join(BIN, program), args, {encoding: 'utf8', maxBuffer: 1 << 26, stdio: ['ignore', 'pipe', 'pipe']});
  } catch (error) {
    if (error.status === 1) return error.stdout;  // the checker found a fault: shown
    fail(`${program} ${args.join(' ')}: ${error.stderr || error.message}`);
  }
}

function makePage(file) {
  const name = pageName(file);
  const text = read(file);
  const {headings, render} = renderer(file, name);
  let html = render(text);
  const chapter = file.match(/^lessons\/(\d\d)-/);
  html = file === 'lessons/GLOSSARY.md' ? withTermIds(html) : markTerms(html, glossary, chapter ? chapter[1] : null, name.replace(/\.html$/, ''));
  html = withLive(file, html);
  const title = titleOf(text) || file;
  const source = sourceName(file);
  sources.add(file);
  pages.set(file, {file, name, title, html, headings, source});
}

// The front page and the pages of the live figures are ours; all others are files of the course.
function frontPage() {
  const text = read('lessons/README.md');
  const rowsOf = part => [...part.matchAll(/^\| (\d\d) \| \[(.*?)\]\(.*?\) \| (.*?) \|$/gm)];
  if (rowsOf(text).length !== chapters.length) fail('the tables of lessons/README.md do not list every chapter');
  const card = ([, number, title, question]) => {
    const {page, lab} = navigation.chapters.find(c => c.number === number);
    return `<li><a href="${page}"><span class="number">${number}</span><strong>${escapeHtml(title)}</strong></a>` +
      `<span class="question">${escapeHtml(question)}</span>` +
      (lab ? `<a class="lab" href="${lab}" aria-label="Lab ${number}">Lab</a>` : '') + '</li>';
  };
  const parts = text.split(/^### (?=Part )/m).slice(1).map(part => {
    const [title, , what] = part.split('\n');
    return `<h3>${escapeHtml(title)}</h3>\n<p>${escapeHtml(what)}</p>\n<ol class="chapters">${rowsOf(part).map(card).join('\n')}</ol>`;
  });
  // For whom, what for, how long: the paragraphs of lessons/README.md that begin in bold.
  const about = text.split(/\n\n/).filter(p => /^\*\*(For whom|Afterwards|How long|Short paths)/.test(p)).join('\n\n');
  if (parts.length === 0 || about === '') fail('lessons/README.md has no parts, or does not say for whom it is');
  return `<h1 class="cover">ringsmith</h1>
<p class="lead">Data-parallel training from scratch: tensors, autograd, collectives written by hand, gradient buckets that
overlap with backward. Read how it works, and play with the code that runs it.</p>
${placedFigure('schedule', run)}
<p>This ring is no animation. It is the runtime's own schedule, checker and simulator, compiled for this page. Choose
another algorithm, more ranks, or a mistake, and read what the checker says.
<a href="play.html">${Object.keys(liveFigures.modules).length + liveFigures.recorded.length - 1} more figures</a> are in the chapters.</p>
<h2 id="about">About the course</h2>
${renderer('lessons/README.md', 'index.html').render(about)}
<h2 id="chapters">The chapters</h2>
${parts.join('\n')}
<p>New here? Begin with <a href="00-launch.html">chapter 00</a>. Do you want to train now?
<a href="your-own-program.html">Your own program</a> installs it and shows PyTorch's lines beside ours. How the course is
meant to be read, and what its tests check: <a href="contents.html">contents</a>.</p>`;
}

function emit(name, title, html, headings, more = {}) {
  write(name, pageOf({name, title, html, headings, navigation, ...more}));
}

function makeSource(found) {
  const name = sourceName(found);
  const base = path.posix.relative(path.posix.dirname(name), '.') || '.';
  const crumbs = found.split('/').map((part, i, all) => {
    const folder = all.slice(0, i + 1).join('/');
    if (i === all.length - 1 || !sources.has(folder)) return escapeHtml(part);
    return `<a href="${path.posix.relative(path.posix.dirname(name), sourceName(folder))}">${escapeHtml(part)}</a>`;
  }).join(' / ');
  if (isFolder(found)) {
    const entries = fs.readdirSync(path.join(ROOT, found)).filter(n => !n.startsWith('.') && n !== 'node_modules').sort();
    const list = entries.map(entry => {
      const file = `${found}/${entry}`;
      const label = isFolder(file) ? `${entry}/` : entry;
      if (!sources.has(file)) return `<li>${escapeHtml(label)}</li>`;
      return `<li><a href="${path.posix.relative(path.posix.dirname(name), sourceName(file))}">${escapeHtml(label)}</a></li>`;
    });
    return emit(name, found, `<h1 class="path">${crumbs}</h1><ul class="files">${list.join('\n')}</ul>`, [], {base, source: true});
  }
  const text = read(found).replace(/\n$/, '');
  const language = LANGUAGES[found.split('.').pop()] ?? (path.basename(found) === 'Makefile' ? 'makefile' : '');
  // A colour may span lines (a comment): it is closed at each line's end and opened again on the next.
  const open = [];
  const lines = coloured(text, language).split('\n').map((line, i) => {
    const before = open.join('');
    for (const [tag] of line.matchAll(/<span[^>]*>|<\/span>/g)) tag === '</span>' ? open.pop() : open.push(tag);
    const n = i + 1;
    return `<span class="line" id="L${n}"><a href="#L${n}" tabindex="-1" aria-hidden="true" data-n="${n}"></a>${before}${line}${'</span>'.repeat(open.length)}</span>`;
  });
  const html = `<h1 class="path">${crumbs}</h1>
<pre class="source" tabindex="0" role="region" aria-label="${escapeHtml(found)}"><code>${lines.join('\n')}</code></pre>`;
  emit(name, found, html, [], {base, source: true});
}

// A page from file:// may fetch nothing, so that a module travels inside its script: compressed, which makes a third of
// it, and in base64. live.js unpacks it.
function packed(module) {
  const wasm = zlib.deflateSync(fs.readFileSync(path.join(LIVE, `${module}.wasm`)), {level: 9});
  return `${fs.readFileSync(path.join(LIVE, `${module}.js`), 'utf8')}\nBook.packed.${module} = '${wasm.toString('base64')}';\n`;
}

function checkedFragments() {
  for (const page of pages.values()) {
    for (const [, href] of page.html.matchAll(/href="([^"]*)"/g)) {
      if (/^[a-z]+:/.test(href) || !href.includes('#')) continue;
      const [target, hash] = href.split('#');
      if (target.startsWith('source/')) continue;
      const to = target === '' ? page : [...pages.values()].find(p => p.name === target);
      if (to && !to.html.includes(`id="${decodeURIComponent(hash)}"`)) fail(`${page.file} links to '${href}': no such heading`);
    }
  }
}

fs.rmSync(OUT, {recursive: true, force: true});
for (const file of ['lessons/README.md', ...chapters.flatMap(c => [`lessons/${c}/README.md`, `labs/${c}/README.md`]).filter(isFile),
                    'lessons/your-own-program.md', 'lessons/diagnose-a-trace.md', ...['labs/torch/README.md'].filter(isFile), 'lessons/GLOSSARY.md', 'lessons/CLAIMS.md', 'README.md'])
  wanted(file);
while (waiting.length > 0) makePage(waiting.shift());
checkedFragments();

const order = ['index.html', ...navigation.chapters.flatMap(c => c.lab ? [c.page, c.lab] : [c.page])];
const titles = new Map([['index.html', 'The book'], ...[...pages.values()].map(p => [p.name, p.title])]);
const neighbour = (name, by) => {
  const at = order.indexOf(name);
  const other = at < 0 ? undefined : order[at + by];
  return other ? {page: other, title: titles.get(other)} : null;
};
for (const page of pages.values()) {
  const chapter = navigation.chapters.find(c => c.page === page.name || c.lab === page.name);
  emit(page.name, page.title, page.html, page.headings,
       {previous: neighbour(page.name, -1), next: neighbour(page.name, 1), chapter, sourcePage: page.source});
  index(page.name, page.title, page.html);
}
const front = frontPage();
emit('index.html', 'ringsmith: the book', front, [], {next: neighbour('index.html', 1)});
const play = figurePage(run);
emit('play.html', 'Play: live figures', play.html, play.headings, {});
index('play.html', 'Play: live figures', play.html);
for (const found of [...sources].sort()) makeSource(found);

for (const image of images) {
  fs.mkdirSync(path.join(OUT, 'figures'), {recursive: true});
  fs.copyFileSync(path.join(ROOT, image), path.join(OUT, 'figures', path.basename(image)));
}
fs.cpSync(path.join(HERE, 'site'), path.join(OUT, 'site'), {recursive: true});
writeStyle(path.join(OUT, 'site', 'katex'));
fs.mkdirSync(path.join(OUT, 'live'), {recursive: true});
for (const module of liveFigures.modules) write(`live/${module}.js`, packed(module));
for (const id of liveFigures.recorded) write(`live/${id}.js`, recordedFigure(id, run));
write('site/index.js', `Book.index(${JSON.stringify(searchable).replace(/<\//g, '<\\/')});\n`);
for (const deck of decks) {
  fs.mkdirSync(path.join(OUT, 'slides', 'figures'), {recursive: true});
  fs.copyFileSync(path.join(SLIDES, `${deck}.html`), path.join(OUT, 'slides', `${deck}.html`));
}
if (decks.size > 0) fs.cpSync(path.join(SLIDES, 'figures'), path.join(OUT, 'slides', 'figures'), {recursive: true});
console.log(`book: ${pages.size + 2} pages, ${sources.size} sources, ${searchable.length} sections to search, ` +
            `${decks.size} decks: ${path.relative(process.cwd(), OUT)}/index.html`);
