#!/usr/bin/env bash
# run.sh WHAT [DEVICES] [DIR]: tests RDMA in a VM with soft-RoCE devices. WHAT: see guest.sh.
#
# The VM (vm/run-in-softroce-vm.sh) runs this host's programs under QEMU, whose processor lacks the newest
# instructions. Therefore the programs in DIR (default build/release/vm) are built for it (programs.cmake).
# RINGSMITH_VM_SECONDS: the VM's deadline (280). Exit status 77: not run, with a line that gives the
# reason.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
what=${1:?a world size, or one of the cases of guest.sh}
devices=${2:-2}
dir=$(realpath -m "${3:-$here/../../build/release/vm}")

not_run() { echo "rdma: NOT RUN: $1; 'make test-rdma' installs and builds what is needed" >&2; exit 77; }
for program in qemu-system-x86_64 busybox rdma xz zstd; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$program" > /dev/null || not_run "no $program here"
done
[ -x "$dir/bin/tests_multi" ] || not_run "no programs for the VM in $dir"
[ -n "$(find /usr/lib -name 'librxe-rdmav*.so' -print -quit 2> /dev/null)" ] || not_run "no librxe (ibverbs-providers)"

# A VM that does not finish prints no last line, and its exit status means nothing.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$here/vm/run-in-softroce-vm.sh" -t "${RINGSMITH_VM_SECONDS:-280}" -n "$devices" -- "$here/guest.sh" "$what" "$devices" "$dir" 2>&1 | tee "$log" || status=$?
grep -q 'softroce-vm: apt-get download' "$log" && not_run "no kernel package can be downloaded, and none is in the cache"
grep -q '^rdma: guest finished$' "$log" || { echo "rdma: the VM ended before the tests did (status $status)" >&2; exit 1; }
