#!/usr/bin/env bash
# run.sh CASE [BUILD_DIR]: labs/template as somebody's own program, in an empty folder outside the sources. The page
# lessons/your-own-program.md has the plain way, which tests/lessons/check.py runs; here is what strangers have.
#
#   refusals      a package that is missing, an older C++, a prefix that is no folder: one line with the remedy
#   subproject    add_subdirectory: configures the library alone, and leaves the parent's settings as they are
#   whole         the same, compiled and run: minutes
#   elsewhere     a prefix with a space in its name, which nobody may write to; another user; no Ninja
#   clang         clang++ for the program, g++ for the package
#
# Exit status 77 with a line that says why: not run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
what=${1:?a case; see the head of this file}
build=$(realpath "${2:-$top/build/release}")
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
unset "${!MAKE@}" "${!CMAKE_@}" DESTDIR

not_run() { echo "package: NOT RUN: $1" >&2; exit 77; }
die() { echo "package: $what: $*" >&2; cat "$work/log" >&2; exit 1; }
try() { "$@" > "$work/log" 2>&1 || die "failed: $*"; }
says() { tr -s '\n ' ' ' < "$work/log" | grep -qF -- "$1" || die "does not say: $1"; }
refused() { ! "$@" > "$work/log" 2>&1 || die "should have failed: $*"; }

prefix=$work/prefix
installed() { try cmake --install "$build" --prefix "$prefix"; }
copied() { mkdir -p "$1" && cp "$top"/labs/template/* "$1"; }

# In FOLDER, build/train on three ranks learns, all of them come to the same, and it goes on from the checkpoint.
learns() {  # FOLDER [what starts ringrun]
  local folder=$1
  shift
  cd "$folder"
  try "$@" "$prefix/bin/ringrun" --standalone --nproc-per-node 3 build/train 2
  cp "$work/log" "$work/first"
  try "$@" "$prefix/bin/ringrun" --standalone --nproc-per-node 3 build/train 3 --resume
  cat "$work/first" "$work/log" | awk '
      / epoch / { loss[$3 + 0] = $NF }
      / of 3: / { text = $7 " " $NF; ++ranks[text]; accuracy = $7 + 0; kinds += ranks[text] == 1 }
      END { for (text in ranks) if (ranks[text] != 3) exit 1
            exit !(kinds == 2 && loss[1] > loss[2] && loss[2] > loss[3] && loss[3] > 0 && accuracy > 0.9) }' ||
    { cat "$work/first" >&2; die "the loss does not fall, the ranks disagree, or it reads badly"; }
}

case $what in
  refusals)
    installed
    copied "$work/own"
    sed -i 's,"libfmt-dev=[^"]*","libfmt-dev=/nowhere/libfmt.so",' "$prefix/lib/cmake/ringsmith/ringsmith-config.cmake"
    refused cmake -S "$work/own" -B "$work/own/build" -DCMAKE_PREFIX_PATH="$prefix"
    says '/nowhere/libfmt.so, with which ringsmith was built, is missing: apt install libfmt-dev'
    refused "${CXX:-g++}" -std=c++17 -fsyntax-only -I"$prefix/include/ringsmith" "$work/own/main.cpp"
    says 'ringsmith is C++20: compile with -std=c++20'
    echo a file > "$work/file"
    refused make -C "$top" install BUILD="$(dirname "$build")" PRESET="$(basename "$build")" PREFIX="$work/file"
    says "make: cannot write to '$work/file': make install PREFIX=/a/folder/of/yours"
    ;;
  subproject | whole)
    copied "$work/own"
    sed -i 's,find_package(ringsmith REQUIRED),add_subdirectory("${RINGSMITH}" ringsmith),' "$work/own/CMakeLists.txt"
    cat >> "$work/own/CMakeLists.txt" << 'END'
enable_testing()
foreach(NAME CMAKE_RUNTIME_OUTPUT_DIRECTORY CMAKE_CXX_STANDARD CMAKE_CXX_FLAGS CMAKE_CXX_COMPILER_LAUNCHER)
  if(DEFINED ${NAME} AND NOT "${${NAME}}" STREQUAL "${OWN_${NAME}}")
    message(FATAL_ERROR "${NAME} has become ${${NAME}}")
  endif()
endforeach()
foreach(NAME ringrun train_gpt lesson06_ring tests_comm installed nvcc_check)
  if(TARGET ${NAME})
    message(FATAL_ERROR "there is a target ${NAME}")
  endif()
endforeach()
END
    sed -i '/^project/a add_compile_options(-ffast-math)' "$work/own/CMakeLists.txt"
    try cmake -S "$work/own" -B "$work/own/build" -DRINGSMITH="$top" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
    line=$(grep -F '"command"' "$work/own/build/compile_commands.json" | grep -F "$work/own/main.cpp")
    case $line in *-Werror* | *-march* | *-ffp-contract*) echo "$line" > "$work/log"; die "its flags are not its own" ;; esac
    ! grep -qF -- -Werror "$work/own/build/compile_commands.json" || die "-Werror in somebody else's build"
    grep -F '/runtime/nn/gpt.cpp"' -B 3 "$work/own/build/compile_commands.json" | grep -q -- '-ffast-math.*-fno-fast-math' ||
      die "its -ffast-math is ours"
    ctest --test-dir "$work/own/build" -N > "$work/log"
    says 'Total Tests: 0'
    if [ "$what" = whole ]; then
      installed  # for ringrun
      ccache=$(command -v ccache || true)
      try cmake -D{,OWN_}CMAKE_CXX_COMPILER_LAUNCHER="$ccache" "$work/own/build"
      try cmake --build "$work/own/build" --parallel "$(nproc)"
      learns "$work/own"
    fi
    ;;
  elsewhere)
    [ "$(id -u)" = 0 ] || not_run "only root can be another user"
    prefix="$work/where I put it"
    installed
    chmod -R a-w "$prefix"
    other=(env -i PATH="$PATH" LANG=C.UTF-8 setpriv --reuid 54321 --regid 54321 --clear-groups)
    chmod 755 "$work"
    "${other[@]}" test -x "$prefix/bin/ringrun" || not_run "other users cannot reach $work"
    copied "$work/my own program"
    chown -R 54321:54321 "$work/my own program"
    try "${other[@]}" cmake -G "Unix Makefiles" -S "$work/my own program" -B "$work/my own program/build" \
      -DCMAKE_PREFIX_PATH="$prefix"
    try "${other[@]}" cmake --build "$work/my own program/build"
    learns "$work/my own program" "${other[@]}"
    # A shell divides what pkg-config prints at blanks, unless it reads it as words.
    export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
    eval "set -- $(pkg-config --cflags --libs ringsmith)"
    try "${CXX:-g++}" -std=c++20 main.cpp "$@" -o build/by_hand
    try build/by_hand 1
    says 'rank 0 of 1: accuracy 0.'
    ;;
  clang)
    command -v clang++ > /dev/null || not_run "no clang++"
    installed
    copied "$work/own"
    try cmake -S "$work/own" -B "$work/own/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER=clang++
    try cmake --build "$work/own/build"
    learns "$work/own"
    ;;
  *) die "no such case" ;;
esac
echo "package: $what: passed"
