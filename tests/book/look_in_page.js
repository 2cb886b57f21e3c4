// Evaluated in a page by look.mjs, once for each width and scheme. This expression returns a list
// of faults that a reader would see.
(() => {
  const faults = [], seen = new Set();
  const say = (kind, text) => { if (!seen.has(kind + text)) { seen.add(kind + text); if (faults.length < 12) faults.push(`${kind}: ${text}`); } };
  const clip = text => text.trim().replace(/\s+/g, ' ').slice(0, 60);

  // ---- width ----
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) {
    say('wide', `the page is ${document.documentElement.scrollWidth} wide`);
    for (const part of document.querySelectorAll('main *')) {
      const scrolls = part.parentElement.closest('pre, .wide, .live-drawing');
      if (!scrolls && part.getBoundingClientRect().right > width + 1) say('wide', `<${part.tagName.toLowerCase()}> ${clip(part.textContent)}`);
    }
  }

  // ---- formulas and claims: nothing is beyond the edge, scrolling or not ----
  for (const part of document.querySelectorAll('.formulas, [data-page="claims.html"] .wide'))
    if (part.scrollWidth > part.clientWidth + 1) say('cut', `${part.scrollWidth - part.clientWidth} pixels of: ${clip(part.textContent)}`);

  // ---- pictures ----
  for (const picture of document.images)
    if (picture.complete && picture.naturalWidth === 0 && picture.getAttribute('loading') !== 'lazy') say('picture', `is missing: ${picture.getAttribute('src')}`);

  // ---- contrast ----
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const cache = new Map();
  const rgba = colour => {  // any CSS colour
    if (!cache.has(colour)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = '#000';
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      cache.set(colour, [r, g, b, a / 255]);
    }
    return cache.get(colour);
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };

  const groundOf = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const style = getComputedStyle(e);
      // In a drawing the background of a text is its group's box.
      if (e.tagName === 'text') {
        const boxes = [...e.parentElement.children].filter(c => ['rect', 'circle'].includes(c.tagName));
        const own = e.getBoundingClientRect(), middle = [own.left + own.width / 2, own.top + own.height / 2];
        const box = boxes.find(c => { const b = c.getBoundingClientRect(); return b.left <= middle[0] && b.right >= middle[0] && b.top <= middle[1] && b.bottom >= middle[1]; });
        if (box && getComputedStyle(box).fill !== 'none') layers.push(rgba(getComputedStyle(box).fill));
        continue;
      }
      const colour = rgba(style.backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    let ground = [255, 255, 255, 1];
    for (const layer of layers.reverse()) ground = over(layer, ground);
    return ground;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const done = new Set();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (done.has(element) || node.textContent.trim() === '' || ['SCRIPT', 'STYLE', 'title', 'OPTION', 'NOSCRIPT'].includes(element.tagName)) continue;
    done.add(element);
    if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true}) || element.closest('a.skip, .anchor')) continue;
    const style = getComputedStyle(element), drawn = element.closest('svg') !== null;
    const ground = groundOf(element);
    const ink = over(rgba(drawn ? style.fill : style.color), ground);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    const is = contrast(ink, ground);
    if (is < least) say('contrast', `${is.toFixed(2)}, less than ${least}: '${clip(node.textContent)}' <${element.tagName.toLowerCase()} class="${element.getAttribute('class') ?? ''}">`);
  }
  return faults;
})()
