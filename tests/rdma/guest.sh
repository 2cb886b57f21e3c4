#!/usr/bin/env bash
# What run.sh runs in the VM: guest.sh WORLD|train|kill DEVICES BUILD_DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
what=$1 devices=$2 bin=$3/bin
names=rxe0
for ((i = 1; i < devices; ++i)); do names+=,rxe$i; done
export RINGSMITH_DEADLINE=260
ranks() { "$here/../support/mpirun.sh" "$@"; }

# Queue pairs and memory regions that the kernel still holds for somebody.
resources() { rdma res show | awk '{for (i = 1; i < NF; ++i) if ($i == "qp" || $i == "mr" || $i == "cq") n += $(i + 1)} END {print n + 0}'; }

# One small training over each transport: the model must be the same, byte for byte.
train() {
  local world=$1
  head -c 20000 "$here/../../README.md" > /tmp/text
  for transport in shm rdma; do
    ranks "$world" "$bin/train_gpt" --data /tmp/text --layers 1 --dim 16 --heads 2 --context 16 --batch 2 \
      --steps 4 --validation-windows 2 --sample 0 --transport "$transport" --progress off \
      $([ "$transport" = rdma ] && echo --interface "$names") --run-dir "/tmp/$transport$world" > /tmp/log 2>&1 ||
      { cat /tmp/log; return 1; }
  done
  cmp "/tmp/shm$world/model.safetensors" "/tmp/rdma$world/model.safetensors"
  echo "train_gpt on $world ranks: the same model over shm and rdma, byte for byte"
}

# A rank is killed while all of them call all_reduce without end: the others name it and end.
kill_one() {
  local world=$1 log=/tmp/kill.log
  setsid "$here/../support/mpirun.sh" "$world" "$bin/all_reduce_perf" --transport rdma --interface "$names" \
    -b 256K -e 256K -n 100000 -T 20 > "$log" 2>&1 &
  for ((i = 0; i < 300; ++i)); do grep -q 'out-of-place' "$log" && break; sleep 0.1; done
  sleep 2
  local victim t0 t1
  victim=$(pgrep -n -x all_reduce_perf)
  t0=$(date +%s%N)
  kill -9 "$victim"
  wait $! && { echo "mpirun ended well although a rank was killed"; cat "$log"; return 1; }
  t1=$(date +%s%N)
  grep -q "(pid $victim\( on [^)]*\)\?) is gone" "$log" || { echo "nobody named pid $victim:"; cat "$log"; return 1; }
  echo "killed pid $victim of $world ranks: named, all ended after $(((t1 - t0) / 1000000)) ms"
}

before=$(resources)
case $what in
  train) train 2; train 3 ;;
  kill) kill_one 2; kill_one 3 ;;
  *) ranks "$what" "$bin/tests_multi" --transport rdma --interface "$names" "[comm]" ;;
esac
for ((i = 0; i < 50; ++i)); do [ "$(resources)" = "$before" ] && break; sleep 0.1; done
after=$(resources)
[ "$after" = "$before" ] || { echo "rdma: $after queue pairs, queues and regions are left, $before before:"; rdma res show; exit 1; }
echo "rdma: guest finished"
