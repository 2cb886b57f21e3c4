#!/usr/bin/env bash
# rooms.sh [--register] BUILD COMPILER ROOM...: the tests of BUILD/arm64/COMPILER on the emulated
# processor, one room at a time, and a table. run.sh calls it. Exits 1 if a test fails, if a room
# runs none, or if a test that is to be left out does not exist.
#
# rooms.sh --list: the rooms.  rooms.sh --probe BUILD: does the kernel start arm64 programs?
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rooms=(base tensor autograd nn data optim checkpoint kernels reference comm parallel device vgpu kernels_cuda
       tensor_cuda autograd_cuda nn_cuda comm_cuda parallel_cuda training)
[ "${1:-}" != --list ] || { printf '%s\n' "${rooms[@]}"; exit; }

# left_out ROOM: what is not run there, as lines "test case|why".
left_out() {
  :
}

register=$([ "$1" = --register ] && echo 1 || true)
probe=$([ "$1" = --probe ] && echo 1 || true)
[ -z "$register$probe" ] || shift
build=$1 compiler=${2:-gcc}
work=$build/arm64
bin=$work/$compiler/bin
export QEMU_LD_PREFIX=$work/sysroot
starts() { "$work/sysroot/lib/ld-linux-aarch64.so.1" --version > /dev/null 2>&1; }
if [ -n "$probe" ]; then starts; exit; fi
shift 2
if [ -n "$register" ]; then
  # An ELF file of 64 bits for processor 183. O, C, F: the emulator is opened now, and gets the
  # program opened; P: it gets the name that the program was called by.
  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && printf '%s' ':ringsmith-arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64-static)"':POCF' \
    > /proc/sys/fs/binfmt_misc/register || true
  starts || {
    echo "test-arm64: this system starts no arm64 programs, and lets nobody register the emulator (Linux before 6.7, or no user namespaces): as root, 'apt install binfmt-support qemu-user-static' does it for all" >&2
    exit 6
  }
fi
export PATH=$here/tools:$PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

table=() notes=() bad=0
row() { table+=("$(printf '%-15s %7s %7s %9s %8s' "$@")"); }
row room passed failed "left out" seconds

run_room() {
  local room=$1 begin=$SECONDS out=$scratch/$1.log program=$bin/tests_$1 spec=() left=0 name why code=0
  while IFS='|' read -r name why; do
    [ -n "$name" ] || continue
    "$program" "\"$name\"" --list-tests 2> /dev/null | grep -q '^1 \|^ *1 matching' ||
      { notes+=("$room: no test is called '$name'"); bad=1; }
    spec+=("~\"$name\"")
    left=$((left + 1))
    notes+=("left out of $room: $name: $why")
  done < <(left_out "$room")
  timeout --kill-after=5 "${RINGSMITH_ARM64_SECONDS:-900}" "$program" "${spec[@]}" > "$out" 2>&1 < /dev/null || code=$?
  local summary passed failed
  summary=$(grep -aE '^(All tests passed|test cases:)' "$out" | tail -n 1)
  case $summary in
    All*) passed=$(sed -E 's/.* in ([0-9]+) test cases?.*/\1/' <<< "$summary") failed=0 ;;
    test*)
      passed=$(grep -oE '[0-9]+ passed' <<< "$summary" | cut -d' ' -f1)
      failed=$(grep -oE '[0-9]+ failed' <<< "$summary" | cut -d' ' -f1) ;;
    *) passed=0 failed=- ;;
  esac
  if [ $code -ne 0 ] || [ "${passed:-0}" -eq 0 ]; then
    bad=1
    notes+=("$room ended with $code; its output ends so:" "$(tail -n 60 "$out")")
  fi
  row "$room" "${passed:-0}" "${failed:-0}" $left $((SECONDS - begin))
}

# Two processes, arm64's own ringrun, and the same by this machine's processor.
train() {
  local begin=$SECONDS where text=$scratch/text ok=1
  head -c 20000 "$here/../../README.md" > "$text"
  local small=(--data "$text" --layers 2 --dim 32 --heads 2 --context 32 --batch 4 --steps 20 --validation-windows 4
               --sample 0 --progress off --kernels oracle)
  for where in "$bin" "$build/release/bin"; do
    timeout 600 "$where/ringrun" --standalone --nproc-per-node 2 -- "$where/train_gpt" "${small[@]}" \
      --run-dir "$scratch/run$ok" > "$scratch/train.log" 2>&1 ||
      { notes+=("$where/train_gpt failed:" "$(tail -n 30 "$scratch/train.log")"); bad=1; row training 0 1 0 $((SECONDS - begin)); return; }
    ok=2
  done
  if cmp "$scratch/run1/model.safetensors" "$scratch/run2/model.safetensors"; then
    row training 1 0 0 $((SECONDS - begin))
    notes+=("2 ranks of train_gpt --kernels oracle: the model of x86, byte for byte")
  else
    bad=1
    row training 0 1 0 $((SECONDS - begin))
    notes+=("2 ranks of train_gpt --kernels oracle: another model than x86's")
  fi
}

for room in "$@"; do
  echo "test-arm64: $room"
  if [ "$room" = training ]; then train; else run_room "$room"; fi
done
printf '%s\n' "" "${notes[@]}" "" "${table[@]}"
exit $bad
