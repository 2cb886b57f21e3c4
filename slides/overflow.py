#!/usr/bin/env python3
"""Looks at every built deck in headless Chromium: nothing leaves its slide, no figure is missing or small.

    overflow.py build/slides            exits 0, or 1 with a line for each fault, or 77 without a browser

A script is added to a copy of the page. It compares the rectangle of everything in a slide with the slide's own,
and asks each picture for its size; its findings are read from the page that Chromium prints (--dump-dom).
"""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--allow-file-access-from-files", "--window-size=1280,720", "--virtual-time-budget=5000"]
LOOK = """
<script>addEventListener('load', () => {
  const faults = [], sections = [...document.querySelectorAll('section')];
  document.querySelectorAll('svg[data-marpit-svg]').forEach(svg => svg.style.display = 'block');
  sections.forEach((section, i) => {
    const box = section.getBoundingClientRect(), say = text => faults.push([i + 1, text]);
    if (box.width < 10) say('is not shown');
    if (section.scrollHeight > section.clientHeight + 1 || section.scrollWidth > section.clientWidth + 1)
      say('holds more than fits: ' + section.scrollWidth + 'x' + section.scrollHeight);
    for (const part of section.querySelectorAll('*')) {
      const own = part.getBoundingClientRect();
      if (own.width && (own.right > box.right + 1 || own.bottom > box.bottom + 1 || own.left < box.left - 1 ||
                        own.top < box.top - 1)) { say('<' + part.tagName.toLowerCase() + '> leaves it: ' +
                        part.textContent.trim().slice(0, 60)); break; }
      if (part.tagName == 'PRE' && part.scrollWidth > part.clientWidth + 1) { say('a line is too long: ' +
                        part.textContent.trim().slice(0, 60)); break; }
    }
    for (const picture of section.querySelectorAll('img')) {
      if (!picture.complete || !picture.naturalWidth) say('picture is missing: ' + picture.getAttribute('src'));
      const own = picture.getBoundingClientRect();
      const scale = Math.min(own.width / picture.naturalWidth, own.height / picture.naturalHeight);
      const wide = scale * picture.naturalWidth / box.width, high = scale * picture.naturalHeight / box.height;
      if (wide < 0.8 && high < 0.6) say('picture is small: ' + Math.round(100 * wide) + ' % of the width, ' +
                        Math.round(100 * high) + ' % of the height: ' + picture.getAttribute('src'));
    }
    const footer = section.querySelector('footer');
    if (footer) for (const part of section.children)
      if (part != footer && part.getBoundingClientRect().bottom > footer.getBoundingClientRect().top + 1)
        { say('runs into the footer: ' + part.textContent.trim().slice(0, 60)); break; }
  });
  const out = document.createElement('pre');
  out.id = 'findings';
  out.textContent = JSON.stringify({slides: sections.length, faults});
  document.body.appendChild(out);
});</script>
"""


def findings(browser, page, folder):
    """What the script found in one page."""
    copy = page.with_name(page.stem + ".look.html")
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", LOOK + "</body>"), encoding="utf-8")
    try:
        done = subprocess.run([browser, *FLAGS, f"--user-data-dir={folder}", "--dump-dom", copy.resolve().as_uri()],
                              capture_output=True, text=True, timeout=120)
    finally:
        copy.unlink()
    match = re.search(r'<pre id="findings">(.*?)</pre>', done.stdout, re.S)
    if not match:
        raise SystemExit(f"overflow: {browser} did not show {page}: {done.stderr.strip()[-300:]}")
    return json.loads(html.unescape(match.group(1)))


def main():
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("slides: NOT RUN: no chromium (apt install chromium)")
        return 77
    pages = sorted(p for p in pathlib.Path(sys.argv[1]).glob("*.html") if not p.name.endswith(".look.html"))
    if not pages:
        print(f"overflow: no decks in {sys.argv[1]}: make slides builds them", file=sys.stderr)
        return 1
    bad = 0
    for page in pages:
        with tempfile.TemporaryDirectory(prefix="overflow.") as folder:
            found = findings(browser, page, folder)
        for slide, text in found["faults"]:
            print(f"{page.stem}, slide {slide}: {text}", file=sys.stderr)
        bad += len(found["faults"])
        print(f"{page.stem}: {found['slides']} slides, {len(found['faults'])} faults")
        bad += found["slides"] == 0
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
