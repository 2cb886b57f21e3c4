// contexts.mjs BOOK [--update]: the places in which the book marks a term that has other meanings
// (lessons/book/meanings.mjs), compared with contexts.txt.
//
// A tooltip is right only if the word means the glossary's term there, which no program can tell. So
// a new place is a fault until somebody has read it: --update writes the list, and the diff is read.
import fs from 'node:fs';
import path from 'node:path';
import {fileURLToPath} from 'node:url';

import {MEANINGS} from '../../lessons/book/meanings.mjs';

const LIST = path.join(path.dirname(fileURLToPath(import.meta.url)), 'contexts.txt');
const WIDTH = 24;  // characters on each side

const plain = html => html.replace(/<pre[\s\S]*?<\/pre>/g, ' ').replace(/<[^>]*>/g, ' ').replace(/&lt;/g, '<').replace(/&gt;/g, '>')
  .replace(/&quot;/g, '"').replace(/&#39;/g, '\'').replace(/&amp;/g, '&').replace(/\s+/g, ' ');

// One line for each place: "round | 18-scale | a restart is a failed [round] like any other: it counts".
export function contexts(book) {
  const lines = [];
  for (const file of fs.readdirSync(book).filter(name => name.endsWith('.html')).sort()) {
    const html = fs.readFileSync(path.join(book, file), 'utf8').replace(/<section class="live"[\s\S]*?<\/section>/g, ' ');
    const main = html.slice(html.indexOf('<main'));
    // The marks survive as control characters, which no page has.
    const marked = main.replace(/<a class="term" href="glossary\.html#([^"]+)"[^>]*>([\s\S]*?)<\/a>/g, '\x01$1\x02$2\x03');
    const text = plain(marked);
    const clean = part => part.replace(/\x01[^\x02]*\x02|\x03/g, '');
    for (const match of text.matchAll(/\x01([^\x02]*)\x02([^\x03]*)\x03/g)) {
      if (!(match[1] in MEANINGS)) continue;
      const before = clean(text.slice(Math.max(0, match.index - 300), match.index)).slice(-WIDTH);
      const after = clean(text.slice(match.index + match[0].length).slice(0, 300)).slice(0, WIDTH);
      lines.push(`${match[1]} | ${file.replace('.html', '')} | ${before.trimStart()}[${match[2]}]${after.trimEnd()}`);
    }
  }
  return lines.sort();
}

export function checkContexts(book) {
  const have = contexts(book), listed = new Set(fs.existsSync(LIST) ? fs.readFileSync(LIST, 'utf8').split('\n').filter(l => l !== '') : []);
  return [...have.filter(line => !listed.has(line)).map(line => `contexts.txt does not list: ${line}`),
          ...[...listed].filter(line => !have.includes(line)).map(line => `contexts.txt lists what is gone: ${line}`)];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const book = process.argv[2];
  if (process.argv[3] === '--update') fs.writeFileSync(LIST, `${contexts(book).join('\n')}\n`);
  const faults = checkContexts(book);
  faults.forEach(fault => console.error(fault));
  process.exit(faults.length > 0 ? 1 : 0);
}
