#!/usr/bin/env bash
# build.sh FOLDER [NN...]: every deck (or those) as HTML and PDF in FOLDER, with the lessons' figures beside them.
set -eu
cd "$(dirname "$0")/.."
out=$1
shift
[ -x slides/node_modules/.bin/marp ] || npm --prefix slides ci --no-audit --no-fund --loglevel=error
mkdir -p "$out/figures"
cp lessons/figures/*.svg "$out/figures/"
rm -f "$out"/*.md
for deck in slides/[0-9][0-9]-*.md; do
  name=$(basename "$deck" .md)
  [ $# -eq 0 ] || [[ " $* " == *" ${name%%-*} "* ]] || continue
  sed 's@(\.\./lessons/figures/@(figures/@' "$deck" > "$out/$name.md"
done
# One call for all decks: starting the tool and the browser takes longer than a deck.
marp=(slides/node_modules/.bin/marp --input-dir "$out" --output "$out" --theme-set slides/theme.css --no-stdin)
"${marp[@]}" --quiet
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -n "$browser" ]; then
  CHROME_NO_SANDBOX=1 "${marp[@]}" --quiet --pdf --pdf-notes --allow-local-files --browser-path "$browser"
else
  echo "slides: no PDF: no chromium (apt install chromium)"
fi
rm -f "$out"/*.md
