#!/usr/bin/env bash
# amp.sh [BUILD_DIR] [ROUNDS] [OPTION...]: compares training a GPT on the CPU in bf16 with f32.
#
# Runs train_gpt on one rank, with four layers of GPT-2's width (768). Runs alternate: --amp off, and
# --amp bf16 with every kind of product that this processor has (only `widened` if it has no
# instructions for bf16). Figures are medians of ROUNDS (default 3); a ratio is the median of the
# ratios within each round. OPTIONs are passed to train_gpt.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../../build/release}
rounds=${2:-3}
shift $(($# < 2 ? $# : 2))
train=$dir/bin/train_gpt
[ -x "$train" ] || { echo "amp.sh: no train_gpt in '$dir/bin': run make build first" >&2; exit 6; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# one KIND: prints tokens per second, including the first steps, which fill caches.
one() {
  local options=(--amp bf16 --bf16-products "$1")
  [ "$1" != f32 ] || options=(--amp off)
  rm -rf "$work/run"
  "$train" --data "$here/../../README.md" --layers 4 --dim 768 --heads 12 --context 128 --batch 16 --steps 8 \
    --eval-every 0 --validation-windows 1 --sample 0 --no-trace --progress off --run-dir "$work/run" --json \
    "${options[@]}" "${extra[@]}" 2> "$work/errors" | sed -nE 's/.*"tokens_per_s": ?([0-9.]+).*/\1/p'
}
extra=("$@")
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

kinds=(f32 widened)
for kind in avx512_bf16 amx_bf16; do
  [ -z "$(one $kind)" ] || kinds+=($kind)
done
for ((round = 1; round <= rounds; ++round)); do
  for kind in "${kinds[@]}"; do
    rate=$(one "$kind")
    [ -n "$rate" ] || { cat "$work/errors" >&2; exit 1; }
    echo "$rate" >> "$work/$kind"
  done
done
echo "# a GPT in bf16 and f32, one rank, one thread, medians of $rounds alternating rounds"
echo "# $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
for kind in "${kinds[@]}"; do
  printf '%-14s %10.0f tokens/s   %5.2f x f32\n' "$kind" "$(median < "$work/$kind")" \
    "$(paste "$work/$kind" "$work/f32" | awk '{ print $1 / $2 }' | median)"
done
