#!/usr/bin/env bash
# training.sh [BUILD_DIR] [ROUNDS]: training throughput beside PyTorch's, one thread a rank.
#
# The same model, batch and synthetic data on both sides (peers/torch_ddp_*.py), runs in alternation,
# medians over the rounds; a ratio is the median of the ratios within each round, so that a slow
# minute of the machine hits both sides. PyTorch comes twice: as the distribution delivers it, and
# tuned. (OpenBLAS 0.3.21 picks AVX2 kernels on AMD processors that have AVX-512; ringsmith asks for
# the AVX-512 ones by itself, a PyTorch user must know OPENBLAS_CORETYPE.)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../../build/release}
rounds=${2:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

declare -A steps=([gpt]=15 [mlp]=100) warmup=([gpt]=3 [mlp]=10) unit=([gpt]=tokens [mlp]=samples)
tuned=(env OPENBLAS_CORETYPE=SkylakeX ATEN_CPU_CAPABILITY=avx512)

peers="ours"
if /usr/bin/python3 -c 'import torch.distributed' 2> /dev/null; then
  peers="torch ours"
  if grep -q avx512f /proc/cpuinfo; then peers="torch tuned ours"; fi
else
  echo "# no PyTorch here (Debian, Ubuntu: apt-get install python3-torch python3-numpy): only our own figures"
fi

# one PEER MODEL WORLD: prints the program's line of results.
one() {
  local peer=$1 model=$2 world=$3
  case $peer in
    ours) RINGSMITH_DEADLINE=120 "$here/../support/mpirun.sh" "$world" "$dir/bin/train_$model" --bench \
            --bench-steps "${steps[$model]}" --bench-warmup "${warmup[$model]}" ;;
    torch) timeout 120 "$here/peers/torch_run.sh" "$world" "torch_ddp_$model.py" \
             --steps "${steps[$model]}" --warmup "${warmup[$model]}" ;;
    tuned) timeout 120 "${tuned[@]}" "$here/peers/torch_run.sh" "$world" "torch_ddp_$model.py" \
             --steps "${steps[$model]}" --warmup "${warmup[$model]}" ;;
  esac 2> "$work/errors" || { cat "$work/errors" >&2; return 1; }
}

for ((round = 1; round <= rounds; ++round)); do
  for model in gpt mlp; do
    for world in 1 2; do
      for peer in $peers; do
        line=$(one "$peer" "$model" "$world" | grep 'ms/step')
        echo "$line" >> "$work/$peer.$model.$world.lines"
        sed -E "s/.*\| ([0-9.]+) ${unit[$model]}\/s.*/\1/" <<< "$line" >> "$work/$peer.$model.$world"
      done
    done
  done
done

# median of the numbers on standard input
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
rate() { median < "$work/$1.$2.$3"; }
ratio() { paste "$work/$1" "$work/$2" | awk '{ print $1 / $2 }' | median; }
cell() { printf '%10s' "$1"; }

echo "# training throughput, one thread a rank, medians of $rounds alternating rounds, $(nproc) cores"
echo "# $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1); tuned = ${tuned[*]:1}"
printf '%-22s' workload
for peer in $peers; do cell "$peer"; done
for peer in $peers; do [ "$peer" = ours ] || cell "/ $peer"; done
echo
for model in gpt mlp; do
  for world in 1 2; do
    printf '%-22s' "$model, $world rank(s), ${unit[$model]}/s"
    for peer in $peers; do cell "$(printf '%.0f' "$(rate "$peer" "$model" "$world")")"; done
    for peer in $peers; do
      [ "$peer" = ours ] || cell "$(printf '%.2fx' "$(ratio "ours.$model.$world" "$peer.$model.$world")")"
    done
    echo
  done
done
for model in gpt mlp; do
  printf '%-22s' "$model, 2 ranks over 1"
  for peer in $peers; do cell "$(printf '%.2fx' "$(ratio "$peer.$model.2" "$peer.$model.1")")"; done
  echo
done
echo "# one line of each, from the last round:"
for model in gpt mlp; do
  for world in 1 2; do
    for peer in $peers; do echo "# $peer | $(tail -1 "$work/$peer.$model.$world.lines")"; done
  done
done
