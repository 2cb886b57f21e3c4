// What is the same on every page: head, bar, chapters at the left, headings at the right, foot.
//
// Navigation is in <details>, so that it opens without JavaScript; page.js opens the chapters on
// wide screens, remembers the chosen colours and runs the search.

export const escapeHtml = text =>
  String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');

function chapterList(navigation, name, to) {
  const items = navigation.chapters.map(({number, title, page, lab, deck}) => {
    const here = page === name ? ' aria-current="page"' : '';
    const labHere = lab === name ? ' aria-current="page"' : '';
    return `<li><a href="${to(page)}"${here}><span class="number">${number}</span> ${escapeHtml(title)}</a>` +
      (lab ? `<a class="side" href="${to(lab)}"${labHere} aria-label="Lab ${number}">lab</a>` : '') +
      (deck ? `<a class="side" href="${to(deck)}" aria-label="Slides of chapter ${number}">slides</a>` : '') + '</li>';
  });
  const more = navigation.more.map(([title, page]) =>
    `<li><a href="${to(page)}"${page === name ? ' aria-current="page"' : ''}>${escapeHtml(title)}</a></li>`);
  return `<ol class="list">${items.join('')}</ol><ul class="list">${more.join('')}</ul>`;
}

function headingList(headings) {
  const shown = headings.filter(h => h.level === 2 || h.level === 3);
  if (shown.length < 2) return '';
  const items = shown.map(h => `<li class="level${h.level}"><a href="#${h.id}">${escapeHtml(h.text)}</a></li>`);
  return `<nav class="here" aria-label="On this page"><p>On this page</p><ul>${items.join('')}</ul></nav>`;
}

function feet({previous, next, sourcePage}, to) {
  const link = (other, words, kind) => other
    ? `<a class="${kind}" href="${to(other.page)}"><span>${words}</span> ${escapeHtml(other.title)}</a>` : '<span></span>';
  const source = sourcePage ? `<p class="origin"><a href="${to(sourcePage)}">The source of this page</a></p>` : '';
  if (!previous && !next) return source;
  return `<nav class="turn" aria-label="Pages before and after">${link(previous, 'Before', 'previous')}${link(next, 'Next', 'next')}</nav>${source}`;
}

// base: the way from the page to the top of the site. source: a page of source text.
export function pageOf({name, title, html, headings, navigation, base = '.', source = false, ...more}) {
  const to = page => base === '.' ? page : `${base}/${page}`;
  const links = more.chapter ? [
    more.chapter.page !== name ? `<a href="${to(more.chapter.page)}">Lesson ${more.chapter.number}</a>` : '',
    more.chapter.lab && more.chapter.lab !== name ? `<a href="${to(more.chapter.lab)}">Lab ${more.chapter.number}</a>` : '',
    more.chapter.deck ? `<a href="${to(more.chapter.deck)}">Slides</a>` : ''].filter(l => l !== '') : [];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title)}</title>
<link rel="icon" href="${to('site/icon.svg')}" type="image/svg+xml">
${html.includes('class="katex"') ? `<link rel="stylesheet" href="${to('site/katex/katex.css')}">\n` : ''}<link rel="stylesheet" href="${to('site/style.css')}">
<script>try{const t=localStorage.getItem('book-colours');if(t)document.documentElement.dataset.colours=t}catch(e){}</script>
<script defer src="${to('site/page.js')}"></script>
${html.includes('class="live"') ? `<script defer src="${to('site/live.js')}"></script>` : ''}
</head>
<body data-base="${base}" data-page="${name}"${source ? ' class="of-source"' : ''}>
<a class="skip" href="#content">To the content</a>
<header class="bar">
<a class="home" href="${to('index.html')}"><svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true"><circle cx="12" cy="12" r="8" fill="none" stroke="currentColor" stroke-width="2.5"/><circle cx="12" cy="4" r="3.2"/><circle cx="19" cy="16" r="3.2"/><circle cx="5" cy="16" r="3.2"/></svg> ringsmith</a>
<div class="search" role="search"><input type="search" id="search" placeholder="Search" aria-label="Search the book" autocomplete="off" hidden><div id="found" role="listbox" aria-label="Found" hidden></div></div>
<button type="button" id="colours" hidden aria-label="Light or dark">◐</button>
</header>
<div class="columns">
<nav class="chapters" aria-label="Chapters"><details id="menu"><summary>Chapters</summary>${chapterList(navigation, name, to)}</details></nav>
<main id="content">${links.length > 0 ? `<p class="links">${links.join('')}</p>` : ''}
${html}
${feet(more, to)}
</main>
${source ? '' : headingList(headings)}
</div>
</body>
</html>
`;
}
