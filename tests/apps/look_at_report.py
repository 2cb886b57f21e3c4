#!/usr/bin/env python3
"""Looks at the report.html of a run in headless Chromium: at 400 and 1400 pixels, in light and dark.

    look_at_report.py build/release [PICTURES]      exits 0, or 1 with a line for each fault, or 77 without a browser

Two ranks train under a folder whose name is markup. Then, for each width and scheme: nothing is on the console, nothing
is wider than the page, no text is too small or overlaps another, nothing was fetched, and every curve and bar is drawn
at the values in the run's files: the script below reads the drawing back (path, ticks), this program reads the files.
Finally, the page is broken in five ways, and each fault must be detected. PICTURES: a folder for screenshots.
"""
import html
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND", "--hide-scrollbars",
         "--force-device-scale-factor=1", "--virtual-time-budget=5000"]
LOOK = """
<script>addEventListener('load', () => {
  const faults = [], say = text => faults.push(text), box = part => part.getBoundingClientRect();
  if (document.documentElement.scrollWidth > innerWidth) say('the page is ' + document.documentElement.scrollWidth + ' wide');
  for (const figure of document.querySelectorAll('figure')) {
    const own = box(figure), name = figure.querySelector('h2').textContent;
    for (const part of figure.querySelectorAll('*')) {
      if (part.closest('.scroll') && !part.matches('.scroll')) continue;
      if (part.closest('defs')) continue;
      const b = box(part);
      if (b.width && (b.left < own.left - 1 || b.right > own.right + 1)) { say(name + ': <' + part.tagName + '> leaves the figure'); break; }
    }
    for (const svg of figure.querySelectorAll('svg')) {
      if (!svg.getAttribute('aria-label')) say(name + ': no text alternative');
      const texts = [...svg.querySelectorAll('text')].map(t => [box(t), t.textContent]);
      texts.forEach(([a, first], i) => texts.slice(i + 1).forEach(([b, second]) => {
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
          say(name + ': "' + first + '" lies on "' + second + '"');
      }));
    }
  }
  for (const part of document.querySelectorAll('main *'))
    if (part.childNodes.length && [...part.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) &&
        parseFloat(getComputedStyle(part).fontSize) < 12) { say('text of ' + getComputedStyle(part).fontSize); break; }
  const fetched = performance.getEntriesByType('resource').map(e => e.name);
  if (fetched.length) say('fetched ' + fetched);
  const brightness = colour => colour.match(/[0-9.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 3;
  const paper = brightness(getComputedStyle(document.body).backgroundColor), ink = brightness(getComputedStyle(document.body).color);
  if (Math.abs(paper - ink) < 150) say('text and paper are alike');
  const loss = document.querySelector('#loss svg'), frame = box(loss);
  loss.dispatchEvent(new PointerEvent('pointermove', {clientX: frame.right - 11, clientY: frame.top + 60}));
  const tip = document.querySelector('#loss .tip');
  const curves = [...document.querySelectorAll('path[data-series]')].map(path => ({
    series: path.dataset.series, d: path.getAttribute('d'),
    ticks: [...path.closest('svg').querySelectorAll('[data-tick]')].map(t => [Number(t.dataset.tick), Number(t.dataset.at)])}));
  const bars = [...document.querySelectorAll('rect[data-span]')].map(r => ({...r.dataset,
    x: Number(r.getAttribute('x')), width: Number(r.getAttribute('width'))}));
  parent.postMessage(JSON.stringify({faults, curves, bars, dark: paper < 80, width: innerWidth, tip: tip ? tip.textContent : '',
    bold: document.querySelectorAll('b.hostile').length, rows: document.querySelectorAll('#operations tbody tr').length,
    facts: document.querySelector('#facts').textContent}), '*');
});</script>
"""
# A window is at least 500 pixels wide, but a frame in it may be narrower.
FRAME = """<!doctype html><body style="margin: 0"><pre id="findings"></pre><script>
addEventListener('message', event => { document.getElementById('findings').textContent = event.data; });</script>
<iframe src="page.html" style="border: 0; width: %dpx; height: 900px; color-scheme: light dark"></iframe>
"""


def look(browser, page, width, dark, picture=None):
    """Returns the script's findings in one page, and the page's console output."""
    with tempfile.TemporaryDirectory(prefix="report.") as folder:
        copy = pathlib.Path(folder) / "page.html"
        copy.write_text(page.replace("</body>", LOOK + "</body>"), encoding="utf-8")
        frame = copy.with_name("frame.html")
        frame.write_text(FRAME % width, encoding="utf-8")
        command = [browser, *FLAGS, "--window-size=1400,900", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                   f"--user-data-dir={folder}/profile", "--enable-logging=stderr", "--v=0"]
        done = subprocess.run([*command, "--dump-dom", frame.as_uri()], capture_output=True, text=True, timeout=120)
        if picture:
            copy.write_text(page, encoding="utf-8")
            subprocess.run([*command, f"--window-size={width},{2400 if width > 700 else 4200}", f"--screenshot={picture}",
                            copy.as_uri()], capture_output=True, timeout=120)
    match = re.search(r'<pre id="findings">(.+?)</pre>', done.stdout, re.S)
    console = re.findall(r"CONSOLE[^\]]*\] (.*)", done.stderr)
    found = json.loads(html.unescape(match.group(1))) if match else {"faults": ["the script of the page did not run"]}
    found["faults"] += [f"on the console: {line}" for line in console]
    return found


def points(curve):
    """Returns the drawn path in units of the axis, computed from the positions of the ticks."""
    (low, at_low), (high, at_high) = curve["ticks"][0], curve["ticks"][-1]
    ys = [float(y) for y in re.findall(r"[ML][-0-9.e]+ ([-0-9.e]+)", curve["d"])]
    unit = (high - low) / (at_high - at_low)
    return [low + (y - at_low) * unit for y in ys], abs(unit)


def same(name, drawn, expected, unit, faults):
    """Compares a drawn curve with the values in the file. unit: the value of one pixel. The path has
    three decimals of a pixel."""
    if len(drawn) != len(expected):
        faults.append(f"{name}: {len(drawn)} points are drawn, the file has {len(expected)}")
        return
    for i, (a, b) in enumerate(zip(drawn, expected)):
        if not math.isclose(a, b, rel_tol=1e-6, abs_tol=2e-3 * unit):
            faults.append(f"{name}: point {i} is drawn at {a}, the file says {b}")
            return


def compare(found, run):
    """Faults of the drawing, compared with metrics.jsonl, trace.json and run.json."""
    faults = list(found["faults"])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    checks = [line for line in lines if "validation_loss" in line]
    curves = {curve["series"]: curve for curve in found["curves"]}
    parts = ["data_ms", "forward_ms", "backward_ms", "exposed_ms", "optimizer_ms"]
    expected = {key: [step[key] for step in steps] for key in ["loss", "lr", "resident_bytes"]}
    expected["rate"] = [step["samples_per_s"] for step in steps]
    expected["validation_loss"] = [check["validation_loss"] for check in checks]
    expected["validation_accuracy"] = [check["validation_accuracy"] for check in checks]
    for key, values in expected.items():
        if key not in curves:
            faults.append(f"{key} is not drawn")
        else:
            drawn, unit = points(curves[key])
            same(key, drawn, values, unit, faults)
    below = [0.0] * len(steps)
    for part in [*parts, "other_ms"]:
        values = [step[part] if part in step else max(0, step["step_ms"] - sum(step[p] for p in parts)) for step in steps]
        below = [a + b for a, b in zip(below, values)]
        drawn, unit = points(curves[part])
        same(part, drawn[:len(steps)], below, unit, faults)

    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    step = next(e for e in spans if e["name"] == "step" and e["pid"] == 0 and
                f"Step {e['args']['step']}," in found["page_text"])
    begin, end = step["ts"], step["ts"] + step["dur"]
    wanted = sorted((e["pid"], round((max(e["ts"], begin) - begin) / 1e3, 5), round((min(e["ts"] + e["dur"], end) - max(e["ts"], begin)) / 1e3, 5))
                    for e in spans if e["cat"] not in ("frame", "operation") and e["dur"] > 0 and e["ts"] < end and e["ts"] + e["dur"] > begin)
    drawn = sorted((int(b["rank"]), round(float(b["begin"]), 5), round(float(b["ms"]), 5)) for b in found["bars"])
    if [w[0] for w in wanted] != [d[0] for d in drawn] or any(abs(a - b) > 2e-5 for w, d in zip(wanted, drawn) for a, b in zip(w, d)):
        faults.append(f"the timeline has other spans than trace.json: {len(drawn)} for {len(wanted)}")
    if not any(b["span"] == "bucket 0" and b["rank"] == "1" for b in found["bars"]):
        faults.append("rank 1 has no bucket 0")
    long = [b for b in found["bars"] if float(b["ms"]) > 0]
    scale = max(b["width"] / float(b["ms"]) for b in long if b["width"] > 5)
    for b in long:  # a bar's width is proportional to its time, but at least one pixel
        if abs(b["width"] - max(1, scale * float(b["ms"]))) > 0.1:
            faults.append(f"a bar of {b['ms']} ms is {b['width']} pixels wide")
            break

    facts = json.loads((run / "run.json").read_text())
    if found["rows"] != len(facts["operations"]["rows"]) or found["rows"] < 5:
        faults.append(f"{found['rows']} operations are in the table")
    if found["bold"] or "<b class=\"hostile\">" not in found["facts"]:
        faults.append("the folder's name has become markup, or is not shown")
    if f"loss  {float('%.4g' % steps[-1]['loss']):g}" not in found["tip"]:
        faults.append(f"the value under the pointer is not the last loss: {found['tip']!r}")
    return faults


def main():
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("report: NOT RUN: no chromium (apt install chromium)")
        return 77
    build, bad = pathlib.Path(sys.argv[1]), 0
    pictures = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory(prefix="report-run.") as folder:
        run = pathlib.Path(folder) / 'a <b class="hostile">&amp;'
        done = subprocess.run([ROOT / "tests/support/mpirun.sh", "2", build / "bin/train_mlp", "--draw", "2000", "--steps", "80",
                               "--eval-every", "15", "--report", "--progress", "off", "--bucket-cap-mb", "0.2",
                               "--run-dir", run], capture_output=True, text=True, timeout=300)
        if done.returncode:
            print(f"report: train_mlp failed: {done.stderr.strip()[-500:]}", file=sys.stderr)
            return 1
        page = (run / "report.html").read_text(encoding="utf-8")
        for address in re.findall(r"""(?:https?:|\bsrc=|\bhref=|@import|url\((?!#))[^\s'"]*""", page):
            if address != "http://www.w3.org/2000/svg":
                print(f"report: names an address: {address}", file=sys.stderr)
                bad += 1
        for width in (400, 1400):
            for dark in (False, True):
                name = f"{width}-{'dark' if dark else 'light'}"
                found = look(browser, page, width, dark, pictures / f"report-{name}.png" if pictures else None)
                found["page_text"] = page_text(page)
                faults = compare(found, run) if found.get("curves") else found["faults"]
                if found.get("width") != width or found.get("dark") != dark:
                    faults.append(f"looked at {found.get('width')} pixels, dark: {found.get('dark')}")
                for fault in faults:
                    print(f"report, {name}: {fault}", file=sys.stderr)
                print(f"report, {name}: {len(found.get('curves', []))} curves, {len(found.get('bars', []))} bars, {len(faults)} faults")
                bad += len(faults)

        # Each of these pages has one planted fault, which must be detected; otherwise this test is
        # blind.
        for name, old, new in [("an error in the script", "const steps = data.steps,", "nothing(); const steps = data.steps,"),
                               ("a request", "<main>", '<main><img alt="" src="https://example.com/x.png">'),
                               ("an overflow", "<main>", '<main><div style="width: 1500px">wide</div>'),
                               ("another value", '"series":{"loss":[', '"series":{"loss":[9.5,'),
                               ("a log axis", "const y = v => bottom - (v - from)", "const y = v => bottom - Math.sqrt(v - from)")]:
            assert old in page, old
            found = look(browser, page.replace(old, new, 1), 400, False)
            found["page_text"] = page_text(page)
            if not (compare(found, run) if found.get("curves") else found["faults"]):
                print(f"report: {name} was not noticed", file=sys.stderr)
                bad += 1
    return 1 if bad else 0


def page_text(page):
    """Returns the words of the timeline, which the script writes."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    return f"Step {data['timeline']['step']}," if data["timeline"] else ""


if __name__ == "__main__":
    sys.exit(main())
