#!/usr/bin/env bash
# Run by run.sh in the VM: guest.sh WHAT DEVICES BUILD_DIR
#   N        the collectives (tests_multi) on N ranks
#   large    one message of more than 2 GiB
#   train    a small training over rdma equals the same training over shm, byte for byte; by mpirun,
#            ringrun, and a ringrun on each of two nodes, as in runtime/comm/README.md's "Two machines"
#   kill     a rank is killed: the others name it
#   kills    the same $RINGSMITH_TEST_KILLS times at random moments
#   faults   wrong keys and addresses, queues at their limits (tests_rdma)
#   link     a link that is down for 3 s causes a delay; one that stays down is reported
# After each case, the kernel must have as many queue pairs, completion queues and memory regions as
# before.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
what=$1 devices=$2 bin=$3/bin
names=rxe0
for ((i = 1; i < devices; ++i)); do names+=,rxe$i; done
over_rdma=(--transport rdma --interface "$names")
export RINGSMITH_DEADLINE=${RINGSMITH_VM_SECONDS:-280}
ranks() { "$here/../support/mpirun.sh" "$@"; }
die() { echo "rdma: $1" >&2; [ $# -lt 2 ] || cat "$2" >&2; exit 1; }

# Prints the number of resources that the kernel still holds for processes.
resources() { rdma res show | awk '{for (i = 1; i < NF; ++i) if ($i == "qp" || $i == "mr" || $i == "cq") n += $(i + 1)} END {print n + 0}'; }

train() {
  local world=$1 small="--layers 1 --dim 16 --heads 2 --context 16 --batch 2 --steps 4 --validation-windows 2 --sample 0"
  head -c 20000 "$here/../../README.md" > /tmp/text
  train_one() {  # NAME COMMAND...: trains with the command's program and options
    local name=$1; shift
    # shellcheck disable=SC2086
    "$@" --data /tmp/text $small --progress off --run-dir "/tmp/$name$world" > /tmp/log 2>&1 || die "$name on $world ranks:" /tmp/log
  }
  train_one shm ranks "$world" "$bin/train_gpt" --transport shm
  train_one mpirun ranks "$world" "$bin/train_gpt" "${over_rdma[@]}"
  train_one ringrun "$bin/ringrun" --standalone --nproc-per-node "$world" -- "$bin/train_gpt" "${over_rdma[@]}"
  for name in mpirun ringrun; do
    cmp "/tmp/shm$world/model.safetensors" "/tmp/$name$world/model.safetensors"
  done
  echo "train_gpt on $world ranks: the same model over shm and rdma, byte for byte, by mpirun and ringrun"
}

two_nodes() {
  rm -f /tmp/secret /tmp/node?.log
  "$bin/ringrun" --make-secret /tmp/secret
  for node in 1 0; do
    "$bin/ringrun" --nnodes 2 --node-rank $node --master-addr 127.0.0.1 --master-port 29500 --secret-file /tmp/secret -- \
      "$bin/all_reduce_perf" -b 1K -e 256K -f 4 -n 2 --transport rdma --interface rxe0 > /tmp/node$node.log 2>&1 &
  done
  wait -n && wait -n || die "a ringrun on each of two nodes:" /tmp/node0.log
  grep -q 'Out of bounds values : 0 OK' /tmp/node0.log || die "no verdict:" /tmp/node0.log
  echo "a ringrun on each of two nodes, over rdma: every sum right"
}

# Runs all_reduce_perf on $1 ranks in the background for a long time; returns after its header.
start_busy() {
  setsid "$here/../support/mpirun.sh" "$1" "$bin/all_reduce_perf" "${over_rdma[@]}" "${@:2}" > /tmp/busy.log 2>&1 &
  busy=$!
  for ((i = 0; i < 600; ++i)); do grep -q 'out-of-place' /tmp/busy.log && break; sleep 0.1; done
  sleep 2
}

kill_one() {
  local world=$1 victim t0
  start_busy "$world" -b 256K -e 256K -n 100000 -T 20
  victim=$(pgrep -n -x all_reduce_perf)
  t0=$EPOCHREALTIME
  kill -9 "$victim"
  wait $busy && die "mpirun ended well although a rank was killed" /tmp/busy.log
  grep -q "(pid $victim\( on [^)]*\)\?) is gone" /tmp/busy.log || die "nobody named pid $victim:" /tmp/busy.log
  echo "killed pid $victim of $world ranks: named, all ended after $(awk "BEGIN {printf \"%.1f\", $EPOCHREALTIME - $t0}") s"
}

link() {
  start_busy 2 -b 256K -e 256K -n 40 -N 12 -T 12
  ip link set port1 down; sleep 3; ip link set port1 up
  wait $busy || die "a link that was down for 3 s broke the job:" /tmp/busy.log
  grep -q ' OK$\|Out of bounds values : 0 OK' /tmp/busy.log || die "no verdict:" /tmp/busy.log
  echo "link down for 3 s: waited for, every sum right"
  start_busy 2 -b 256K -e 256K -n 100000 -T 12
  ip link set port1 down
  wait $busy && die "a link that stays down was not noticed" /tmp/busy.log
  ip link set port1 up
  grep -q 'rank [01] (pid [0-9]* on [^)]*) is gone: RDMA write failed: transport retry counter exceeded\|waited [0-9]* ms for rank [01]' /tmp/busy.log || die "nobody named the peer:" /tmp/busy.log
  echo "link down for good: $(grep -om1 'is gone: RDMA write failed[^;]*\|waited [0-9]* ms for rank [01]' /tmp/busy.log)"
}

before=$(resources)
case $what in
  train) train 2; train 3; two_nodes ;;
  kill) kill_one 2; kill_one 3 ;;
  kills) RINGSMITH_TEST_TRANSPORT=rdma RINGSMITH_TEST_SLOWNESS=5 "$bin/tests_fault" "[kills]" ;;
  faults) RINGSMITH_TEST_RDMA=$names "$bin/tests_rdma" ;;
  link) link ;;
  large) ranks 2 "$bin/tests_multi" "${over_rdma[@]}" "[.large]" ;;
  *) ranks "$what" "$bin/tests_multi" "${over_rdma[@]}" "[comm],[two_groups]" ;;
esac
for ((i = 0; i < 300; ++i)); do [ "$(resources)" = "$before" ] && break; sleep 0.1; done
after=$(resources)
[ "$after" = "$before" ] || { rdma res show; die "$after queue pairs, queues and regions are left, $before before"; }
echo "rdma: guest finished"
