#!/usr/bin/env bash
# rooms.sh [--register] BUILD COMPILER ROOM...: runs the tests of BUILD/arm64/COMPILER on the emulated processor, one
# room at a time, and prints a table. run.sh calls it. Exits with 1 if a test fails, if a room runs no test, or if a
# test in left_out() does not exist.
# RINGSMITH_DEADLINE: limit per room in seconds (900).
#
# rooms.sh --list: prints the rooms. rooms.sh --probe BUILD: tests whether the kernel starts arm64 programs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rooms=(base tensor autograd nn data optim checkpoint kernels reference comm job analysis parallel device vgpu kernels_cuda
       tensor_cuda autograd_cuda nn_cuda comm_cuda parallel_cuda training)
[ "${1:-}" != --list ] || { printf '%s\n' "${rooms[@]}"; exit; }

# left_out ROOM: tests that are not run there, as lines "test case, or [tag]|reason".
left_out() {
  local tsan="ThreadSanitizer refuses to start on the emulator's address space"
  case $1 in
    comm_cuda) echo "[tsan]|$tsan" ;;
    analysis) echo "16,384 ranks of a ring are simulated in seconds|asks how long that takes" ;;
    vgpu)
      echo "[tsan]|$tsan"
      [ -z "$register" ] || echo "another user who has the handle imports nothing, nor is imported from|the namespace has one user"
      echo "bug 4: out of bounds|asks whether it was a write, which Linux tells and QEMU does not"
      ;;
  esac
}
emulator=$(qemu-aarch64-static --version | sed -nE 's/.*version ([0-9]+)\.([0-9]+).*/\1 \2/p' | { read -r major minor; echo $((major * 100 + minor)); })
# Prints the limit of the address space in GiB, if there is one. The emulated devices reserve as much as the limit
# allows, and QEMU before 8.0 uses 6 MiB of memory per GiB. Ranks reserve address space of the size of the machine's
# memory, which small_machine.c limits.
addresses() {
  case $1 in
    vgpu | device | *_cuda) [ "$emulator" -ge 800 ] || echo 64 ;;
  esac
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
  # Matches 64-bit ELF files for machine 183 (AArch64). F: the kernel opens the emulator now; O, C:
  # the emulator receives the opened program and its credentials; P: also the name by which the
  # program was called.
  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && printf '%s' ':ringsmith-arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64-static)"':POCF' \
    > /proc/sys/fs/binfmt_misc/register || true
  starts || {
    echo "test-arm64: this system starts no arm64 programs, and no user may register the emulator (Linux before 6.7, or no user namespaces): as root, 'apt install binfmt-support qemu-user-static' registers it for all users" >&2
    exit 6
  }
fi
export PATH=$here/tools:$PATH
cd "$here/../.."  # where the tests' data is stored
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

table=() notes=() bad=0 deadline=${RINGSMITH_DEADLINE:-900}  # seconds, per room
row() { table+=("$(printf '%-15s %7s %7s %9s %8s' "$@")"); }
row room passed failed "left out" seconds

run_room() {
  local room=$1 begin=$SECONDS out=$scratch/$1.log program=$bin/tests_$1 spec=() left=0 name why code=0
  local limit found
  limit=$(addresses "$room")
  while IFS='|' read -r name why; do
    [[ $name = \[* ]] || name=\"${name//,/\\,}\"
    found=$("$program" "$name" --list-tests 2> /dev/null | sed -nE 's/^([0-9]+) matching test cases?$/\1/p')
    [ "${found:-0}" -gt 0 ] || { notes+=("$room: no test is called $name"); bad=1; }
    spec+=("~$name")
    left=$((left + ${found:-0}))
    notes+=("left out of $room: ${name//\\/}: $why")
  done < <(left_out "$room")
  (
    case $room in comm* | parallel*) export QEMU_SET_ENV=LD_PRELOAD=$work/small_machine.so ;; esac
    [ -z "$limit" ] || ulimit -v $((limit << 20))
    exec timeout --kill-after=5 "$deadline" "$program" "${spec[@]}"
  ) > "$out" 2>&1 < /dev/null || code=$?
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

# Trains with two ranks, started by arm64's own ringrun, and again on this machine's processor. The models must be
# equal. Both use the oracle's kernels if the operations defined by IEEE 754 suffice. A GPT also needs tanhf and erff of
# the C library, whose last bits differ between the two. The fast kernels have their own versions, but let the compiler
# fuse operations, so it is only reported whether their models are equal.
same=0 other=0
train() {  # MUST|MAY PROGRAM OPTIONS...
  local must=$1 program=$2 where
  shift 2
  for where in "$bin" "$build/release/bin"; do
    rm -rf "$scratch/model"
    if ! timeout --kill-after=5 "$deadline" "$where/ringrun" --standalone --nproc-per-node 2 -- "$where/$program" "$@" \
      --progress off --run-dir "$scratch/model" > "$scratch/train.log" 2>&1; then
      notes+=("$where/$program failed; its output ends so:" "$(tail -n 30 "$scratch/train.log")")
      other=$((other + 1))
      return
    fi
    if [ "$where" = "$bin" ]; then mv "$scratch/model/model.safetensors" "$scratch/arm64"; fi
  done
  if cmp -s "$scratch/arm64" "$scratch/model/model.safetensors"; then
    same=$((same + 1))
    notes+=("2 ranks of $program $*: the model of x86, byte for byte")
  else
    if [ "$must" = MUST ]; then other=$((other + 1)); else same=$((same + 1)); fi
    notes+=("2 ranks of $program $*: another model than on x86")
  fi
}
train_both() {
  local begin=$SECONDS
  train MUST train_mlp --kernels oracle --draw 400 --hidden 32 --batch 16 --steps 20
  train MAY train_gpt --data README.md --layers 2 --dim 32 --heads 2 --context 32 --batch 4 --steps 20 \
    --validation-windows 4 --sample 0
  [ $other -eq 0 ] || bad=1
  row training $same $other 0 $((SECONDS - begin))
}

for room in "$@"; do
  echo "test-arm64: $room"
  if [ "$room" = training ]; then train_both; else run_room "$room"; fi
done
printf '%s\n' "" "${notes[@]}" "" "${table[@]}"
exit $bad
