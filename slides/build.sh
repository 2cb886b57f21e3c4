#!/usr/bin/env bash
# build.sh FOLDER [NN...]: every deck (or those) as HTML and PDF in FOLDER, with the lessons' figures beside them.
set -eu
cd "$(dirname "$0")/.."
out=$1
shift
[ -x slides/node_modules/.bin/marp ] || npm --prefix slides ci --no-audit --no-fund --loglevel=error
mkdir -p "$out/figures"
cp lessons/figures/*.svg "$out/figures/"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
for deck in slides/[0-9][0-9]-*.md; do
  name=$(basename "$deck" .md)
  [ $# -eq 0 ] || [[ " $* " == *" ${name%%-*} "* ]] || continue
  sed 's@(\.\./lessons/figures/@(figures/@' "$deck" > "$out/$name.md"
  slides/node_modules/.bin/marp --theme-set slides/theme.css --html=false --no-stdin --quiet -o "$out/$name.html" "$out/$name.md"
  if [ -n "$browser" ]; then
    CHROME_PATH=$browser CHROME_NO_SANDBOX=1 slides/node_modules/.bin/marp --theme-set slides/theme.css --no-stdin --quiet \
      --allow-local-files --pdf --pdf-notes --browser-path "$browser" -o "$out/$name.pdf" "$out/$name.md"
  else
    echo "slides: $name.pdf NOT MADE: no chromium (apt install chromium)"
  fi
  rm "$out/$name.md"
done
