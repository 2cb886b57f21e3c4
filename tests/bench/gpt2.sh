#!/usr/bin/env bash
# gpt2.sh BIN [ROUNDS]: trains a model of GPT-2's shape (124 M parameters) on one device, and
# compares it with PyTorch's on the same device: in float32, with TF32 products, and in bfloat16
# (both under autocast). The line "graph" is our bfloat16 with the step as a CUDA graph; PyTorch's
# figure in that line repeats the line above it.
#
# BIN contains train_bench. Both sides start from the same values and use the same synthetic batches, 8 x 1,024 tokens.
# The losses that they print must agree, or the comparison is refused. Runs alternate; figures are medians of ROUNDS
# (default GPT2_ROUNDS, or 3). The head is a separate matrix, which makes 163 M parameters in total.
#
# MFU, the share of the device's peak: (6 N + 12 layers x width x context) operations a token
# (Chowdhery et al., "PaLM", 2022, appendix B), where N is the number of parameters in matrix products;
# dense peaks are from NVIDIA's data sheets.
#
# GPT2_DEVICE (default cuda): where to train. GPT2_SHAPE=tiny: uses a model and batch that the emulator can train in
# seconds, with PyTorch on the CPU, to test this script, not to measure.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=${1:?gpt2.sh: name the folder that holds train_bench}
rounds=${2:-${GPT2_ROUNDS:-3}}
device=${GPT2_DEVICE:-cuda}
peer_device=cuda
layers=12 dim=768 heads=12 context=1024 vocabulary=50257 batch=8 steps=10 warmup=3
if [ "${GPT2_SHAPE:-}" = tiny ]; then
  layers=1 dim=32 heads=2 context=16 vocabulary=65 batch=2 steps=2 warmup=1
  peer_device=cpu
fi
[ -x "$bin/train_bench" ] || { echo "gpt2.sh: no train_bench in '$bin': build it first" >&2; exit 6; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# one PEER PRECISION: runs it and prints its line.
one() {
  case $1 in
    ringsmith)
      local precision="--float32 strict"
      [ "$2" != tf32 ] || precision="--float32 tf32 --pad-vocabulary 128"
      [ "$2" != bf16 ] || precision="--amp bf16 --pad-vocabulary 128"
      [ "$2" != graph ] || precision="--amp bf16 --pad-vocabulary 128 --graph"
      # shellcheck disable=SC2086
      "$bin/train_bench" gpt --device "$device" $precision --layers $layers --dim $dim --heads $heads \
        --context $context --vocabulary $vocabulary --batch $batch --steps $steps --warmup $warmup ;;
    torch)
      (cd "$here/peers" && "$python" torch_ddp_gpt.py --device $peer_device --float32 "$2" --layers $layers --dim $dim \
        --heads $heads --ctx $context --vocab $vocabulary --batch $batch --steps $steps --warmup $warmup) ;;
  esac 2> "$work/errors" | grep 'ms/step' || { cat "$work/errors" >&2; echo "gpt2.sh: $1 failed in $2" >&2; exit 1; }
}

# Chooses the first Python whose torch can use the device: the one in PATH, or the system's.
peers=ringsmith
for python in python3 /usr/bin/python3; do
  "$python" -c "import torch, sys; sys.exit(not (torch.cuda.is_available() or '$peer_device' == 'cpu'))" 2> /dev/null || continue
  peers="ringsmith torch"
  break
done
[ "$peers" != ringsmith ] || echo "gpt2.sh: no Python here has a torch that sees a device: PyTorch was NOT RUN"
for ((round = 1; round <= rounds; ++round)); do
  for precision in f32 tf32 bf16 graph; do
    for peer in $peers; do
      [ "$peer $precision" != "torch graph" ] || continue
      line=$(one "$peer" "$precision")
      echo "$peer $precision | $line"
      sed -E 's/.*\| ([0-9.]+) tokens\/s.*/\1/' <<< "$line" >> "$work/$peer.$precision"
      sed -E 's/.*\| loss //' <<< "$line" >> "$work/losses"
    done
  done
done

# The first and last loss of every run must be within 2 % of the first run's; rounding of TF32 and
# bf16 stays below that.
awk -F' -> ' 'NR == 1 { a = $1; b = $2 }
  { if (!(($1 - a) ^ 2 <= (0.02 * a) ^ 2 && ($2 - b) ^ 2 <= (0.02 * b) ^ 2)) exit 1 }' "$work/losses" ||
  { echo "gpt2.sh: the losses differ: not the same training" >&2; exit 1; }

median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
of() { case $1 in f32) echo "$2" ;; tf32) echo "$3" ;; bf16 | graph) echo "$4" ;; esac; }
# peak PRECISION: prints the device's TFLOP/s, or nothing if it is not known.
peak() {
  case $(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -1) in
    *H100*PCIe*) of "$1" 51 378 756 ;;
    *H100* | *H200*) of "$1" 67 495 989 ;;
    *A100*) of "$1" 19.5 156 312 ;;
  esac
}
flops=$((6 * (12 * layers * dim * dim + dim * vocabulary) + 12 * layers * dim * context))

echo
echo "tokens/s, medians of $rounds alternating rounds; batch $batch x $context, $layers layers of width $dim"
for precision in f32 tf32 bf16 graph; do
  line=$precision
  [ $precision != graph ] || [ "$peers" = ringsmith ] || cp "$work/torch.bf16" "$work/torch.graph"
  for peer in $peers; do line+="   $peer $(median "$work/$peer.$precision")"; done
  if [ "$peers" != ringsmith ]; then
    line+="   ratio $(awk -v a="$(median "$work/ringsmith.$precision")" -v b="$(median "$work/torch.$precision")" 'BEGIN { printf "%.2f", a / b }')"
  fi
  if [ -n "$(peak $precision)" ]; then
    line+="   MFU $(awk -v rate="$(median "$work/ringsmith.$precision")" -v flops=$flops -v peak="$(peak $precision)" 'BEGIN { printf "%.3f of %s TFLOP/s", rate * flops / peak / 1e12, peak }')"
  fi
  echo "$line"
done
