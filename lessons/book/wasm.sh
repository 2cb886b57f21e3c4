#!/usr/bin/env bash
# wasm.sh FOLDER: the live figures' programs as WebAssembly, FOLDER/NAME.js and .wasm, from the runtime's own sources.
#
# Each module is a whole program: the page calls its main() with a command line and shows what it prints. Debian's
# emscripten 3.1.6:
#   - its libc++ has no std::bit_cast: wasm.hpp is included first;
#   - /usr/include would hide its own C headers: a folder with links to fmt, nlohmann and CLI alone;
#   - its optimiser of JavaScript needs node-acorn, which is only recommended, and finds it by NODE_PATH alone if node
#     is not Debian's.
# Nothing here runs on a GPU or over a network: functions for those are left undefined, and nothing that a figure can do
# calls them. A call would end the program with the function's name.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p "$1"
out=$(realpath "$1")
mkdir -p "$out/include"
for library in fmt nlohmann CLI; do
  [ -e "/usr/include/$library" ] || { echo "wasm.sh: no /usr/include/$library: make deps" >&2; exit 6; }
  ln -sfn "/usr/include/$library" "$out/include/$library"
done
mkdir -p "$out/include/sys"  # glibc's header, which runtime/device needs; a page has one thread
echo 'static const char __libc_single_threaded = 1;' > "$out/include/sys/single_threaded.h"
mkdir -p "$out/include/linux"  # runtime/comm/transport/doorbell.hpp sleeps by system calls; a page never does
printf '%s\n' 'enum { FUTEX_WAIT, FUTEX_WAKE };' '#define SYS_futex 0' 'extern "C" long syscall(long, ...);' > "$out/include/linux/futex.h"

programs() {  # NAME SOURCE...
  local apps="labs/apps/common/agreement.cpp labs/apps/common/command_line.cpp labs/apps/common/files.cpp labs/apps/common/text.cpp
    runtime/base/atomic_file.cpp runtime/base/error.cpp runtime/base/process.cpp runtime/base/run_main.cpp
    runtime/job/place.cpp"
  local schedules="runtime/comm/schedule/*.cpp runtime/analysis/*.cpp"
  local tensors="runtime/tensor/*.cpp runtime/base/rng.cpp runtime/base/tracer.cpp runtime/device/device.cpp
    runtime/device/profiler.cpp runtime/device/stream.cpp kernels/cpu/copy.cpp kernels/cpu/elementwise.cpp kernels/cpu/mode.cpp
    kernels/cpu/parallel.cpp kernels/cpu/reduction.cpp"
  echo schedule labs/apps/schedule/schedule_player.cpp labs/apps/schedule/mistakes.cpp labs/apps/schedule/recording.cpp $schedules $apps
  echo strides lessons/book/figures/strides.cpp $tensors $apps
  echo tape lessons/book/figures/tape.cpp runtime/autograd/*.cpp runtime/autograd/functions/elementwise.cpp $tensors $apps
  echo buckets lessons/book/figures/buckets.cpp labs/apps/train/step_time.cpp runtime/parallel/bucket.cpp runtime/base/tracer.cpp \
    $schedules $apps
  echo costs lessons/book/figures/costs.cpp $schedules $apps
  echo window lessons/book/figures/window.cpp $apps
  echo bits lessons/book/figures/bits.cpp $apps
  echo caps lessons/book/figures/caps.cpp runtime/parallel/bucket.cpp $schedules $apps
  echo crash lessons/book/figures/crash.cpp $apps
  echo feedback lessons/book/figures/feedback.cpp $apps
  echo goodput lessons/book/figures/goodput.cpp $apps
  echo pipeline lessons/book/figures/pipeline.cpp $schedules $apps
}

{
  echo "builddir = $out"
  echo "flags = -std=c++20 -Os -fexceptions -ffp-contract=off -Wall -Wextra -I. -Ikernels/vgpu/include -isystem $out/include -include lessons/book/wasm.hpp -DFMT_HEADER_ONLY -DRINGSMITH_SOURCE_DIR='\"\"' -DRINGSMITH_VERSION='\"\"'"
  echo "link = -O2 -fexceptions -sMODULARIZE=1 -sFILESYSTEM=0 -sALLOW_MEMORY_GROWTH=1 -sEXIT_RUNTIME=0 -sENVIRONMENT=web -sERROR_ON_UNDEFINED_SYMBOLS=0 -sWARN_ON_UNDEFINED_SYMBOLS=0 -sEXPORTED_RUNTIME_METHODS=callMain,stackSave,stackRestore"
  echo "rule compile"
  echo "  command = em++ \$flags -MMD -MF \$out.d -c \$in -o \$out"
  echo "  depfile = \$out.d"
  echo "  deps = gcc"
  echo "rule link"
  echo "  command = em++ \$link -sEXPORT_NAME=Book_\$name \$in -o \$out"
  programs | while read -r name sources; do
    objects=
    for source in $sources; do
      object=$out/$source.o
      objects+=" $object"
      echo "build $object: compile $source"
    done
    echo "build $out/$name.js | $out/$name.wasm: link$objects"
    echo "  name = $name"
  done | awk '!/: compile / || !seen[$0]++'  # programs share sources
} > "$out/build.ninja"
export NODE_PATH=/usr/share/nodejs
ninja -f "$out/build.ninja" ${JOBS:+-j "$JOBS"}
