#!/usr/bin/env bash
# run.sh WORLD [DEVICES] [BUILD_DIR]: the RDMA tests of one world, in a VM with soft-RoCE devices.
# run.sh train|kill [DEVICES] [BUILD_DIR]: training over RDMA, and ranks that die.
#
# The VM (vm/run-in-softroce-vm.sh) runs this host's programs under QEMU without its own processor's
# newest instructions, so BUILD_DIR (default build/vm) is a build for x86-64-v3: `make test-rdma`.
# Exit status 77 with a line that says why: not run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
what=${1:?world size, train or kill}
devices=${2:-2}
dir=$(realpath -m "${3:-$here/../../build/vm}")

not_run() { echo "rdma: NOT RUN: $1; 'make test-rdma' installs and builds what is needed" >&2; exit 77; }
for program in qemu-system-x86_64 busybox rdma; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$program" > /dev/null || not_run "no $program here"
done
[ -x "$dir/bin/tests_multi" ] || not_run "no programs for the VM in $dir"
[ -n "$(find /usr/lib -name 'librxe-rdmav*.so' -print -quit 2> /dev/null)" ] || not_run "no librxe (ibverbs-providers)"

# A VM that has not finished says no last line: then its exit status means nothing.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$here/vm/run-in-softroce-vm.sh" -t 280 -n "$devices" -- "$here/guest.sh" "$what" "$devices" "$dir" 2>&1 | tee "$log" || status=$?
grep -q '^rdma: guest finished$' "$log" || { echo "rdma: the VM ended before the tests did (status $status)" >&2; exit 1; }
