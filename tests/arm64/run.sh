#!/usr/bin/env bash
# run.sh [BUILD [ROOM...]]: builds ringsmith for arm64 on an x86 machine, with a cross compiler and Debian's arm64
# packages, and tests it with rooms.sh. If ROOMs are given, tests only those rooms.
#
#   BUILD/arm64/sysroot   the packages, unpacked, not installed
#   BUILD/arm64/gcc       the build, for armv8.2-a (RINGSMITH_CROSS=clang: BUILD/arm64/clang)
#   BUILD/release         ringrun and the training programs for this machine: the models to compare with
#
# `make test-arm64` installs the packages it needs and calls this. Needs root, or a user who may create user namespaces.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
stop() { echo "test-arm64: $*" >&2; exit 6; }
[ "$(uname -m)" = x86_64 ] || stop "this is $(uname -m), not x86_64: where it is arm64, 'make test' is the test"
build=${1:-$root/build}
shift $(($# > 0))
mkdir -p "$build/arm64"
build=$(cd "$build" && pwd)
work=$build/arm64
compiler=${RINGSMITH_CROSS:-gcc}
jobs=${JOBS:-$(nproc)}
for program in aarch64-linux-gnu-g++ qemu-aarch64-static mmdebstrap; do
  command -v $program > /dev/null || stop "no $program here: 'make test-arm64' installs what is needed"
done

# ---- the arm64 packages, from the same source as this machine's ----
packages=(libc6-dev libstdc++-"$(aarch64-linux-gnu-gcc -dumpversion | cut -d. -f1)"-dev libopenmpi-dev libibverbs-dev
          libssl-dev libopenblas0-pthread libboost-context-dev catch2 libcli11-dev libfmt-dev nlohmann-json3-dev)
if [ "$(cat "$work/packages" 2> /dev/null)" != "${packages[*]}" ]; then
  echo "test-arm64: unpacking ${packages[*]} for arm64"
  . /etc/os-release
  sources=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
            grep -E " $VERSION_CODENAME(-updates|-security)? " | sort -u)
  # Ubuntu keeps packages for other architectures on another server.
  [ "$ID" != ubuntu ] || sources=$(sed -E 's#https?://[^ ]*#http://ports.ubuntu.com/ubuntu-ports/#' <<< "$sources" | sort -u)
  rm -rf "$work/sysroot" "$work/packages"
  mkdir "$work/sysroot"
  # Leaves out programs and settings: the emulator looks in this folder first, but must find this machine's.
  mmdebstrap --quiet --variant=extract --architectures=arm64 --skip=check/qemu --format=tar \
    --include="$(IFS=,; echo "${packages[*]}")" "$VERSION_CODENAME" - - <<< "$sources" 2> "$work/sysroot.log" |
    tar -x -C "$work/sysroot" --no-same-owner --wildcards ./lib ./usr/lib ./usr/include './usr/share/*cmake*' ||
    { cat "$work/sysroot.log" >&2; stop "the arm64 packages could not be unpacked"; }
  # Absolute links must lead to files in the sysroot, not to this machine's.
  find "$work/sysroot" -type l -lname '/*' | while read -r link; do
    ln -snf "$work/sysroot$(readlink "$link")" "$link"
  done
  # An installation would have created this link.
  ln -s openblas-pthread/libopenblas.so.0 "$work/sysroot/usr/lib/aarch64-linux-gnu/libopenblas.so.0"
  echo "${packages[*]}" > "$work/packages"
fi

# ---- the builds ----
cross=$work/$compiler
cmake -S "$root" -B "$cross" -G Ninja -DCMAKE_BUILD_TYPE=Release -DRINGSMITH_ARCH=armv8.2-a \
  -DCMAKE_TOOLCHAIN_FILE="$here/toolchain.cmake" -DRINGSMITH_SYSROOT="$work/sysroot" -DRINGSMITH_CROSS="$compiler" \
  > "$work/configure.log" 2>&1 || { cat "$work/configure.log" >&2; stop "cmake failed"; }
mapfile -t rooms < <([ $# -gt 0 ] && printf '%s\n' "$@" || "$here/rooms.sh" --list)
targets=()
for room in "${rooms[@]}"; do
  case $room in
    training)
      targets+=(train_mlp train_gpt ringrun)
      cmake --preset release -S "$root" -B "$build/release" -G Ninja > "$work/native.log" 2>&1 ||
        { cat "$work/native.log" >&2; stop "cmake failed"; }
      cmake --build "$build/release" --parallel "$jobs" --target train_mlp train_gpt ringrun > "$work/native.log" 2>&1 ||
        { tail -n 40 "$work/native.log" >&2; stop "the build for this machine failed"; }
      ;;
    *) targets+=("tests_$room") ;;
  esac
done
begin=$SECONDS
cmake --build "$cross" --parallel "$jobs" --target "${targets[@]}" > "$work/build.log" 2>&1 ||
  { grep -E 'error|FAILED' "$work/build.log" | head -n 40 >&2; stop "the build failed: $work/build.log"; }
aarch64-linux-gnu-gcc -shared -fPIC -O1 -Wall -Wextra -Werror -o "$work/small_machine.so" "$here/small_machine.c"
echo "test-arm64: built by $compiler in $((SECONDS - begin)) s; $(qemu-aarch64-static --version | head -n 1)"

# Programs that start programs need the emulator registered with the kernel. If it is not, it is
# registered in a new namespace (Linux 6.7), which ends with all its processes.
if "$here/rooms.sh" --probe "$build" "$compiler"; then
  exec "$here/rooms.sh" "$build" "$compiler" "${rooms[@]}"
fi
exec unshare --user --map-root-user --mount --pid --fork --mount-proc --kill-child "$here/rooms.sh" --register "$build" "$compiler" "${rooms[@]}"
