#!/usr/bin/env bash
# run.sh [OPTION...]: runs everything that needs NVIDIA devices, in one command; the report is a
# dated section in tests/gpu/RESULTS.md.
#
# The parts, the most informative first in case time is short:
#
#   device      name, clocks, links between devices
#   build       by nvcc for the devices at hand, without lessons and labs: build/gpu
#   kernels     every kernel compared with its oracle; streams and memory; collectives of threads as
#               ranks; training in 1 to 4 ranks
#   kernel-engine
#               rings of kernels that wait for each other: 2, 3 and 4 ranks in one process, on one
#               device
#   bench       kernels compared with the measured copy bandwidth, the versions of matrix products
#   gpt2        a step in GPT-2's shape compared with PyTorch's, and its share of the device's peak
#   profile     the kernels of one step of GPT-2's shape, measured one by one by Nsight Compute
#   registers   each kernel's registers, and its spills
#   rings       processes on 1 to 8 devices, both engines, compared with NCCL if PyTorch has it; where
#               devices do not reach each other's memory, through host memory instead
#   tests       all tests that run on the emulator elsewhere: ctest -L vgpu
#   training    DataParallel compared with DDP; train_gpt trains and writes
#   sanitizers  memcheck and racecheck on the tests of all kernels but the rings'
#   memcheck    memcheck and racecheck on the tests of the rings' kernels, last and for five minutes
#               at most: these tests fail if the tool makes launches wait for their kernels
#
#   --only PART[,PART...]  these parts
#   --budget SECONDS       end within this time: parts that do not fit are cut, or not run, and
#                          reported as such
#   --out DIR              the report goes to DIR/report.md, all output to DIR/log.txt
#   --build DIR            build there (build/gpu; simulated: build/release)
#   --simulate             the emulator's build and small sizes, to test this script without a device;
#                          figures mean nothing; the report goes to
#                          build/test-gpu-simulated.md
#
# A part is added to the report when it ends, so a run that is killed leaves the earlier parts.
# After a part that failed the others still run, except after the build.
# Exit codes: 0 all parts passed, 1 one failed, 3 none failed but the budget left parts out, 6 wrong
# options.
set -u
cd "$(dirname "$0")/../.." || exit
stop() { echo "test-gpu: $1" >&2; exit 6; }
parts="device build kernels kernel-engine bench gpt2 profile registers rings tests training sanitizers memcheck"
simulate="" only=$parts budget="" out="" dir=""
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set -u/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --simulate) simulate=1; shift; continue ;;
    --only | --budget | --out | --build) [ $# -gt 1 ] || stop "$1 wants a value" ;;
    *) stop "unknown option '$1': run.sh --help has the list" ;;
  esac
  case $1 in
    --only) only=${2//,/ } ;;
    --budget) budget=$2 ;;
    --out) out=$2 ;;
    --build) dir=$2 ;;
  esac
  shift 2
done
for name in $only; do
  [[ " $parts " == *" $name "* ]] || stop "--only: no part '$name'; there are $parts"
done
[ -n "${only// /}" ] || stop "--only: no part is named; there are $parts"
[[ $budget =~ ^([1-9][0-9]{0,5})?$ ]] || stop "--budget: '$budget' is not a number of seconds from 1 to 999999"

export PATH=$PATH:/usr/local/cuda/bin
if [ -n "$simulate" ]; then
  what="test-gpu (SIMULATED)"
  count=${VGPU_DEVICES:-8}
  dir=${dir:-build/release} report=build/test-gpu-simulated.md
  most=64K shape=tiny small="-n 2 -w 1" products="0 3 8"
  title="SIMULATED on vgpu: no GPU took part, the figures mean nothing"
  tools="g++ $(g++ -dumpversion), kernels/vgpu"
else
  what=test-gpu
  command -v nvcc > /dev/null || stop "no nvcc on PATH or in /usr/local/cuda/bin: install the CUDA toolkit"
  command -v nvidia-smi > /dev/null || stop "no nvidia-smi: this machine has no NVIDIA driver; here 'make test-all' runs the same tests on the emulator, and tests/gpu/run.sh --simulate tries this script"
  devices=$(nvidia-smi --query-gpu=name --format=csv,noheader) || stop "nvidia-smi finds no device"
  count=$(wc -l <<< "$devices")
  # Programs run with a driver of their toolkit's major version, or a later driver.
  release=$(nvcc --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  supported=$(nvidia-smi | sed -n 's/.*CUDA Version: *\([0-9]*\)\..*/\1/p' | head -1)
  [ "${supported:-$release}" -ge "$release" ] ||
    stop "the NVIDIA driver is too old: it supports CUDA $supported, and nvcc is of CUDA $release: update the driver, or use an older toolkit"
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u | paste -sd';')
  dir=${dir:-build/gpu} report=tests/gpu/RESULTS.md
  most=256M shape=gpt2 small="" products="0 5 6 8 9"
  title=$(sort <<< "$devices" | uniq -c | sed 's/^ *//; s/ / x /' | paste -sd,)
  tools="$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p'), driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log all=/dev/null
if [ -n "$out" ]; then
  mkdir -p "$out" || stop "--out: cannot make the folder '$out'"
  report=$out/report.md all=$out/log.txt
fi
bin=$dir/bin
failed=0 left_out=0

# add: appends its input to the report, in one write.
add() { cat > "$work/more" && cat "$work/more" >> "$report"; }
seconds_left() { echo $((${budget:-999999} - SECONDS)); }

mkdir -p "$(dirname "$report")"
add << HEAD || stop "cannot write the report '$report'"

## $(date -u +%F): $title

Commit $(git rev-parse --short HEAD 2> /dev/null || echo 'of an archive'), $tools${budget:+, in $budget s}.
HEAD

not_run() {
  echo "$what: $1: NOT RUN, $2"
  printf '\n### %s: NOT RUN, %s\n' "$1" "$2" | add
}
# The end of the message with which a program refuses an engine for want of peer access.
unreachable="choose other devices, or leave --engine out"
# part KEEP DEADLINE TITLE COMMAND...: runs the command for at most DEADLINE seconds, and no longer than the
# budget lasts; shows the end of its output; adds its last KEEP lines and the verdict to the report.
# Returns 7, and counts no failure, if the program refuses because devices do not reach each other.
part() {
  local keep=$1 deadline=$2 title=$3 begin=$SECONDS verdict=passed left code
  shift 3
  left=$(($(seconds_left) - 2))  # for stopping it, and the report
  if [ "$left" -lt 3 ]; then
    left_out=1
    not_run "$title" "the budget of $budget s is spent"
    return 3
  fi
  echo "$what: $title"
  timeout --kill-after=1 $((left < deadline ? left : deadline)) "$@" < /dev/null > "$log" 2>&1
  code=$?
  cat "$log" >> "$all"
  if [ $code -eq 6 ] && reason=$(sed -n "s/.* engine: \(.*\); $unreachable.*/\1/p" "$log") && [ -n "$reason" ]; then
    reason=${reason%%$'\n'*} verdict="REFUSED, $reason" code=7
  elif [ $code -ne 124 ] && [ $code -ne 137 ]; then
    [ $code -eq 0 ] || { failed=1; verdict="FAILED with exit code $code"; }
  elif [ $left -lt "$deadline" ]; then
    left_out=1 code=3 verdict="CUT by the budget, no verdict"
  else
    failed=1 verdict="FAILED, not done within $deadline s"
  fi
  tail -n "$keep" "$log"
  echo "$what: $title: $verdict"
  {
    printf '\n### %s: %s, %d s\n\n```\n%s\n' "$title" "$verdict" $((SECONDS - begin)) "$*"
    tail -n "$keep" "$log" | sed "s/^\`\`\`/ &/"
    printf '```\n'
  } | add
  return $code
}

part_device() {
  if [ -n "$simulate" ]; then
    not_run device "it is emulated"
    return
  fi
  part 12 30 device nvidia-smi --query-gpu=name,memory.total,clocks.sm,clocks.max.sm,clocks.max.mem,power.limit,temperature.gpu --format=csv
  part 24 30 "links between devices" nvidia-smi topo -m
}
part_build() {
  local targets=gpu_programs
  local configure="cmake --preset gpu -B $dir -G Ninja -DRINGSMITH_CUDA_ARCHITECTURES=${arch:-}"
  [ -z "$simulate" ] || configure="cmake --preset release -B $dir -G Ninja"
  # shellcheck disable=SC2016
  part 5 3600 "build for ${arch:+compute capability $arch}${simulate:+the emulator}" \
    bash -c '$0 && cmake --build $1 --parallel $2 --target $3' "$configure" "$dir" "$(nproc)" "$targets"
}
part_kernels() {
  part 12 900 "kernels beside their oracles" "$bin"/tests_kernels_cuda ${simulate:+"*softmax*"}
  [ -z "$simulate" ] || return 0
  for program in tests_device tests_comm_cuda tests_parallel_cuda; do part 4 300 "$program" "$bin/$program"; done
}
part_kernel-engine() {
  for ranks in 2 3 4; do
    # shellcheck disable=SC2086
    part 30 300 "ring, $ranks ranks in one process, kernel engine" env RINGSMITH_DEADLINE=60 "$bin"/all_reduce_perf \
      --device cuda:0 --engine kernel --ranks-per-process $ranks -b 1K -e $most -f 8 $small
  done
}
part_bench() {
  part 60 300 "kernels beside the measured copy bandwidth" "$bin"/kernel_bench --device cuda ${simulate:+--seconds 0.01 --family softmax}
  for version in $products; do  # 0: all versions
    part 20 300 "matmul ladder, version $version" "$bin"/kernel_bench matmul --rung "$version" ${simulate:+--size 64}
  done
}
part_gpt2() { part 30 600 "training in GPT-2's shape beside PyTorch" env GPT2_SHAPE=$shape tests/bench/gpt2.sh "$bin" ${simulate:+1}; }
part_profile() {
  if [ -n "$simulate" ]; then
    not_run profile "the emulator has no time of a kernel"
    return
  elif ! command -v ncu > /dev/null; then
    not_run profile "no ncu on PATH"
    return
  fi
  for batch in 4 32; do
    # shellcheck disable=SC2016
    part 22 120 "kernels of a step of $batch x 1,024 tokens, bf16" bash -c 'echo "batch $0" > "$1" &&
      ncu --csv --clock-control none --cache-control none --profile-from-start off \
        --metrics gpu__time_duration.sum,dram__bytes.sum,sm__inst_issued.sum "$2"/train_bench gpt --device cuda --amp bf16 \
        --pad-vocabulary 128 --layers 12 --dim 768 --heads 12 --context 1024 --vocabulary 50257 --batch $0 --steps 2 \
        --warmup 1 >> "$1" && tests/gpu/profile.py "$1"' $batch "$work/step-$batch.csv" "$bin"
    [ -z "$out" ] || cp "$work/step-$batch.csv" "$out"
  done
}
# check TOOL PROGRAM DEADLINE: runs the program under this tool of compute-sanitizer. Without the
# caching allocator each tensor is a separate allocation, which memcheck knows.
check() {
  if [ -n "$simulate" ]; then
    not_run "compute-sanitizer $1 on $2" "it needs a device; on vgpu every access is checked anyway"
  elif command -v compute-sanitizer > /dev/null; then
    part 12 "$3" "compute-sanitizer $1 on $2" env RINGSMITH_CUDA_CACHE=off compute-sanitizer --tool "$1" --error-exitcode 1 "$bin/$2"
  else
    not_run "compute-sanitizer $1 on $2" "it is not on PATH"
  fi
}
part_sanitizers() {
  check memcheck tests_kernels_cuda 1800
  check racecheck tests_kernels_cuda 1800
}
part_memcheck() {
  check memcheck tests_comm_cuda 300
  check racecheck tests_comm_cuda 300
}
part_registers() {
  if [ -n "$simulate" ]; then
    not_run registers "the emulator has none"
  elif command -v cuobjdump > /dev/null; then
    # shellcheck disable=SC2016
    part 200 120 "registers, stack and shared memory of each kernel" bash -c \
      'cuobjdump --dump-resource-usage "$0" | c++filt | sed -nE "s/^ *Function ([^(]*).*/\1/; /REG/{s/^ *(REG:[0-9]+ STACK:[0-9]+ SHARED:[0-9]+ LOCAL:[0-9]+).*/\1/}; /./p" | grep -v "^Resource\|^Fatbin\|^=\|^arch\|^code\|^host\|^compile\|^identifier\|Common"' \
      "$bin"/tests_comm_cuda
  else
    not_run registers "no cuobjdump on PATH"
  fi
}
# ring WORLD ENGINE DEVICES: runs all_reduce_perf in WORLD processes. DEVICES describes their devices in the report.
# The engine "none" leaves the choice to the program.
ring() {
  local way="$2 engine"
  [ "$2" != none ] || way="no engine named"
  # shellcheck disable=SC2046,SC2086
  part 30 300 "ring, $1 processes on $3, $way" env RINGSMITH_DEADLINE=240 $([[ -z $simulate || $3 != "one device" ]] || echo VGPU_DEVICES=1) \
    tests/support/mpirun.sh "$1" "$bin"/all_reduce_perf --device cuda -b 1K -e $most -f 8 $small $([[ $2 = none ]] || echo --engine "$2")
}
nccl() {
  if [ -n "$simulate" ]; then
    not_run "NCCL, $1 processes" "it needs devices"
  elif python3 -c 'import torch.distributed as d, sys; sys.exit(not d.is_nccl_available())' 2> /dev/null; then
    part 30 300 "NCCL, $1 processes" python3 tests/bench/peers/torchrun.py --nproc_per_node "$1" \
      tests/bench/peers/torch_all_reduce.py --backend nccl --most $most
  else
    not_run "NCCL, $1 processes" "no torch here brings it"
  fi
}
part_rings() {
  ring 2 stream "one device"
  for world in 2 4 8; do
    if [ "$world" -gt "$count" ]; then
      not_run "rings and NCCL, $world processes" "there are $count devices"
      continue
    fi
    ring $world stream "$world devices"
    if [ $? -eq 7 ]; then
      not_run "ring, $world processes on $world devices, kernel engine" "$reason"
      ring $world none "$world devices"
    else
      ring $world kernel "$world devices"
    fi
    nccl $world
  done
}
part_tests() {
  if [ -n "$simulate" ]; then
    part 45 600 "tests on devices" ctest --test-dir "$dir" -R '^device$' --output-on-failure --no-tests=error
    return
  fi
  part 5 1800 "build of everything" cmake --build "$dir" --parallel "$(nproc)" &&
    part 45 1800 "tests on devices" ctest --test-dir "$dir" -L vgpu --output-on-failure --no-tests=error
}
part_training() {
  part 30 300 "DataParallel beside DDP" "$bin"/dp_vs_ddp --device cuda --svg "$work/dp_vs_ddp.svg" --html "$work/dp_vs_ddp.html" \
    ${simulate:+--hidden 64 --inputs 64 --rows 4 --steps 2 -n 1,2}
  part 12 900 "train_gpt trains and writes" tests/support/mpirun.sh $((count < 2 ? count : 2)) "$bin"/train_gpt --device cuda \
    --run-dir "$work/train_gpt" --progress off ${simulate:+--steps 3 --layers 1 --dim 32 --heads 2 --context 32 --batch 2 --sample 8 --validation-windows 2}
}

for name in $parts; do
  [[ " $only " == *" $name "* ]] || continue
  "part_$name"
  if [ "$name" = build ] && [ $failed$left_out != 00 ]; then
    not_run "all other parts" "programs of an earlier build would be none of this one"
    break
  fi
done
how="all parts passed"
[ $left_out = 0 ] || how="no part failed, but the budget left some out"
[ $failed = 0 ] || how="parts FAILED"
[ -z "$simulate" ] || how+=", simulated"
printf '\n%s, %d s in all.\n' "${how^}" $SECONDS | add
echo "$what: $how; the report is the last section of $report"
[ $failed = 0 ] || exit 1
[ $left_out = 0 ] || exit 3
