#!/usr/bin/env bash
# training.sh [BUILD_DIR] [ROUNDS] [MODELS]: compares training throughput with PyTorch's, one thread per rank. MODELS:
# some of gpt, mlp, small_cnn, resnet18; default "gpt mlp".
#
# Both sides use the same model, initial values, batches and synthetic data (peers/torch_ddp_*.py). The losses that both
# print must agree, or the comparison is refused. Runs alternate, and figures are medians over the rounds. A ratio is
# the median of the ratios within each round, so that a slow minute of the machine affects both sides.
#
# Columns: torch, with OPENBLAS_CORETYPE set to fit this processor (on processors that it does not
# know, Debian's OpenBLAS uses kernels of 2004, which slow torch by a factor of 3); torch512, which
# also enables torch's own AVX-512 loops (ATEN_CPU_CAPABILITY); ours, whose matrix products need no
# OpenBLAS. Each side clears gradients in its default way: this PyTorch zeroes them, ringsmith drops
# them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../../build/release}
rounds=${2:-3}
models=${3:-gpt mlp}
[ -x "$dir/bin/train_bench" ] || { echo "training.sh: no programs in '$dir/bin': run make build first" >&2; exit 6; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

declare -A steps=([gpt]=15 [mlp]=100 [small_cnn]=40 [resnet18]=4) warmup=([gpt]=3 [mlp]=10 [small_cnn]=5 [resnet18]=1)
declare -A unit=([gpt]=tokens [mlp]=samples [small_cnn]=samples [resnet18]=samples)
declare -A script=([gpt]=torch_ddp_gpt.py [mlp]=torch_ddp_mlp.py [small_cnn]="torch_ddp_images.py --model small_cnn" [resnet18]="torch_ddp_images.py --model resnet18")
if grep -q avx512f /proc/cpuinfo; then core=SkylakeX; elif grep -q avx2 /proc/cpuinfo; then core=Haswell; else core=; fi

peers="ours"
if /usr/bin/python3 -c 'import torch.distributed' 2> /dev/null; then
  peers="torch ours"
  if grep -q avx512f /proc/cpuinfo; then peers="torch torch512 ours"; fi
else
  echo "# no PyTorch here (apt-get install python3-torch python3-numpy): only our own figures"
fi

# one PEER MODEL WORLD: runs it and prints its output.
one() {
  local peer=$1 model=$2 world=$3
  local environment=(env -u OPENBLAS_CORETYPE) program
  read -ra program <<< "${script[$model]}"
  if [ -n "$core" ]; then environment+=("OPENBLAS_CORETYPE=$core"); fi
  if [ "$peer" = torch512 ]; then environment+=(ATEN_CPU_CAPABILITY=avx512); fi
  case $peer in
    ours*) RINGSMITH_DEADLINE=120 "${environment[@]}" "$here/../support/mpirun.sh" "$world" \
             "$dir/bin/train_bench" "$model" --steps "${steps[$model]}" --warmup "${warmup[$model]}" ;;
    torch*) timeout 120 "${environment[@]}" "$here/peers/torch_run.sh" "$world" \
              "${program[@]}" --steps "${steps[$model]}" --warmup "${warmup[$model]}" ;;
  esac 2> "$work/errors" || { cat "$work/errors" >&2; exit 1; }
}

# Rank 0's first and last loss must be the same for every peer after rounding to four digits, because the rounding
# errors of 18 to 110 steps are smaller than that.
declare -A losses
check_loss() {
  local key=$1 peer=$2 found
  found=$(sed -E 's/.*\| loss //' <<< "$3")
  : "${losses[$key]:=$found}"
  awk -v a="${losses[$key]}" -v b="$found" 'BEGIN {
    split(a, x, " -> "); split(b, y, " -> ")
    for (i = 1; i <= 2; ++i) if (!((x[i] - y[i]) ^ 2 <= (0.002 * x[i]) ^ 2 + 1e-6)) exit 1
  }' || { echo "training.sh: $key: $peer's losses are $found, the first peer's ${losses[$key]}: not the same training" >&2; exit 1; }
}

for ((round = 1; round <= rounds; ++round)); do
  for model in $models; do
    for world in 1 2; do
      for peer in $peers; do
        line=$(one "$peer" "$model" "$world" | grep 'ms/step')
        check_loss "$model on $world" "$peer" "$line"
        echo "$line" >> "$work/$peer.$model.$world.lines"
        sed -E "s/.*\| ([0-9.]+) ${unit[$model]}\/s.*/\1/" <<< "$line" >> "$work/$peer.$model.$world"
      done
    done
  done
done

# median: prints the median of the numbers on standard input
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
ratio() { paste "$work/$1" "$work/$2" | awk '{ print $1 / $2 }' | median; }
cell() { printf '%11s' "$1"; }

echo "# training throughput, one thread a rank, medians of $rounds alternating rounds"
echo "# $(nproc) cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1); OPENBLAS_CORETYPE=${core:-chosen by itself}"
printf '%-26s' workload
for peer in $peers; do cell "$peer"; done
echo
for model in $models; do
  for world in 1 2; do
    printf '%-26s' "$model on $world, ${unit[$model]}/s"
    for peer in $peers; do cell "$(printf '%.0f' "$(median < "$work/$peer.$model.$world")")"; done
    echo
  done
  printf '%-26s' "$model, 2 ranks over 1"
  for peer in $peers; do cell "$(printf '%.2fx' "$(ratio "$peer.$model.2" "$peer.$model.1")")"; done
  echo
done
for pair in "ours torch" "ours torch512"; do
  read -r a b <<< "$pair"
  [ -e "$work/$a.${models%% *}.1" ] && [ -e "$work/$b.${models%% *}.1" ] || continue
  printf '%-26s' "$a / $b"
  for model in $models; do
    for world in 1 2; do
      printf '  %s on %s: %.2fx' "$model" "$world" "$(ratio "$a.$model.$world" "$b.$model.$world")"
    done
  done
  echo
done
echo "# the last round in full:"
for model in $models; do
  for world in 1 2; do
    for peer in $peers; do echo "# $peer | $(tail -1 "$work/$peer.$model.$world.lines")"; done
  done
done
