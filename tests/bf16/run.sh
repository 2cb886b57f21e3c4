#!/usr/bin/env bash
# run.sh [BUILD]: tests bf16 products on emulated processors that have instructions for them.
#
#   BUILD/bf16/debian    Bochs, a boot loader, Linux from Debian, unpacked, not installed
#   BUILD/bf16/release   the build, for x86-64-v3: the instructions are detected at run time
#   BUILD/bf16/NAME      a processor: its Linux with the tests, its output (serial.txt)
#
# Bochs emulates a Sapphire Rapids with Linux, once with AMX and once without. `make test-bf16`
# installs the packages it needs and calls this. RINGSMITH_DEADLINE: limit per processor in seconds
# (3600).
# RINGSMITH_TESTS: a program to run instead of the build's tests_kernels.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
stop() { echo "test-bf16: $*" >&2; exit 6; }
[ "$(uname -m)" = x86_64 ] || stop "this is $(uname -m), not x86_64: it cannot build the tests"
build=${1:-$root/build}
mkdir -p "$build/bf16"
work=$(cd "$build" && pwd)/bf16
keys=/usr/share/keyrings/debian-archive-keyring.gpg
debian=$work/debian
library=$debian/usr/lib/x86_64-linux-gnu

# ---- Debian's packages, of a release whose Bochs has AMX, and a Linux with setcpuid ----
packages=bochs,isolinux,syslinux-common,xorriso,busybox-static,linux-image-cloud-amd64
if [ "$(cat "$work/packages" 2> /dev/null)" != $packages ]; then
  echo "test-bf16: unpacking $packages"
  rm -rf "$debian" "$work/packages"
  mmdebstrap --quiet --variant=extract --architectures=amd64 --keyring=$keys --include=$packages \
    --aptopt='APT::Default-Release "trixie-backports"' trixie "$debian" \
    "deb http://deb.debian.org/debian trixie main" "deb http://deb.debian.org/debian trixie-backports main" \
    2> "$work/debian.log" || { cat "$work/debian.log" >&2; stop "Debian's packages could not be unpacked"; }
  echo $packages > "$work/packages"
fi
theirs() { local program=$1; shift; "$library/ld-linux-x86-64.so.2" --library-path "$library" "$debian/usr/bin/$program" "$@"; }

# ---- the tests and their libraries, as an initramfs ----
tests=${RINGSMITH_TESTS:-$work/release/bin/tests_kernels}
if [ -z "${RINGSMITH_TESTS:-}" ]; then
  cmake -S "$root" -B "$work/release" -G Ninja -DCMAKE_BUILD_TYPE=Release -DRINGSMITH_ARCH=x86-64-v3 \
    > "$work/configure.log" 2>&1 || { cat "$work/configure.log" >&2; stop "cmake failed"; }
  cmake --build "$work/release" --parallel "${JOBS:-$(nproc)}" --target tests_kernels > "$work/build.log" 2>&1 ||
    { grep -E 'error|FAILED' "$work/build.log" | head -n 40 >&2; stop "the build failed: $work/build.log"; }
fi
files=$work/files
rm -rf "$files"
mkdir -p "$files"
cc -O1 -Wall -Wextra -Werror -static -o "$files/init" "$here/init.c"
strip -o "$files/test" "$tests"
ldd "$tests" | grep -oE '/[^ ]+' | sort -u | while read -r needed; do
  mkdir -p "$files$(dirname "$needed")"
  cp -L "$needed" "$files$needed"
done

# machine NAME LACKS TAG: builds the boot disc of a machine whose processor lacks the features LACKS.
machine() {
  local at=$work/$1 disc=$work/$1/disc
  rm -rf "$at"
  mkdir -p "$disc/isolinux"
  cp "$debian/usr/lib/ISOLINUX/isolinux.bin" "$debian/usr/lib/syslinux/modules/bios/ldlinux.c32" "$disc/isolinux"
  cp "$(find "$debian/boot" "$debian/usr/lib/modules" -name 'vmlinuz*' 2> /dev/null | tail -n 1)" "$disc/isolinux/vmlinuz"
  # Words are separated by tabs, because the names of test cases have spaces. The case with the tag
  # fails on a processor without the instructions.
  printf '%s\t' "bf16*,[$3]" -d yes > "$files/arguments"
  (cd "$files" && find . | "$debian/usr/bin/busybox" cpio -o -H newc 2> /dev/null | gzip -1) > "$disc/isolinux/initrd"
  # 324: XFD, without which Linux does not use AMX. Bochs 3.0 has AMX, but no XFD yet.
  cat > "$disc/isolinux/isolinux.cfg" << END
default linux
label linux
  kernel /isolinux/vmlinuz
  append initrd=/isolinux/initrd console=ttyS0,115200 quiet panic=-1 mitigations=off nokaslr setcpuid=324
END
  theirs xorriso -as mkisofs -quiet -o "$at/disc.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot \
    -boot-load-size 4 -boot-info-table "$disc" > "$at/disc.log" 2>&1 || { cat "$at/disc.log" >&2; stop "xorriso failed"; }
  cat > "$at/bochsrc" << END
display_library: rfb, options="timeout=0"
cpu: model=sapphire_rapids, ips=50000000, reset_on_triple_fault=0, exclude_features="$2"
memory: guest=512, host=512
romimage: file="$debian/usr/share/bochs/BIOS-bochs-latest"
vgaromimage: file="$debian/usr/share/vgabios/vgabios.bin"
ata0: enabled=1
ata0-master: type=cdrom, path="$at/disc.iso", status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev="$at/serial.txt"
log: "$at/bochs.log"
clock: sync=none
panic: action=fatal
END
}

emulate() {  # NAME
  exec env LTDL_LIBRARY_PATH="$library/bochs/plugins" BXSHARE="$debian/usr/share/bochs" \
    timeout --kill-after=5 "${RINGSMITH_DEADLINE:-3600}" \
    "$library/ld-linux-x86-64.so.2" --library-path "$library" "$debian/usr/bin/bochs-bin" -q -f "$work/$1/bochsrc" \
    > "$work/$1/bochs.out" 2>&1 < /dev/null
}

machine amx_bf16 la57 .amx_bf16
machine avx512_bf16 la57,amx,amx_bf16,amx_int8 .avx512_bf16
begin=$SECONDS bad=0
echo "test-bf16: two emulated processors start Linux and run the tests; some minutes"
emulate amx_bf16 & emulators=$!
emulate avx512_bf16 & emulators+=" $!"
trap 'kill $emulators 2> /dev/null || true' EXIT
wait
for name in amx_bf16 avx512_bf16; do
  printed=$(sed -E 's/\r//g; s/\x1b\[[0-9;]*m//g' "$work/$name/serial.txt" 2> /dev/null || true)
  echo "---- Bochs, a Sapphire Rapids$([ $name = amx_bf16 ] || echo " without AMX")"
  if grep -qx 'ended with 0' <<< "$printed" && grep -q '^All tests passed' <<< "$printed"; then
    grep -E '^(All tests passed|[0-9.]+ s: )' <<< "$printed"
  else
    bad=1
    tail -n 60 <<< "$printed"
    echo "test-bf16: failed, or no end within ${RINGSMITH_DEADLINE:-3600} s: $work/$name/serial.txt, bochs.log"
  fi
done
echo "test-bf16: $((SECONDS - begin)) s"
exit $bad
