// Glossary terms in the text: the first time that a section uses one, it becomes a link to the
// glossary that carries the term's sentence; page.js shows it on hover and on keyboard focus.
//
//     ... cut the array into <a class="term" href="glossary.html#chunk" data-says="one of ...">chunks</a>
//
// Without JavaScript it is the link. Lessons use no term before they explain it, so a term is only
// marked behind the chapter that introduces it, and not where it is introduced (it is in bold).
import {meantHere} from './meanings.mjs';
import {escapeHtml} from './template.mjs';

export const termId = name => name.toLowerCase().replace(/[^a-z0-9]+/g, '-');

// lessons/GLOSSARY.md -> [{name, forms, sentence, chapter, id, pattern}]
export function glossaryOf(text, fail) {
  const lines = text.split('\n').filter(line => line.startsWith('- '));
  const terms = lines.map(line => {
    const match = line.match(/^- \*\*([^*]+)\*\*(?: \(([^)]*)\))?: (.+?) \[(\d\d), .*?\]\(.*?\)$/);
    if (!match) fail(`lessons/GLOSSARY.md: cannot read '${line}'`);
    const [, name, forms, sentence, chapter] = match;
    const all = [name, ...(forms ? forms.split(',').map(f => f.trim()) : [])];
    return {name, forms: all, sentence, chapter, id: termId(name)};
  });
  if (terms.length === 0) fail('lessons/GLOSSARY.md has no terms');
  return terms;
}

// As tests/lessons/terms.py matches: without regard to case, unless there are capitals inside.
function formsOf(glossary) {
  const all = glossary.flatMap(term => term.forms.map(form => ({form, term})));
  all.sort((a, b) => b.form.length - a.form.length);
  const exact = new Map(all.map(({form, term}) => [form.toLowerCase(), {form, term}]));
  const escaped = all.map(({form}) => form.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/\s+/g, '\\s+'));
  return {exact, pattern: new RegExp(`(?<![\\w-])(${escaped.join('|')})(?![\\w-])`, 'gi')};
}

const NOT_INSIDE = new Set(['a', 'code', 'pre', 'h1', 'h2', 'h3', 'h4', 'strong', 'figcaption', 'svg', 'button', 'th']);

// page: the page's name without .html.
export function markTerms(html, glossary, chapter, page) {
  const {exact, pattern} = formsOf(glossary);
  let seen = new Set();
  const inside = [];
  return html.split(/(<[^>]+>)/).map(piece => {
    if (piece.startsWith('<')) {
      const tag = piece.match(/^<(\/?)([a-z0-9]+)/i);
      if (!tag) return piece;
      const name = tag[2].toLowerCase();
      if (name === 'h2' && !tag[1]) seen = new Set();
      if (NOT_INSIDE.has(name)) tag[1] ? inside.splice(inside.lastIndexOf(name), 1) : inside.push(name);
      return piece;
    }
    if (inside.length > 0) return piece;
    return piece.replace(pattern, (word, _, at) => {
      const {form, term} = exact.get(word.toLowerCase().replace(/\s+/g, ' '));
      const capitals = /[A-Z]/.test(form.slice(1));
      if (capitals && word !== form) return word;
      if (seen.has(term.id) || (chapter !== null && chapter <= term.chapter)) return word;
      if (!meantHere(term.id, page, piece.slice(0, at).replace(/\s+/g, ' '), piece.slice(at + word.length).replace(/\s+/g, ' '))) return word;
      seen.add(term.id);
      return `<a class="term" href="glossary.html#${term.id}" data-says="${escapeHtml(term.sentence)}">${word}</a>`;
    });
  }).join('');
}

// The glossary's own page: each entry can be linked to.
export const withTermIds = html => html.replace(/<li><strong>([^<]+)<\/strong>/g, (all, name) =>
  `<li id="${termId(name.replace(/&amp;/g, '&'))}"><strong>${name}</strong>`);
