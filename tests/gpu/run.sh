#!/usr/bin/env bash
# run.sh [--simulate]: all that needs NVIDIA devices, in one command, and a dated section in tests/gpu/RESULTS.md.
#
#   1. build by nvcc for the devices at hand           build/gpu
#   2. the tests that run on vgpu elsewhere            ctest -L vgpu
#   3. compute-sanitizer, memcheck and racecheck       on the kernel and ring tests
#   4. benches                                         kernels against copy bandwidth, rings, training
#
# Once it builds, every part runs, whatever became of the ones before, and has a deadline; the exit
# status says whether all passed.
#
# --simulate: the same commands on the emulator's build, with small sizes and two of the test programs
# (make test runs all), so that this script has been run before a device is lent. Its figures mean
# nothing, its report goes to build/test-gpu-simulated.md, and RESULTS.md stays as it is.
set -u
cd "$(dirname "$0")/../.." || exit
stop() { echo "test-gpu: $1" >&2; exit 6; }
simulate=
case ${1:-} in
  "") ;;
  --simulate) simulate=1 ;;
  -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) stop "unknown option '$1': there is --simulate" ;;
esac

export PATH=$PATH:/usr/local/cuda/bin
if [ -n "$simulate" ]; then
  what="test-gpu (SIMULATED)"
  devices="emulated device (vgpu)"
  count=${VGPU_DEVICES:-8}
  dir=build/release
  results=build/test-gpu-simulated.md
  most=64K shape=tiny small="-n 2 -w 1" kernel_size="--size 64" products="0 3"
  title="SIMULATED on vgpu: no GPU took part, the figures mean nothing"
  tools="g++ $(g++ -dumpversion), kernels/vgpu"
else
  what=test-gpu
  command -v nvcc > /dev/null || stop "no nvcc on PATH or in /usr/local/cuda/bin: install the CUDA toolkit"
  command -v nvidia-smi > /dev/null || stop "no nvidia-smi: this machine has no NVIDIA driver; here 'make test' runs the same tests on the emulator, and tests/gpu/run.sh --simulate tries this script"
  devices=$(nvidia-smi --query-gpu=name --format=csv,noheader) || stop "nvidia-smi finds no device"
  count=$(wc -l <<< "$devices")
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u | paste -sd';')
  dir=build/gpu
  results=tests/gpu/RESULTS.md
  most=256M shape=gpt2 small="" kernel_size="" products="0 5 6"
  title=$(sort <<< "$devices" | uniq -c | sed 's/^ *//; s/ / x /' | paste -sd,)
  tools="$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p'), driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)"
fi
bin=$dir/bin
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
report=""

# part KEEP DEADLINE TITLE COMMAND...: runs it for DEADLINE seconds at most, shows the end of what it
# prints, and keeps its last KEEP lines and the verdict for the report.
part() {
  local keep=$1 deadline=$2 title=$3 begin=$SECONDS verdict=passed
  shift 3
  echo "$what: $title"
  timeout --kill-after=10 "$deadline" "$@" < /dev/null > "$log" 2>&1
  local code=$?
  if [ $code -eq 124 ] || [ $code -eq 137 ]; then verdict="FAILED, not done within $deadline s"
  elif [ $code -ne 0 ]; then verdict="FAILED with exit code $code"; fi
  [ "$verdict" = passed ] || failed=1
  tail -n "$keep" "$log"
  echo "$what: $title: $verdict"
  report+=$'\n'"### $title: $verdict, $((SECONDS - begin)) s"$'\n\n```\n'"$*"$'\n'"$(tail -n "$keep" "$log")"$'\n```\n'
}
not_run() {
  echo "$what: $1: NOT RUN, $2"
  report+=$'\n'"### $1: NOT RUN, $2"$'\n'
}
# finish WORDS: writes the report and ends.
finish() {
  {
    echo
    echo "## $(date -u +%F): $title"
    echo
    echo "Commit $(git rev-parse --short HEAD 2> /dev/null || echo 'of an archive'), $tools."
    echo "$report"
  } >> "$results"
  echo "$what: $1; the report is the last section of $results"
  exit $failed
}
ranks() { echo "tests/support/mpirun.sh $1 $bin/all_reduce_perf --device cuda -b 1K -e $most -f 8 $small"; }

if [ -n "$simulate" ]; then
  configure="cmake --preset release -G Ninja"
  targets="--target tests_device tests_comm_cuda kernel_bench all_reduce_perf dp_vs_ddp train_gpt train_bench"
  tests="-R ^(device|comm_cuda)$"
else
  targets="" tests="-L vgpu"
  configure="cmake --preset gpu -G Ninja -DRINGSMITH_CUDA_ARCHITECTURES=$arch"
fi
# shellcheck disable=SC2016
part 5 3600 "build${simulate:+ for the emulator}${arch:+ for compute capability $arch}" \
  bash -c '$0 && cmake --build $1 --parallel $2 $3' "$configure" "$dir" "$(nproc)" "$targets"

if [ $failed -ne 0 ]; then
  finish "nothing else was run: programs of an earlier build would be none of this one"
fi

# shellcheck disable=SC2086
part 45 1800 "tests on devices" ctest --test-dir $dir $tests --output-on-failure --no-tests=error
if [ -n "$simulate" ]; then
  not_run compute-sanitizer "it needs a device; on vgpu every access is checked anyway"
elif command -v compute-sanitizer > /dev/null; then
  # Without the caching allocator every tensor is an allocation with borders that memcheck knows.
  export RINGSMITH_CUDA_CACHE=off
  for tool in memcheck racecheck; do
    for program in tests_kernels_cuda tests_comm_cuda; do
      part 12 1800 "compute-sanitizer $tool on $program" compute-sanitizer --tool $tool --error-exitcode 1 $bin/$program
    done
  done
  unset RINGSMITH_CUDA_CACHE
else
  not_run compute-sanitizer "it is not on PATH"
fi

part 60 600 "kernels against the measured copy bandwidth" $bin/kernel_bench --device cuda
for version in $products; do  # 0: all versions
  # shellcheck disable=SC2086
  part 20 300 "matmul ladder, version $version" $bin/kernel_bench matmul --version "$version" $kernel_size
done
export RINGSMITH_DEADLINE=240
# shellcheck disable=SC2046
part 30 300 "ring, 2 processes on one device, engine A" env $([ -n "$simulate" ] && echo VGPU_DEVICES=1) $(ranks 2) --engine a
# shellcheck disable=SC2046,SC2086
part 30 300 "ring, 2 ranks in one process, engine B" $bin/all_reduce_perf --device cuda:0 --engine b --ranks-per-process 2 -b 1K -e $most -f 8 $small
for world in 2 4 8; do
  for engine in a b; do
    if [ "$world" -gt "$count" ]; then
      not_run "ring, $world processes, engine ${engine^}" "there are $count devices"
      continue
    fi
    # shellcheck disable=SC2046
    part 30 300 "ring, $world processes on $world devices, engine ${engine^}" $(ranks $world) --engine $engine
  done
done
# shellcheck disable=SC2086
part 30 300 "DataParallel beside DDP" $bin/dp_vs_ddp --device cuda --svg "$dir/dp_vs_ddp.svg" --html "$dir/dp_vs_ddp.html" ${simulate:+--hidden 64 --inputs 64 --rows 4 --steps 2 -n 1,2}
# shellcheck disable=SC2086
part 12 900 "train_gpt trains and writes" tests/support/mpirun.sh $((count < 2 ? count : 2)) $bin/train_gpt --device cuda --run-dir "$(mktemp -du "$dir/train_gpt.XXXXXX")" --progress off ${simulate:+--steps 3 --layers 1 --dim 32 --heads 2 --context 32 --batch 2 --sample 8 --validation-windows 2}
part 30 1800 "training in GPT-2's shape beside PyTorch" env GPT2_SHAPE=$shape tests/bench/gpt2.sh $bin ${simulate:+1}

finish "all parts were run${simulate:+, simulated}"
