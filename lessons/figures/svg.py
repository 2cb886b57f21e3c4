"""A small SVG writer for the lessons' figures: boxes, words, arrows, in colours for light and dark.

    picture = Picture(600, 300, "what it shows, for those who cannot see it")
    picture.box(20, 20, 120, 40, "rank 0", "tone0");  picture.arrow(140, 40, 200, 40);  picture.save(path)

Classes of shapes: box, empty, tone0 to tone3 (filled), line, dash, curve1 to curve3; of text: title, strong, quiet,
code. Numbers are written with one decimal, so that the same picture is the same file.
"""
import html

STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 14px; fill: #1f2430; }
  text.code { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 13px; }
  text.title { font-size: 17px; font-weight: 600; }
  text.quiet { fill: #6d7585; font-size: 12px; }
  text.strong { font-weight: 600; }
  .paper { fill: #ffffff; } .box { fill: #f1f3f7; stroke: #d5d9e2; } \
.empty { fill: none; stroke: #6d7585; stroke-dasharray: 4 3; }
  .tone0 { fill: #cfe5f7; stroke: #3b93cf; } .tone1 { fill: #f7d3e6; stroke: #cf3b93; }
  .tone2 { fill: #dff0c8; stroke: #78a82a; } .tone3 { fill: #fbe3c6; stroke: #cf853b; }
  .line { fill: none; stroke: #6d7585; stroke-width: 1.5; } .dash { stroke-dasharray: 5 3; } .head { fill: #6d7585; }
  .curve1, .curve2, .curve3 { fill: none; stroke-width: 2.5; }
  .curve1 { stroke: #cf3b93; } .curve2 { stroke: #78a82a; } .curve3 { stroke: #3b93cf; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8ebf2; } text.quiet { fill: #99a2b3; }
    .paper { fill: #15181f; } .box { fill: #20252f; stroke: #343b49; } .empty { stroke: #99a2b3; }
    .tone0 { fill: #173a54; } .tone1 { fill: #54173a; } .tone2 { fill: #2f4414; } .tone3 { fill: #543517; }
    .line { stroke: #99a2b3; } .head { fill: #99a2b3; }
  }
"""


class Picture:
    def __init__(self, width, height, title):
        self.size, self.title, self.parts = (width, height), title, []

    def add(self, text):
        self.parts.append(text)

    def text(self, x, y, words, kind="", anchor="middle"):
        self.add(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>')

    def box(self, x, y, width, height, words="", kind="box", text_kind=""):
        self.add(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4"/>')
        lines = words.split("\n") if words else []
        for n, line in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + 5 + 18 * (n - (len(lines) - 1) / 2), line, text_kind)

    def line(self, points, kind="line", head=False):
        path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.add(f'<path class="{kind}" d="{path}"' + (' marker-end="url(#head)"' if head else "") + "/>")

    def arrow(self, x1, y1, x2, y2, kind="line"):
        self.line([(x1, y1), (x2, y2)], kind, head=True)

    def save(self, path):
        width, height = self.size
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                       f'height="{height}" role="img">\n<title>{html.escape(self.title)}</title>\n'
                       f'<style>{STYLE}</style>\n'
                       '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
                       'markerUnits="userSpaceOnUse" orient="auto">'
                       '<path class="head" d="M0 0.8 L8 4 L0 7.2 z"/></marker></defs>\n'
                       '<rect class="paper" width="100%" height="100%"/>\n' + "\n".join(self.parts) + "\n</svg>\n")
