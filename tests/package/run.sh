#!/usr/bin/env bash
# run.sh CASE [BUILD_DIR]: tests labs/template as a user's own program, in an empty folder outside the sources. The
# page lessons/your-own-program.md shows the usual way, which tests/lessons/check.py runs; this script has the
# unusual cases.
#
#   refusals      a package that is missing, an older C++, a prefix that is not a folder: one line
#                 with the remedy
#   prefix        a prefix with a blank, a relative prefix, ~; an upgrade removes the old version's
#                 files, and make uninstall keeps files that it did not install
#   headers       each installed header compiles alone: minutes
#   versions      one version, and ranges of them, as find_package() accepts them
#   subproject    add_subdirectory: configures only the library, and does not change the parent's
#                 settings
#   whole         the same, compiled and run: minutes
#   elsewhere     a prefix with a space in its name, which no user may write to; another user; no
#                 Ninja
#   clang         clang++ for the program, g++ for the package
#
# Exit status 77: not run, with a line that gives the reason.
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

# Checks that build/train in FOLDER learns on three ranks, with the same model on all, and resumes.
learns() {  # FOLDER [COMMAND that starts ringrun]
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
  versions)
    installed
    version=$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")/\1/p' "$prefix/lib/cmake/ringsmith/ringsmith-config-version.cmake" | head -1)
    IFS=. read -r major minor patch <<< "$version"
    here=$major.$minor next=$major.$((minor + 1)) later=$major.$((minor + 2))
    cat > "$work/versions.cmake" << 'END'
set(CMAKE_SIZEOF_VOID_P 8)
foreach(ASKED ${ALL})
  set(ringsmith_FOUND FALSE)
  find_package(ringsmith ${ASKED} QUIET CONFIG PATHS ${AT} NO_DEFAULT_PATH)
  message("${ASKED} ${ringsmith_FOUND} ${ringsmith_CONSIDERED_VERSIONS}")
endforeach()
END
    mkdir "$work/versions"
    { echo 'cmake_minimum_required(VERSION 3.22)'; echo 'project(versions LANGUAGES NONE)'; cat "$work/versions.cmake"; } \
      > "$work/versions/CMakeLists.txt"
    fits="$here $version $here...$later $here...<$later $version...$version $here...$here $here...<$next 0.0...$here"
    not="$next $major.$minor.$((patch + 1)) $next...$later 0.0...<$here $((major + 1)).0 0.0.1"
    all="$fits $not"
    try cmake -S "$work/versions" -B "$work/versions/build" -DALL="${all// /;}" -DAT="$prefix"
    for asked in $fits; do grep -qE "^$asked (1|TRUE) " "$work/log" || die "$version is not taken for $asked"; done
    for asked in $not; do grep -qE "^$asked (0|FALSE) " "$work/log" || die "$version is taken for $asked"; done
    ;;
  headers)
    installed
    cd "$prefix/include/ringsmith"
    check() { echo "#include \"$1\"" | "${CXX:-g++}" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I. -x c++ - || echo "not alone: $1"; }
    export -f check
    find . -name '*.hpp' -printf '%P\0' | sort -z | xargs -0 -P "$(nproc)" -I{} bash -c 'check {}' > "$work/log" 2>&1
    [ ! -s "$work/log" ] || die "headers that do not compile alone: $(grep -c '^not alone' "$work/log")"
    [ "$(find . -name '*.hpp' | wc -l)" -gt 100 ] || die "hardly a header is installed"
    ;;
  prefix)
    cd "$work"
    put() { "$top/.ci/install" writable "$1" > log 2>&1 && "$top/.ci/install" copy "$1" "$build" > log 2>&1 || die "failed: $1"; }
    taken_away() {  # uninstalls; nothing may be left
      try make -C "$top" uninstall PREFIX="$1"
      [ "$(find "$1" | wc -l)" = 1 ] || { find "$1" > log; die "left something in $1"; }
    }
    put "x y"
    says "ringsmith is in $work/x\\ y: cmake -DCMAKE_PREFIX_PATH=$work/x\\ y, PATH=$work/x\\ y/bin:\$PATH"
    for file in LICENSE template/main.cpp template/CMakeLists.txt manifest.txt; do
      [ -s "x y/share/ringsmith/$file" ] || die "$file is not installed"
    done
    # The manifest lists exactly the installed files; an upgrade removes the files that only the
    # older version had.
    (cd "x y" && find . ! -type d -printf '%P\n' | LC_ALL=C sort) > found
    LC_ALL=C sort "x y/share/ringsmith/manifest.txt" | diff - found > log || die "the manifest is not what is there"
    mkdir "x y/include/ringsmith/old"
    for name in old/alone.hpp runtime/old.hpp; do
      echo "include/ringsmith/$name" >> "x y/share/ringsmith/manifest.txt"
      touch "x y/include/ringsmith/$name"
    done
    touch "x y/include/ringsmith/runtime/yours.hpp" "x y/share/.yours"
    put "x y"
    [ ! -e "x y/include/ringsmith/old" ] && [ ! -e "x y/include/ringsmith/runtime/old.hpp" ] || die "older headers stay"
    [ -e "x y/include/ringsmith/runtime/yours.hpp" ] || die "another's header is gone"
    try make -C "$top" uninstall PREFIX="$work/x y"
    says "files of ringsmith were removed from $work/x y"
    (cd "x y" && find . ! -type d -printf '%P\n' | LC_ALL=C sort) > log
    printf '%s\n' include/ringsmith/runtime/yours.hpp share/.yours | diff - log > /dev/null || die "these are left"
    refused make -C "$top" uninstall PREFIX="$work/x y"
    says "make: no ringsmith in '$work/x y' (no share/ringsmith/manifest.txt): make uninstall PREFIX=/a/folder/of/yours"
    # A manifest that names a file outside the prefix is not followed.
    mkdir -p bad/share/ringsmith && touch precious && echo ../precious > bad/share/ringsmith/manifest.txt
    refused make -C "$top" uninstall PREFIX="$work/bad"
    [ -e precious ] || die "a file outside the prefix is gone"
    put relative/place
    says "ringsmith is in $work/relative/place: "
    taken_away "$work/relative/place"
    mkdir home
    HOME=$work/home put '~/ringsmith'
    says "ringsmith is in $work/home/ringsmith: "
    taken_away "$work/home/ringsmith"
    refused "$top/.ci/install" writable '~nobody/ringsmith'
    says "make: PREFIX=~nobody/ringsmith: the shell has not replaced '~nobody': make install PREFIX=/a/folder/of/yours"
    refused "$top/.ci/install" writable ''
    says 'make: PREFIX is empty: make install PREFIX=/a/folder/of/yours'
    DESTDIR=$work/stage put /opt/ringsmith
    says "ringsmith is in $work/stage/opt/ringsmith: cmake -DCMAKE_PREFIX_PATH=/opt/ringsmith, "
    [ -s "$work/stage/opt/ringsmith/share/ringsmith/manifest.txt" ] || die "no manifest under DESTDIR"
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
    grep -F 'ringsmith_train.dir/' "$work/own/build/compile_commands.json" | grep -q -- '-ffast-math.*-fno-fast-math' ||
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
    # Evaluates pkg-config's output, because otherwise the shell would split a quoted path at its blanks.
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
