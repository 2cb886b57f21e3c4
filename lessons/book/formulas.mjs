// Formulas of lessons, which are indented lines of plain text, set by KaTeX when the book is built: a
// reader's browser runs no script for them. Its fonts and style travel with the site.
//
//     T  =  2(N-1) alpha  +  2 (N-1)/N S beta        a line can break at each relation and each sum
//
// Three blanks or more separate formulas of a line. Words of several letters are text, Greek names
// are letters, and x between a number or a word and something else is a multiplication.
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import katex from 'katex';

import {escapeHtml} from './template.mjs';

const GREEK = {alpha: '\\alpha', beta: '\\beta', gamma: '\\gamma', tau: '\\tau', mu: '\\mu', eps: '\\varepsilon'};
const FUNCTIONS = {max: '\\max', min: '\\min', exp: '\\exp', log: '\\log'};
const SYMBOLS = {'<=': '\\le ', '>=': '\\ge ', '...': '\\dots ', '%': '\\%', '*': '\\cdot ', '²': '^2', '{': '\\{', '}': '\\}', '~': '\\sim '};
const TOKEN = /\.\.\.|<=|>=|->|[A-Za-z]{2,}(?:-[A-Za-z0-9]+)+|[A-Za-z]+\d*|\d[\d.,]*\d|\d|\s+|./gu;

// A block is set as formulas if it looks like one: not commands, not drawings.
export function isFormula(text) {
  return !/^\s*(make|export|sbatch|mpirun|\$)\s/m.test(text) && !/--|\.--/.test(text) && /[=^/]|<=|>=|\b[A-Z] [A-Z]\b|first half/.test(text);
}

// The index behind the bracket that closes the one at `open`.
function closing(tokens, open) {
  let depth = 0;
  for (let i = open; i < tokens.length; ++i) {
    depth += (tokens[i] === '(') - (tokens[i] === ')');
    if (depth === 0) return i + 1;
  }
  return tokens.length;
}

export function texOf(text) {
  const tokens = text.trim().match(TOKEN) ?? [];
  const tex = (from, to) => {
    let out = '', last = '';
    for (let i = from; i < to; ++i) {
      const token = tokens[i];
      if (/^\s+$/.test(token)) {
        const word = /^[A-Za-z]{2,}$/.test(tokens[i + 1] ?? '');
        out += (last === 'word' && word ? '\\ ' : '\\,') + (last === 'word' || word ? '\\allowbreak ' : '');
        continue;
      }
      if (token === '_' || token === '^') {  // of one token, of -p, or of what is in brackets
        const sign = tokens[i + 1] === '-' ? 1 : 0;
        const end = tokens[i + 1] === '(' ? closing(tokens, i + 1) : i + 2 + sign;
        const inner = tokens[i + 1] === '(' ? tex(i + 2, end - 1) : tex(i + 1, end);
        out += `${token}{${inner}}`;
        i = end - 1;
        last = 'script';
      } else if (token === 'sqrt' && tokens[i + 1] === '(') {
        const end = closing(tokens, i + 1);
        out += `\\sqrt{${tex(i + 2, end - 1)}}`;
        i = end - 1;
        last = 'root';
      } else if (token === 'x' && /^\s/.test(tokens[i - 1] ?? '') && /^\s/.test(tokens[i + 1] ?? '') && i + 2 < to && ['number', 'word', 'close'].includes(last) &&
                 !/^[=+<>|-]/.test(tokens[i + 2])) {
        out += '\\times ';
        last = 'times';
      } else if (token in GREEK || token in FUNCTIONS) {
        out += `${GREEK[token] ?? FUNCTIONS[token]} `;
        last = 'letter';
      } else if (/^[A-Za-z]\d$/.test(token)) {
        out += `${token[0]}_{${token.slice(1)}}`;
        last = 'letter';
      } else if (/^[A-Za-z][A-Za-z\d-]+$/.test(token)) {
        out += `\\text{${token}}`;
        last = 'word';
      } else {
        out += SYMBOLS[token] ?? token;
        last = /^\d/.test(token) ? 'number' : token === ')' ? 'close' : /^[A-Za-z]$/.test(token) ? 'letter' : 'sign';
      }
    }
    return out;
  };
  return tex(0, tokens.length);
}

function mathOf(text) {
  const html = katex.renderToString(texOf(text), {throwOnError: true, strict: false});
  // The copy of the TeX source would be found by the search.
  return html.replace(/<annotation[\s\S]*?<\/annotation>/g, '');
}

// A remark beside a formula.
const isRemark = text => !/[=<>\d(^_]/.test(text) && (text.match(/[A-Za-z]{3,}/g) ?? []).length >= 2;

export function formulasOf(text) {
  const lines = text.replace(/\n$/, '').split('\n').filter(line => line.trim() !== '');
  return `<div class="formulas">${lines.map(line =>
    `<p>${line.trim().split(/\s{3,}/).map(formula => `<span class="formula">${isRemark(formula) ? escapeHtml(formula) : mathOf(formula)}</span>`).join(' ')}</p>`).join('')}</div>\n`;
}

// Copies KaTeX's style and its fonts, without the formats that no browser of today needs.
export function writeStyle(folder) {
  const dist = path.dirname(createRequire(import.meta.url).resolve('katex'));
  const style = fs.readFileSync(path.join(dist, 'katex.min.css'), 'utf8').replace(/,url\([^)]*\.(woff|ttf)\) format\("[^"]*"\)/g, '');
  fs.mkdirSync(path.join(folder, 'fonts'), {recursive: true});
  fs.writeFileSync(path.join(folder, 'katex.css'), style);
  for (const font of fs.readdirSync(path.join(dist, 'fonts')))
    if (font.endsWith('.woff2')) fs.copyFileSync(path.join(dist, 'fonts', font), path.join(folder, 'fonts', font));
}
