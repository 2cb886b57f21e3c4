// Checks the book in headless Chromium, and uses its live figures as a reader would.
//
//     node look.mjs BOOK BIN [--pictures FOLDER] [--only WORD,...] [--pages WORD]
//
// Exits 0, or 1 with a line for each fault, or 77 without a browser. Every page: nothing on the
// console, no request outside the book, no overflow at 400 and 1400 pixels, no formula cut, contrast
// of text by WCAG AA in light and dark, with answers unfolded, every link leads to a file and a
// heading. Terms with other meanings are marked only where contexts.txt says so. Every live figure
// is operated by keyboard and mouse; it must show the output of the command-line program for the
// same arguments. Finally, a page is broken in several ways, and each fault must be detected.
// --only: these figures alone; --pages: these pages alone, without pages of sources.
import {execFileSync, spawnSync} from 'node:child_process';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {fileURLToPath, pathToFileURL} from 'node:url';

import {checkContexts} from './contexts.mjs';

const require = createRequire(new URL('../../lessons/book/package.json', import.meta.url));
const puppeteer = require('puppeteer-core');
const HERE = path.dirname(fileURLToPath(import.meta.url));

const [BOOK, BIN] = process.argv.slice(2, 4).map(p => path.resolve(p));
const option = name => process.argv.includes(name) ? process.argv[process.argv.indexOf(name) + 1] : null;
const PICTURES = option('--pictures'), ONLY = option('--only'), PAGES = option('--pages');
const FIRST_PAGE = 300 * 1024, MODULE = 1024 * 1024;  // bytes
const LOOK = fs.readFileSync(path.join(HERE, 'look_in_page.js'), 'utf8');

const faults = [];
const say = text => { faults.push(text); console.error(text); };
const address = name => pathToFileURL(path.join(BOOK, name)).href;

// ---- files: links and sizes ----

function htmlFiles(folder = '') {
  return fs.readdirSync(path.join(BOOK, folder), {withFileTypes: true}).flatMap(entry => {
    const name = path.posix.join(folder, entry.name);
    if (entry.isDirectory()) return name === 'slides' ? [] : htmlFiles(name);
    return name.endsWith('.html') ? [name] : [];
  });
}

function checkLinks(files) {
  const ids = new Map();
  const idsOf = file => {
    if (!ids.has(file)) ids.set(file, new Set([...fs.readFileSync(file, 'utf8').matchAll(/ id="([^"]+)"/g)].map(m => m[1])));
    return ids.get(file);
  };
  const missing = [];
  let count = 0;
  for (const name of files) {
    const text = fs.readFileSync(path.join(BOOK, name), 'utf8');
    for (const [, , link] of text.matchAll(/ (href|src)="([^"]*)"/g)) {
      if (/^(https?|mailto):/.test(link)) continue;
      ++count;
      const [target, hash] = link.replace(/&amp;/g, '&').split('#');
      const file = target === '' ? path.join(BOOK, name) : path.join(BOOK, path.dirname(name), decodeURIComponent(target));
      if (!fs.existsSync(file)) missing.push(`${name}: '${link}' leads to no file`);
      else if (hash && file.endsWith('.html') && !file.includes('/slides/') && !idsOf(file).has(decodeURIComponent(hash)))
        missing.push(`${name}: '${link}' leads to no place on its page`);
    }
  }
  return {missing, count};
}

// ---- pages ----

async function open(browser, name, {javascript = true, width = 1400} = {}) {
  const page = await browser.newPage();
  page.trouble = [];
  page.loaded = [];
  page.on('console', message => { if (['error', 'warn'].includes(message.type())) page.trouble.push(`console: ${message.text()}`); });
  page.on('pageerror', error => page.trouble.push(`error: ${error.message}`));
  page.on('request', request => {
    if (request.url().startsWith(pathToFileURL(BOOK).href)) page.loaded.push(decodeURIComponent(new URL(request.url()).pathname));
    else if (!request.url().startsWith('data:')) page.trouble.push(`asks for ${request.url().slice(0, 100)}`);
  });
  page.on('requestfailed', request => page.trouble.push(`did not get ${request.url().slice(0, 100)}`));
  if (!javascript) await page.setJavaScriptEnabled(false);
  await page.setViewport({width, height: 900});
  await page.goto(address(name), {waitUntil: 'load'});
  return page;
}

const LOOKS = [[400, 'light'], [400, 'dark'], [1400, 'light'], [1400, 'dark']];

async function lookAt(page, name, looks = LOOKS) {
  const found = [];
  for (const [width, scheme] of looks) {
    await page.setViewport({width, height: 900});
    await page.emulateMediaFeatures([{name: 'prefers-color-scheme', value: scheme}, {name: 'prefers-reduced-motion', value: 'reduce'}]);
    const dark = await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
    await page.evaluate(() => document.querySelectorAll('main li > details').forEach(answer => { answer.open = true; }));
    if (dark !== scheme) found.push(`${name}: is ${dark} where ${scheme} is wished`);
    for (const fault of await page.evaluate(LOOK)) found.push(`${name}, ${width} pixels, ${scheme}: ${fault}`);
    if (PICTURES && looks === LOOKS)
      await page.screenshot({path: path.join(PICTURES, `${name.replace(/\W+/g, '_')}_${width}_${scheme}.png`), fullPage: false});
  }
  return [...found, ...page.trouble.map(t => `${name}: ${t}`)];
}

async function checkPages(browser, files) {
  for (const name of files) {
    const page = await open(browser, name);
    // All pages of source text have the same form, so each is checked only once, for errors and
    // width.
    (await lookAt(page, name, name.startsWith('source/') ? [[400, 'dark']] : LOOKS)).forEach(say);
    await page.close();
  }
}

async function checkFirstPage(browser) {
  const page = await open(browser, 'index.html');
  const files = [...new Set(page.loaded)];
  const bytes = files.reduce((sum, file) => sum + fs.statSync(file).size, 0);
  if (files.some(file => file.includes('/live/'))) say('index.html: fetches a figure before anybody touched it');
  if (bytes > FIRST_PAGE) say(`index.html: ${bytes} bytes with what it fetches, more than ${FIRST_PAGE}`);
  await page.close();
  return bytes;
}

async function checkWithoutJavaScript(browser, files) {
  for (const name of files) {
    if (!fs.readFileSync(path.join(BOOK, name), 'utf8').includes('class="live"')) continue;
    const page = await open(browser, name, {javascript: false, width: 400});
    const shown = await page.$$eval('section.live', all => all.map(section => {
      const svg = section.querySelector('.live-drawing svg'), box = svg?.getBoundingClientRect();
      return {id: section.dataset.figure, width: box?.width ?? 0, height: box?.height ?? 0, button: section.querySelector('button') !== null,
              verdict: section.querySelector('.live-verdict').textContent.length};
    }));
    for (const figure of shown) {
      if (figure.width < 200 || figure.height < 60) say(`${name}: without JavaScript figure ${figure.id} shows no drawing`);
      if (figure.button) say(`${name}: without JavaScript figure ${figure.id} has a button that does nothing`);
      if (figure.verdict === 0) say(`${name}: without JavaScript figure ${figure.id} says nothing`);
    }
    await page.close();
  }
}

// ---- live figures ----

function native([program, ...args]) {
  const done = spawnSync(path.join(BIN, program), args, {encoding: 'utf8', maxBuffer: 1 << 26, timeout: 60000});
  if (done.error) throw new Error(`${program}: ${done.error.message}`);
  return {code: done.status, text: (done.stdout + done.stderr).replace(/\n$/, '')};
}

// Waits until the figure has answered once more than before.
async function settled(page, id, before) {
  await page.waitForFunction((figure, turn) => Number(document.querySelector(`section.live[data-figure=${figure}]`).dataset.turn ?? 0) > turn,
                             {timeout: 60000}, id, before);
}
const turnOf = (page, id) => page.$eval(`section.live[data-figure=${id}]`, s => Number(s.dataset.turn ?? 0));

async function compare(page, id) {
  const shown = await page.$eval(`section.live[data-figure=${id}]`, section => {
    const data = section.controller.data && JSON.parse(JSON.stringify(section.controller.data));
    if (data) ['rounds', 'layout'].forEach(key => delete data[key]);  // added by the drawing
    return {command: JSON.parse(section.dataset.command), code: Number(section.dataset.code ?? 0), data, frame: section.controller.frame,
            text: section.querySelector('.live-text .printed').textContent, verdict: section.querySelector('.live-verdict').textContent,
            cards: section.querySelectorAll('.rank .card').length, stuck: section.querySelectorAll('.rank.stuck').length,
            waits: section.querySelectorAll('.message.waits').length, messages: section.querySelectorAll('.message:not(.waits)').length,
            blocks: section.querySelectorAll('.block').length, hooks: section.querySelectorAll('.fired').length,
            bits: section.querySelectorAll('.bit').length, curves: section.querySelectorAll('.curve').length, found: section.querySelectorAll('.outcome').length,
            places: section.querySelectorAll('.place').length, stale: section.querySelectorAll('.outcome.stale').length};
  });
  const name = `${id}: ${shown.command.join(' ')}`;
  const expected = native(shown.command);
  const equal = (what, is, should) => { if (is !== should) say(`${name}: ${what} is ${String(is).slice(0, 300)}, not ${String(should).slice(0, 300)}`); };
  equal('what it prints', shown.text, expected.text);
  const data = native([...shown.command, '--json']);
  const json = data.text.startsWith('{') ? JSON.parse(data.text.split('\n')[0]) : null;
  equal('its data', JSON.stringify(sorted(shown.data)), JSON.stringify(sorted(json)));
  if (json && id === 'schedule') {
    equal('its exit code', shown.code, data.code);
    equal('the number of cards', shown.cards, json.world);
    equal('the number of stuck ranks', shown.stuck, json.run.blocked.length);
    equal('the number of waiting arrows', shown.waits, json.run.blocked.length);
    const fault = expected.text.match(/^FAULT {2}(.*)$/m);
    if (fault && !shown.verdict.startsWith(fault[1])) say(`${name}: its verdict '${shown.verdict}' is not the checker's '${fault[1]}'`);
    const time = expected.text.match(/([\d.]+) us, algbw/);
    if (!fault && time && !shown.verdict.includes(`simulated ${time[1]} us`)) say(`${name}: its verdict '${shown.verdict}' does not say ${time[1]} us`);
  }
  if (json && id === 'buckets') equal('the number of blocks', shown.blocks, json.ranks.length * json.gradients.length + json.reductions.length);
  if (json && id === 'strides') {
    const tensor = json.tensors[json.tensors.length - 1];
    equal('the number of places', shown.places, tensor.storage + tensor.places.length);
    if (json.error !== '') equal('the verdict', shown.verdict, json.error);
  }
  if (json && id === 'bits') equal('the number of bits', shown.bits, json.formats.reduce((sum, f) => sum + f.bits.length, 0));
  if (json && id === 'pipeline') equal('the number of backwards', shown.blocks, json.stages * json.microbatches);
  if (json && id === 'window') equal('the number of messages', shown.blocks, json.first.length + json.first.filter((m, n) => n % json.slots < 8).length);
  if (json && ['costs', 'caps', 'feedback', 'goodput'].includes(id))
    equal('the number of curves', shown.curves, 2 * ({costs: 4, caps: 3, feedback: 3, goodput: 2})[id]);
  if (json && id === 'crash') equal('the number of outcomes', shown.found, json.moments[shown.frame].length);
  if (json && id === 'litmus') {
    const told = json.failure ? json.told : json.outcomes[shown.frame]?.told ?? '';
    equal('the number of steps', shown.blocks, told.split('\n').filter(line => /^ *\d+ /.test(line)).length);
  }
  if (json && id === 'race' && shown.frame >= json.moments.length) equal('the number of wrong reads', shown.stale, json.wrong);
  return {shown, json};
}

const sorted = value => Array.isArray(value) ? value.map(sorted) : value && typeof value === 'object' ?
  Object.fromEntries(Object.keys(value).sort().map(key => [key, sorted(value[key])])) : value;

// The actions of a reader: a control is found by its name, and changed by keyboard or mouse.
class Hands {
  constructor(page, id) { Object.assign(this, {page, id}); }
  async start() {
    // Uses only the keyboard: presses Tab until the figure's button has the focus.
    for (let i = 0; i < 400; ++i) {
      await this.page.keyboard.press('Tab');
      if (await this.page.evaluate(id => document.activeElement.matches(`section.live[data-figure=${id}] .live-start`), this.id)) break;
      if (i === 399) return say(`${this.id}: the keyboard does not reach its button`);
    }
    const before = await turnOf(this.page, this.id);
    await this.page.keyboard.press('Enter');
    await settled(this.page, this.id, before);
    const focus = await this.page.evaluate(() => document.activeElement.closest('.control') !== null);
    if (!focus) say(`${this.id}: after its start the focus is not on its first control`);
  }
  control(name) { return this.page.$(`section.live[data-figure=${this.id}] .control [name=${name}]`); }
  // Moves a slider by this number of steps with the arrow keys (to the left if negative).
  async slide(name, steps) {
    const input = await this.control(name);
    await input.focus();
    for (let i = 0; i < Math.abs(steps); ++i) {
      const before = await turnOf(this.page, this.id), value = await input.evaluate(e => e.value);
      await this.page.keyboard.press(steps > 0 ? 'ArrowRight' : 'ArrowLeft');
      if (await input.evaluate(e => e.value) === value) break;  // at its end
      await settled(this.page, this.id, before);
    }
    return compare(this.page, this.id);
  }
  // Clicks with the mouse at this fraction of the slider's length.
  async clickSlider(name, part) {
    const input = await this.control(name);
    await input.scrollIntoView();
    const box = await input.boundingBox(), before = await turnOf(this.page, this.id), value = await input.evaluate(e => e.value);
    await this.page.mouse.click(box.x + box.width * part, box.y + box.height / 2);
    if (await input.evaluate(e => e.value) !== value) await settled(this.page, this.id, before);
    return compare(this.page, this.id);
  }
  async choose(name, value) {
    const input = await this.control(name), before = await turnOf(this.page, this.id);
    if (await input.evaluate(e => e.value) === value) return compare(this.page, this.id);
    await input.select(value);
    await settled(this.page, this.id, before);
    return compare(this.page, this.id);
  }
  async write(name, text) {
    const input = await this.control(name);
    await input.click({count: 3});
    const before = await turnOf(this.page, this.id);
    await this.page.keyboard.press('Backspace');
    await this.page.keyboard.type(text);
    await settled(this.page, this.id, before + text.length);
    return compare(this.page, this.id);
  }
  async step() {
    const part = name => this.page.$(`section.live[data-figure=${this.id}] .player ${name}`);
    const caption = async () => (await part('.caption')).evaluate(e => e.textContent);
    const first = await caption();
    await (await part('input')).focus();
    await this.page.keyboard.press('Home');
    const home = await caption();
    await this.page.keyboard.press('ArrowRight');
    const second = await caption();
    await (await part('[data-go="1"]')).click();
    const third = await caption();
    if (home === second || second === third) say(`${this.id}: its player does not move: '${first}', '${home}', '${second}', '${third}'`);
    await (await part('[data-go=play]')).click();
    await this.page.keyboard.press('Enter');  // the focus is on the button: pause
    if (await (await part('[data-go=play]')).evaluate(e => e.getAttribute('aria-label')) !== 'Play') say(`${this.id}: Enter does not pause it`);
  }
}

const PLAYS = {
  schedule: async hands => {
    const expect = (what, fault) => ({json}) => {
      const found = json.faults.some(f => f.fault === fault);
      if (fault ? !found : json.faults.length > 0) say(`schedule: ${what}: the checker finds ${JSON.stringify(json.faults.map(f => f.fault))}, not ${fault}`);
    };
    await hands.step();
    await hands.slide('world', 2).then(expect('a ring of 6', null));
    await hands.slide('slots', -8).then(expect('no slots', 'deadlock'));
    await hands.slide('slots', 1).then(expect('one slot', null));
    await hands.choose('mistake', 'receive_first').then(expect('everyone receives first', 'deadlock'));
    await hands.choose('mistake', 'adds_to_the_end').then(expect('adds to the end', 'doubled'));
    await hands.choose('mistake', 'skip').then(expect('a step left out', 'size mismatch'));
    await hands.slide('count', -20);
    await hands.slide('count', 12);
    for (const mistake of ['wrong_chunk', 'owner_off_by_one', 'one_step_short', 'remainder_dropped']) await hands.choose('mistake', mistake);
    await hands.choose('mistake', '').then(expect('no mistake', null));
    await hands.slide('alpha', 2);
    await hands.clickSlider('bandwidth', 0.9);
    for (const algorithm of ['all_reduce direct', 'all_reduce one_shot', 'all_reduce tree', 'all_reduce halving_doubling', 'all_reduce double_tree',
                             'all_reduce hierarchical', 'all_reduce gloo_ring', 'reduce_scatter ring', 'broadcast tree', 'all_to_all direct'])
      await hands.choose('algorithm', algorithm).then(expect(algorithm, null));
    for (let i = 0; i < 8; ++i) await hands.slide('world', -1);  // until one rank is left
  },
  strides: async hands => {
    await hands.step();
    for (const sizes of ['6', '2,3', '2,3,2', '2,2,3,2', '4,4']) await hands.choose('sizes', sizes);
    for (const operation of ['select:1,0', 'reshape:-1', 'view:-1', 'unsqueeze:0', 'contiguous', 'expand:3,-1', 'permute:2,0,1', ''])
      await hands.choose('two', operation);
    await hands.choose('three', 'view:-1');
  },
  tape: async hands => {
    await hands.step();
    await hands.slide('w', -3);
    await hands.clickSlider('x', 0.2);
    for (const expression of ['w*w', 'tanh(w*x)-b', '(w+x', 'u*w', 'relu(w)/x']) await hands.write('expression', expression);
  },
  buckets: async hands => {
    await hands.slide('first', -4);
    await hands.slide('cap', 2);
    await hands.slide('slow', 7);
    await hands.slide('world', -4);
    await hands.slide('world', 6);
    await hands.choose('model', '8192,64,64,64,64,64,64,64');
    await hands.clickSlider('alpha', 0.95);
    await hands.slide('bandwidth', 3);
    await hands.slide('backward', -3);
  },
  race: async hands => {
    const whole = async () => {  // to the end, where the wrong reads can be counted
      await hands.page.$eval('section.live[data-figure=race]', s => s.controller.show(99, true));
      return compare(hands.page, 'race');
    };
    await hands.step();
    await hands.slide('seed', 3);
    const without = await whole();
    if (without.json.wrong === 0) say('race: without the barrier nobody read too early');
    await hands.choose('barrier', 'yes');
    const waited = await whole();
    if (waited.json.wrong !== 0) say('race: with the barrier somebody read too early');
    await hands.slide('threads', 1);
    await hands.slide('threads', -2);
  },
};

// A figure's numbers that a reader sees in the drawing must be the program's: counted in compare().
Object.assign(PLAYS, {
  costs: async hands => {
    const best = (size, name) => ({json}) => {
      const found = json.best[json.bytes.indexOf(size)];
      if (found !== name) say(`costs: ${name} should be best at ${size} bytes, not ${found}`);
    };
    await hands.slide('world', -1).then(best(1 << 28, 'ring'));       // 6 ranks: halving sends more
    await hands.slide('world', -10).then(best(1 << 28, 'ring'));      // 2 ranks
    await hands.slide('world', 12).then(best(256, 'halving'));
    await hands.clickSlider('alpha', 0.9);
    await hands.slide('bandwidth', 3);
    await hands.slide('adding', -1);
  },
  window: async hands => {
    const idle = yes => ({json}) => { if ((json.idle > 0.01) !== yes) say(`window: idle ${json.idle} with ${json.slots} slots`); };
    await hands.slide('slots', -1).then(idle(true));
    await hands.slide('slots', 3).then(idle(false));
    await hands.slide('bytes', -2).then(idle(true));
    await hands.slide('delay', 3);
    await hands.clickSlider('bandwidth', 0.1);
  },
  bits: async hands => {
    for (const number of ['257', '65520', '-1e-8', '0', '2^3', '1e40']) await hands.write('number', number);
    await hands.write('number', '1e-8').then(({json}) => { if (json.formats[2].held !== '0') say(`bits: f16 holds 1e-8 as ${json.formats[2].held}`); });
    await hands.slide('scale', 3).then(({json}) => { if (json.formats[2].held === '0') say('bits: f16 loses 1e-8 times 65536'); });
  },
  caps: async hands => {
    await hands.slide('alpha', 2);
    await hands.slide('world', -2);
    await hands.clickSlider('bandwidth', 0.05);
    await hands.slide('backward', 2);
  },
  crash: async hands => {
    const whole = yes => ({json}) => {
      const bad = json.moments.some(m => m.includes('broken') || m.includes('none'));
      if (bad === yes) say(`crash: ${json.way.join(' ')} ${yes ? 'may break the file' : 'never breaks the file'}`);
    };
    await hands.choose('way', 'create write fsync sync-folder rename').then(whole(true));
    await hands.step();
    await hands.choose('way', '--in-place create write fsync').then(whole(false));
    await hands.choose('way', 'create write fsync rename').then(whole(true));
    await hands.choose('way', 'create write fsync rename sync-folder').then(whole(true));
    await hands.choose('way', 'create write rename').then(whole(false));
  },
  feedback: async hands => {
    const end = ({json}) => json.curves.map(c => c.losses[c.losses.length - 1]);
    const one = end(await hands.slide('rate', 1)), all = end(await hands.slide('k', 7));
    if (!(one[2] > 5 * one[1])) say(`feedback: k = 1 ends at ${one}`);
    if (all[0] !== all[1] || all[0] !== all[2]) say(`feedback: k = 8 ends at ${all}`);
    await hands.clickSlider('steps', 0.05);
  },
  goodput: async hands => {
    const best = async (...does) => (await hands.slide(...does)).json.best;
    const before = (await compare(hands.page, 'goodput')).json.best;
    if (!(await best('gpus', 2) < before)) say('goodput: more GPUs are no worse');
    if (!(await best('years', 2) > 0)) say('goodput: nothing is useful');
    await hands.slide('save', -6);
    await hands.clickSlider('restart', 0.99);
  },
  pipeline: async hands => {
    const ideal = ({json}) => { if (Math.abs(json.bubble - json.ideal) > 1e-3) say(`pipeline: a bubble of ${json.bubble}, not ${json.ideal}`); };
    await hands.slide('micro', 8).then(ideal);
    await hands.choose('schedule', 'gpipe').then(ideal);
    await hands.slide('stages', 4).then(ideal);
    await hands.clickSlider('backward', 0.02).then(ideal);
    await hands.slide('message', 2);
    await hands.slide('stages', -8);
  },
  litmus: async hands => {
    const outcomes = (count, wrong) => ({json}) => {
      if (json.outcomes.length !== count || (json.failure !== '') !== wrong) say(`litmus: ${json.outcomes.length} outcomes, ${json.failure}`);
    };
    await hands.choose('test', 'update').then(outcomes(8, false));
    await hands.step();
    await hands.choose('test', 'mp');
    await hands.choose('orders', 'both').then(outcomes(3, false));
    await hands.choose('test', 'sb').then(outcomes(4, false));
    await hands.choose('orders', 'seq_cst').then(outcomes(3, false));
    await hands.choose('test', 'bells').then(outcomes(0, false));
    await hands.choose('orders', 'both').then(outcomes(0, true));
    for (const test of ['lb', 'update', 'store']) await hands.choose('test', test);
    await hands.choose('orders', 'relaxed');
  },
});

async function checkLive(browser) {
  for (const [id, play] of Object.entries(PLAYS)) {
    if (ONLY && !ONLY.split(',').some(word => id.includes(word))) continue;
    const page = await open(browser, 'play.html');
    const begin = Date.now();
    const hands = new Hands(page, id);
    await hands.start();
    await compare(page, id);
    await play(hands);
    await page.$eval(`section.live[data-figure=${id}]`, s => s.scrollIntoView());
    (await lookAt(page, `play.html, ${id} alive`)).forEach(say);
    console.log(`book: figure ${id} worked in ${((Date.now() - begin) / 1000).toFixed(0)} s`);
    await page.close();
  }
}

// ---- search, terms, colours: by keyboard ----

async function checkKeyboard(browser) {
  const page = await open(browser, '06-ring.html');
  await page.keyboard.press('/');
  await page.keyboard.type('slots deadlock');
  await page.waitForSelector('#found a', {timeout: 20000});
  await page.keyboard.press('ArrowDown');
  const href = await page.evaluate(() => document.activeElement.getAttribute('href'));
  if (!/^\.\/.*\.html/.test(href ?? '')) say(`search: ArrowDown is on '${href}'`);
  await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
  if (!page.url().includes(href.split('#')[0].slice(2))) say(`search: Enter went to ${page.url()}, not ${href}`);
  await page.goto(address('09-ddp.html'), {waitUntil: 'load'});
  const term = await page.$('main a.term');
  if (!term) say('09-ddp.html marks no term of the glossary');
  await term.focus();
  const tip = await page.$eval('#tip', e => ({text: e.textContent, shown: !e.hidden}));
  const says = await term.evaluate(e => e.dataset.says);
  if (!tip.shown || tip.text !== says) say(`09-ddp.html: a focused term shows '${tip.text}', not '${says}'`);
  await page.keyboard.press('Escape');
  if (!await page.$eval('#tip', e => e.hidden)) say('09-ddp.html: Escape does not close the tooltip');
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await ground();
  await page.click('#colours');
  if (await ground() === before) say('the button for colours changes none');
  // The following pages are checked in the system's colours.
  await page.evaluate(() => localStorage.clear());
  page.trouble.forEach(say);
  await page.close();
}

// ---- plants faults: a test that cannot fail shows nothing ----

const DAMAGE = [
  ['pale text', 'contrast', () => document.querySelector('main > p:not(.links)').style.color = '#bbb'],
  ['a wide box', 'wide', () => document.querySelector('main').insertAdjacentHTML('beforeend', '<div style="width:900px">x</div>')],
  ['a picture that is missing', 'picture', () => document.querySelector('main').insertAdjacentHTML('beforeend', '<img src="no.svg" alt="x">')],
  ['a long formula', 'cut', () => document.querySelectorAll('.katex-html').forEach(line => { line.style.whiteSpace = 'nowrap'; })],
  ['an error', 'error', () => setTimeout(() => { throw new Error('planted'); })],
];

async function checkTheTest(browser, files) {
  for (const [what, word, damage] of DAMAGE) {
    const page = await open(browser, '05-cost.html');
    await page.evaluate(damage);
    await new Promise(done => setTimeout(done, 200));
    const found = await lookAt(page, '05-cost.html', [[400, 'light']]);
    if (!found.some(f => f.includes(word))) say(`the test does not notice ${what}`);
    await page.close();
  }
  const page = await open(browser, 'play.html');
  const hands = new Hands(page, 'buckets');
  await hands.start();
  await page.$eval('section.live[data-figure=buckets]', s => {
    s.querySelector('.printed').textContent = s.querySelector('.printed').textContent.replace(/\d/, d => (Number(d) + 1) % 10);
  });
  const before = faults.length, error = console.error;
  console.error = () => {};
  await compare(page, 'buckets');
  console.error = error;
  if (faults.length === before) say('the test does not notice a changed digit');
  else faults.length = before;
  await page.close();
  const copy = path.join(BOOK, 'broken.html');
  fs.writeFileSync(copy, '<a href="nowhere.html">x</a><a href="05-cost.html#nowhere">y</a>');
  const {missing} = checkLinks(['broken.html']);
  fs.unlinkSync(copy);
  if (missing.length !== 2) say(`the test notices ${missing.length} of 2 broken links`);
}

async function main() {
  const chromium = ['chromium', 'chromium-browser', 'google-chrome'].map(name => {
    try { return execFileSync('which', [name], {encoding: 'utf8'}).trim(); } catch { return ''; }
  }).find(found => found !== '');
  if (!chromium) {
    console.log('book: NOT RUN: no chromium (apt install chromium)');
    return 77;
  }
  if (PICTURES) fs.mkdirSync(PICTURES, {recursive: true});
  const files = htmlFiles();
  const {missing, count} = checkLinks(files);
  missing.forEach(say);
  checkContexts(BOOK).slice(0, 12).forEach(say);
  for (const module of fs.readdirSync(path.join(BOOK, 'live'))) {
    const {size} = fs.statSync(path.join(BOOK, 'live', module));
    console.log(`book: live/${module}: ${Math.round(size / 1024)} KiB`);
    if (size > MODULE) say(`live/${module}: ${size} bytes, more than ${MODULE}`);
  }
  const browser = await puppeteer.launch({executablePath: chromium, headless: true, protocolTimeout: 120000,
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
           '--host-resolver-rules=MAP * ~NOTFOUND', '--hide-scrollbars']});
  try {
    const bytes = await checkFirstPage(browser);
    if (!PAGES) await checkLive(browser);
    if (PAGES) {
      await checkPages(browser, files.filter(name => name.includes(PAGES) && !name.startsWith('source/')));
    } else if (!ONLY) {
      await checkKeyboard(browser);
      await checkWithoutJavaScript(browser, files);
      await checkTheTest(browser, files);
      await checkPages(browser, files);
    }
    faults.forEach(text => console.log(`book: FAULT ${text}`));  // again, because a log of CI is read from its end
    console.log(`book: ${files.length} pages, ${count} links, first page ${Math.round(bytes / 1024)} KiB, ${faults.length} faults`);
  } finally {
    await browser.close();
  }
  return faults.length > 0 ? 1 : 0;
}

process.exit(await main());
