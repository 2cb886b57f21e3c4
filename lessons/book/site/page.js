// What every page does with JavaScript: search, the terms' sentences, colours, the list of chapters.
'use strict';
globalThis.Book = globalThis.Book ?? {};
(() => {
  const base = document.body.dataset.base;
  const escape = text => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');

  // ---- colours: as the system has them, or as chosen here ----
  const colours = document.getElementById('colours');
  const dark = () => (document.documentElement.dataset.colours ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  colours.hidden = false;
  colours.addEventListener('click', () => {
    document.documentElement.dataset.colours = dark() ? 'light' : 'dark';
    try { localStorage.setItem('book-colours', document.documentElement.dataset.colours); } catch { /* a browser that keeps nothing */ }
  });

  // ---- the chapters: open beside the text where there is room ----
  const menu = document.getElementById('menu'), wide = matchMedia('(min-width: 1000px)');
  const fit = () => { menu.open = wide.matches; };
  fit();
  wide.addEventListener('change', fit);
  const list = menu.parentElement, here = menu.querySelector('[aria-current]');
  if (here) list.scrollTop = here.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 2;

  // ---- terms: their sentence on hover and focus; Escape closes it ----
  const tip = document.createElement('div');
  tip.id = 'tip';
  tip.role = 'tooltip';
  tip.hidden = true;
  document.body.append(tip);
  let shown = null;
  function show(term) {
    shown = term;
    tip.textContent = term.dataset.says;
    tip.hidden = false;
    term.setAttribute('aria-describedby', 'tip');
    const at = term.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - own.width - 8));
    const above = at.top > own.height + 12;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above ? at.top - own.height - 6 : at.bottom + 6) + scrollY}px`;
  }
  function hide() {
    shown?.removeAttribute('aria-describedby');
    shown = null;
    tip.hidden = true;
  }
  for (const [on, off] of [['pointerover', 'pointerout'], ['focusin', 'focusout']]) {
    document.addEventListener(on, event => { const term = event.target.closest?.('a.term'); if (term) show(term); });
    document.addEventListener(off, event => { if (event.target.closest?.('a.term') === shown) hide(); });
  }
  document.addEventListener('keydown', event => { if (event.key === 'Escape') hide(); });

  // ---- search: every word must be there; titles count most ----
  const input = document.getElementById('search'), found = document.getElementById('found');
  let sections = null, asked = false;
  input.hidden = false;
  Book.index = list => {
    sections = list.map(([page, title, heading, text]) => ({page, title, heading, text, low: `${title} ${heading} ${text}`.toLowerCase()}));
    answer();
  };
  function fetchIndex() {
    if (asked) return;
    asked = true;
    const script = document.createElement('script');
    script.src = `${base}/site/index.js`;
    document.head.append(script);
  }
  function score(section, words) {
    let sum = 0;
    for (const word of words) {
      const times = section.low.split(word).length - 1;
      if (times === 0) return 0;
      const heads = `${section.heading} ${section.title}`.toLowerCase();
      sum += Math.min(times, 8) + (section.heading.toLowerCase().includes(word) ? 30 : heads.includes(word) ? 12 : 0);
    }
    return sum / Math.sqrt(400 + section.text.length);
  }
  function excerpt(text, words) {
    const at = Math.max(0, text.toLowerCase().indexOf(words[0]) - 40);
    const piece = escape(text.slice(at, at + 130));
    const pattern = new RegExp(`(${words.map(w => escape(w).replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|')})`, 'gi');
    return (at > 0 ? '… ' : '') + piece.replace(pattern, '<mark>$1</mark>') + ' …';
  }
  function answer() {
    const words = input.value.toLowerCase().split(/\s+/).filter(w => w.length > 1);
    found.hidden = words.length === 0;
    if (words.length === 0) return;
    if (!sections) { found.innerHTML = '<p>Loading …</p>'; return; }
    const best = sections.map(section => ({section, score: score(section, words)})).filter(s => s.score > 0)
      .sort((a, b) => b.score - a.score).slice(0, 12);
    found.innerHTML = best.length === 0 ? `<p>Nothing has ${words.map(w => `“${escape(w)}”`).join(' and ')}.</p>` :
      best.map(({section: s}) => `<a role="option" href="${base}/${s.page}"><strong>${escape(s.heading || s.title)}</strong>` +
        `<span>${s.heading ? escape(s.title) : ''}</span><span class="excerpt">${excerpt(s.text, words)}</span></a>`).join('');
  }
  input.addEventListener('focus', fetchIndex);
  input.addEventListener('input', () => { fetchIndex(); answer(); });
  const links = () => [...found.querySelectorAll('a')];
  document.querySelector('.search').addEventListener('keydown', event => {
    const all = links(), at = all.indexOf(document.activeElement);
    if (event.key === 'ArrowDown' && all.length > 0) { all[Math.min(at + 1, all.length - 1)].focus(); event.preventDefault(); }
    if (event.key === 'ArrowUp' && at >= 0) { (at === 0 ? input : all[at - 1]).focus(); event.preventDefault(); }
    if (event.key === 'Enter' && event.target === input && all.length > 0) all[0].click();
    if (event.key === 'Escape') { input.value = ''; found.hidden = true; input.focus(); }
  });
  document.addEventListener('click', event => { if (!event.target.closest('.search')) found.hidden = true; });
  document.addEventListener('keydown', event => {
    if (event.key === '/' && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { input.focus(); event.preventDefault(); }
  });
})();
