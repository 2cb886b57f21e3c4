#!/usr/bin/env node
// Looks at every built deck in headless Chromium: nothing leaves its slide, no figure is missing or
// small.
//
//     node overflow.mjs build/slides     exits 0, or 1 with a line for each fault, or 77 without a browser
//
// Slides are shown one after the other, as a reader sees them: Marp's script shrinks long lines of
// code only some time after their slide has been shown. So a slide is looked at again until it has
// no fault, for at most PATIENCE ms.
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import {pathToFileURL} from 'node:url';
import puppeteer from 'puppeteer-core';

const PATIENCE = 3000, PAUSE = 50;

// Runs in the page. Returns the faults of slide i, which is shown.
function look(i) {
  const faults = [], say = text => faults.push(text), section = document.querySelectorAll('section')[i];
  const box = section.getBoundingClientRect();
  const start = part => part.textContent.trim().slice(0, 60);
  if (box.width < 10) say('is not shown');
  if (section.scrollHeight > section.clientHeight + 1 || section.scrollWidth > section.clientWidth + 1)
    say(`holds more than fits: ${section.scrollWidth}x${section.scrollHeight}`);
  for (const part of section.querySelectorAll('*')) {
    const own = part.getBoundingClientRect();
    if (own.width && (own.right > box.right + 1 || own.bottom > box.bottom + 1 || own.left < box.left - 1 ||
                      own.top < box.top - 1)) { say(`<${part.tagName.toLowerCase()}> leaves it: ${start(part)}`); break; }
    if (part.tagName == 'PRE' && part.scrollWidth > part.clientWidth + 1) { say(`a line is too long: ${start(part)}`); break; }
  }
  for (const picture of section.querySelectorAll('img')) {
    if (!picture.complete || !picture.naturalWidth) say(`picture is missing: ${picture.getAttribute('src')}`);
    const own = picture.getBoundingClientRect();
    const scale = Math.min(own.width / picture.naturalWidth, own.height / picture.naturalHeight);
    const wide = scale * picture.naturalWidth / box.width, high = scale * picture.naturalHeight / box.height;
    if (wide < 0.8 && high < 0.6)
      say(`picture is small: ${Math.round(100 * wide)} % of the width, ${Math.round(100 * high)} % of the height: ` +
          picture.getAttribute('src'));
  }
  const footer = section.querySelector('footer');
  if (footer) for (const part of section.children)
    if (part != footer && part.getBoundingClientRect().bottom > footer.getBoundingClientRect().top + 1)
      { say(`runs into the footer: ${start(part)}`); break; }
  return faults;
}

async function findings(browser, file) {
  const page = await browser.newPage();
  await page.setViewport({width: 1280, height: 720});
  await page.goto(pathToFileURL(path.resolve(file)).href, {waitUntil: 'load', timeout: 120000});
  const slides = await page.evaluate(() => document.querySelectorAll('section').length), faults = [];
  for (let i = 0; i < slides; ++i) {
    await page.evaluate(number => { location.hash = `#${number}`; }, i + 1);
    let seen = await page.evaluate(look, i);
    for (let waited = 0; seen.length && waited < PATIENCE; waited += PAUSE) {
      await new Promise(done => setTimeout(done, PAUSE));
      seen = await page.evaluate(look, i);
    }
    faults.push(...seen.map(text => [i + 1, text]));
  }
  await page.close();
  return {slides, faults};
}

const chromium = ['chromium', 'chromium-browser', 'google-chrome'].flatMap(name => {
  try {
    return [execFileSync('which', [name], {encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore']}).trim()];
  } catch {
    return [];
  }
})[0];
if (!chromium) {
  console.log('slides: NOT RUN: no chromium (apt install chromium)');
  process.exit(77);
}
const folder = process.argv[2];
const pages = fs.readdirSync(folder).filter(name => name.endsWith('.html')).sort();
if (!pages.length) {
  console.error(`overflow: no decks in ${folder}: make slides builds them`);
  process.exit(1);
}
const browser = await puppeteer.launch({executablePath: chromium, headless: true, args: ['--no-sandbox', '--disable-gpu',
  '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
  '--allow-file-access-from-files']});
let bad = 0;
for (const name of pages) {
  const found = await findings(browser, path.join(folder, name)), deck = name.replace('.html', '');
  for (const [slide, text] of found.faults) console.error(`${deck}, slide ${slide}: ${text}`);
  bad += found.faults.length + (found.slides === 0);
  console.log(`${deck}: ${found.slides} slides, ${found.faults.length} faults`);
}
await browser.close();
process.exit(bad ? 1 : 0);
