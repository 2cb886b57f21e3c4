#!/usr/bin/env bash
# run.sh: all that needs NVIDIA devices, in one command, and a dated section in tests/gpu/RESULTS.md.
#
#   1. build by nvcc for the devices at hand           build/gpu
#   2. the tests that run on vgpu elsewhere            ctest -L vgpu
#   3. compute-sanitizer, memcheck and racecheck       on the kernel and ring tests
#   4. benches                                         kernels against copy bandwidth, rings, training
#
# Every part runs, whatever became of the ones before; the exit status says whether all passed.
set -u
cd "$(dirname "$0")/../.."
stop() { echo "test-gpu: $1" >&2; exit 6; }
export PATH=$PATH:/usr/local/cuda/bin
command -v nvcc > /dev/null || stop "no nvcc on PATH or in /usr/local/cuda/bin: install the CUDA toolkit"
command -v nvidia-smi > /dev/null || stop "no nvidia-smi: this machine has no NVIDIA driver (the emulator's tests are in make test)"
devices=$(nvidia-smi --query-gpu=name --format=csv,noheader) || stop "nvidia-smi finds no device"
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u | paste -sd';')
results=tests/gpu/RESULTS.md
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

# part TITLE COMMAND...: runs it, shows it, and keeps verdict and last lines for the report.
report=""
part() {
  local title=$1 begin=$SECONDS
  shift
  echo "test-gpu: $title"
  local verdict=passed
  "$@" > "$log" 2>&1 || { verdict=FAILED; failed=1; }
  tail -n 25 "$log"
  report+=$'\n'"### $title: $verdict, $((SECONDS - begin)) s"$'\n\n```\n'"$(tail -n "${LINES_KEPT:-12}" "$log")"$'\n```\n'
}

build() {
  cmake --preset gpu -G Ninja "-DRINGSMITH_CUDA_ARCHITECTURES=$arch" && cmake --build build/gpu --parallel "$(nproc)"
}
bin=build/gpu/bin
ranks() { RINGSMITH_DEADLINE=240 tests/support/mpirun.sh "$@"; }

part "build for compute capability $arch" build
if [ -x $bin/tests_kernels_cuda ]; then
  LINES_KEPT=40 part "tests on devices" ctest --test-dir build/gpu -L vgpu --output-on-failure --no-tests=error
  if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck; do
      for program in tests_kernels_cuda tests_comm_cuda; do
        part "compute-sanitizer $tool on $program" compute-sanitizer --tool $tool --error-exitcode 1 $bin/$program
      done
    done
  else
    report+=$'\n### compute-sanitizer: NOT RUN, it is not on PATH\n'
  fi
  LINES_KEPT=40 part "kernels against the measured copy bandwidth, 256 MiB" $bin/kernel_bench --device cuda
  LINES_KEPT=30 part "ring, 2 processes on one device, engine A" ranks 2 $bin/all_reduce_perf --device cuda --engine a -b 1K -e 64M -f 8
  LINES_KEPT=30 part "ring, 2 ranks in one process, engine B" $bin/all_reduce_perf --device cuda --engine b --ranks-per-process 2 -b 1K -e 64M -f 8
  part "train_gpt, one rank" $bin/train_gpt --device cuda --bench
  if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
    part "PyTorch beside it" python3 tests/bench/peers/torch_ddp_gpt.py --device cuda
  else
    report+=$'\n### PyTorch on the same machine: NOT RUN, there is no torch with CUDA\n'
  fi
fi

{
  echo
  echo "## $(date -u +%F): $(sort <<< "$devices" | uniq -c | sed 's/^ *//; s/ / x /' | paste -sd,)"
  echo
  echo "Commit $(git rev-parse --short HEAD 2> /dev/null || echo 'of an archive'), $(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p'), driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)."
  echo "$report"
} >> $results
echo "test-gpu: the report is the last section of $results"
exit $failed
