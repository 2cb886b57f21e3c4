#!/usr/bin/env bash
# run.sh CASE [BUILD_DIR]: tests ranks on two "machines". These are network namespaces, each with a host name and
# an address, joined by a switch whose cables can be slow, lossy, or cut (netns-cluster.sh).
#
#   comm        2 + 2 ranks by mpirun: shared memory within a node, TCP between them, all
#               collectives
#   bytes       4 + 4 ranks: each algorithm sends as many bytes between the nodes as its schedule
#               says, and hierarchical 1/4 of the pairwise exchange, 4/7 of the ring
#   loss        the same link losing 1 % of its frames: slower, but right
#   train       the same training on 2 + 1 ranks by ringrun and on 3 ranks of one host: the same model
#   heal        a cable that is cut for 3 s, within the deadline: only a delay
#   partition   a cable that stays cut: every rank names the rank it waits for, at its deadline
#   kill        all processes of a node are killed: the others name a rank of that node immediately
#   elastic     training on 2 + 2 ranks that loses node 1 and gets it back, twice: every sample of
#               every epoch is in the model once, according to the ranks' records and to the model
#               itself
#   elastic-cut the same, but the node falls silent, as if its power had failed
#   sweep       all of tests_multi on 2, 3, 4 and 8 ranks over four nodes (minutes)
#   long-heal   a cut of 20 s, within the deadline of 30 s (a minute)
#
# Exit status 77: not run, with a line that gives the reason.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
what=${1:?comm, bytes, loss, train, heal, partition, kill, elastic, elastic-cut, sweep or long-heal}
bin=$(realpath "${2:-$here/../../build/release}")/bin
work=$(mktemp -d)
export NETNS_CLUSTER="ringsmith-$what-$$" NETNS_CLUSTER_DIR="$work/cluster" PATH="$PATH:/usr/sbin:/sbin"
cluster="$here/netns-cluster.sh"
trap '"$cluster" down > /dev/null 2>&1; rm -rf "$work"' EXIT

not_run() { echo "nodes: NOT RUN: $1" >&2; exit 77; }
command -v ip > /dev/null && command -v bridge > /dev/null || not_run "no ip here (apt-get install iproute2)"
unshare --net true 2> /dev/null || not_run "no right to make network namespaces: run the tests as root, and in a container with --privileged"
unshare --net --mount --propagation private true 2> /dev/null ||
  not_run "namespaces need a root folder that is a mount point; in a chroot: mount --bind ROOT ROOT before entering it"

up() { "$cluster" up "${nodes:-2}" "$@" > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; exit 1; }; }
die() { echo "nodes: $*" >&2; for log in "$work"/node?.log; do echo "---- $log"; tail -n 30 "$log"; done >&2; exit 1; }

# on_both PER_NODE PROGRAM ARGS...: PER_NODE ranks on node 0, one fewer (but at least one) on node
# 1.
on_both() {
  local ranks=$1 node per
  shift
  [ -s "$work/secret" ] || "$bin/ringrun" --make-secret "$work/secret"
  pids=()
  for node in 0 1; do
    per=$((node == 0 || ranks == 1 ? ranks : ranks - 1))
    "$cluster" exec "node$node" timeout 240 "$bin/ringrun" --nnodes 2 --node-rank "$node" --master-addr 10.88.0.1 \
      --master-port 29511 --secret-file "$work/secret" --nproc-per-node "$per" -- "$@" > "$work/node$node.log" 2>&1 &
    pids+=($!)
  done
}
# elastic_node N LOG: starts node N of an elastic job with the tutorials' command line; its output
# goes to LOG.log.
elastic_node() {
  "$cluster" exec "node$1" env HOME="$work" timeout 280 "$bin/ringrun" --nnodes=1:2 --nproc_per_node=2 --max_restarts=3 \
    --rdzv_id=job123 --rdzv_backend=c10d --rdzv_endpoint=10.88.0.1:29400 --rdzv_conf=last_call_timeout=1 \
    "$bin/elastic_train" "$work/run" "$epochs" > "$work/$2.log" 2>&1 &
  pids+=($!)
}
# until_ranks N: waits for a new round with N ranks, whose rank 0 has made four steps.
until_ranks() {
  local seen=${round:--1} begun
  for ((i = 0; i < 1200; ++i)); do
    sleep 0.1
    round=$(cd "$work/run" && ls begun.* 2> /dev/null | sed 's/.*\.//' | sort -n | tail -n 1)
    [ "${round:--1}" -gt "$seen" ] && [ -e "$work/run/taken.$round.$(($1 - 1))" ] && [ ! -e "$work/run/taken.$round.$1" ] || continue
    begun=$(cat "$work/run/begun.$round")
    awk -v step=$((begun + 4)) '$1 >= step { found = 1 } END { exit !found }' "$work/run/taken.$round.0" && return
  done
  die "no round with $1 ranks"
}
# Counts the samples in the model: each round's steps up to the checkpoint from which the next round started.
count_samples() {
  for round in $(seq 0 "$1"); do
    begun=$(cat "$work/run/begun.$((round + 1))" 2> /dev/null || echo $((epochs * 20)))
    awk -v end="$begun" -v round="$round" '{ for (i = 3; i <= NF; ++i) print ($1 < end ? "kept" : "lost"), round, $1, $2, $i }' \
      "$work/run/taken.$round".*
  done > "$work/samples"
  awk '$1 == "kept" { print $4, $5 }' "$work/samples" | sort | uniq -c | awk -v epochs="$epochs" '
    $1 != 1 { print "sample " $3 " of epoch " $2 " is in the model " $1 " times"; bad = 1 }
    { ++n[$2] }
    END { for (e = 0; e < epochs; ++e) if (n[e] != 240) { print "epoch " e " has " n[e] " of 240 samples"; bad = 1 }; exit bad }' ||
    die "not every sample once in each epoch"
  # At most four steps are lost: the three since the last checkpoint, and the next one, which the other ranks may have
  # started while rank 0 writes a checkpoint.
  awk '$1 == "lost" && !seen[$2 " " $3]++ { if (++n[$2] > 4) exit 1 }' "$work/samples" || die "more repeated than since the last checkpoint"
}
# Waits until the ranks measure, then a moment longer.
in_the_middle() {
  for ((i = 0; i < 300; ++i)); do grep -q out-of-place "$work/node0.log" && break; sleep 0.1; done
  sleep 1
}
endless="$bin/all_reduce_perf -b 256K -e 256K -n 20000 -N 0"

case $what in
  comm) up; timeout 250 "$cluster" mpi mpirun -np 4 --mca btl self,tcp "$bin/tests_multi" "[comm]" ;;
  bytes) up; timeout 250 "$cluster" mpi mpirun -np 8 --npernode 4 --mca btl self,tcp "$bin/tests_multi" "[nodes]" ;;
  loss)
    up --delay 100us --loss 1 --wire user
    on_both 2 "$bin/all_reduce_perf" -b 1K -e 256K -f 16 -n 3
    for pid in "${pids[@]}"; do wait "$pid" || die "a ringrun failed"; done
    grep -q 'Out of bounds values : 0 OK' "$work/node0.log" || die "wrong values, or none"
    "$cluster" status | grep -A 2 lost ;;
  train)
    up
    head -c 20000 "$here/../../README.md" > "$work/text"
    small=(--data "$work/text" --layers 1 --dim 16 --heads 2 --context 16 --batch 2 --steps 6
           --validation-windows 2 --sample 0 --progress off)
    on_both 2 "$bin/train_gpt" "${small[@]}" --run-dir "$work/two"
    for pid in "${pids[@]}"; do wait "$pid" || die "a ringrun failed"; done
    "$bin/ringrun" --standalone --nproc-per-node 3 -- "$bin/train_gpt" "${small[@]}" --run-dir "$work/one" \
      > "$work/node9.log" 2>&1 || die "training on one host failed"
    cmp "$work/one/model.safetensors" "$work/two/model.safetensors"
    echo "2 + 1 ranks on two nodes train the model that 3 ranks of one host train, byte for byte" ;;
  sweep)
    nodes=4 up
    for ranks in 2 3 4 8; do
      "$cluster" mpi mpirun --oversubscribe --map-by node -np $ranks --mca btl self,tcp "$bin/tests_multi"
    done ;;
  heal)
    up
    on_both 1 "$bin/all_reduce_perf" -b 256K -e 256K -n 3000 -T 20
    in_the_middle
    "$cluster" partition node1; sleep 3; "$cluster" heal node1
    for pid in "${pids[@]}"; do wait "$pid" || die "a cut of 3 s broke a job with a deadline of 20 s"; done
    grep -q 'Out of bounds values : 0 OK' "$work/node0.log" || die "wrong values, or none"
    echo "cut for 3 s: healed" ;;
  long-heal)
    up
    on_both 1 "$bin/all_reduce_perf" -b 256K -e 256K -n 3000 -T 30
    in_the_middle
    "$cluster" partition node1; sleep 20; "$cluster" heal node1
    start=$(date +%s)
    for pid in "${pids[@]}"; do wait "$pid" || die "a cut of 20 s broke a job with a deadline of 30 s"; done
    grep -q 'Out of bounds values : 0 OK' "$work/node0.log" || die "wrong values, or none"
    echo "cut for 20 s: healed; the rest took $(($(date +%s) - start)) s" ;;
  partition)
    up
    on_both 1 $endless -T 4
    in_the_middle
    "$cluster" partition node1
    SECONDS=0
    for pid in "${pids[@]}"; do wait "$pid" && die "a ringrun ended well without a network"; done
    [ "$SECONDS" -le 15 ] || die "a deadline of 4 s ended the job after $SECONDS s"
    grep -q 'waited 4000 ms for rank 1' "$work/node0.log" || die "rank 0 did not name rank 1"
    grep -q 'waited 4000 ms for rank 0' "$work/node1.log" || die "rank 1 did not name rank 0"
    grep -h 'waited 4000' "$work"/node?.log ;;
  kill)
    up
    on_both 2 $endless -T 20
    in_the_middle
    start=$(date +%s%N)
    "$cluster" kill node1
    wait "${pids[0]}" && die "ringrun on node 0 ended well although node 1 died"
    took=$((($(date +%s%N) - start) / 1000000))
    grep -Eq 'rank 2 \(pid [0-9]+ on node1\) is gone: ' "$work/node0.log" || die "nobody named rank 2"
    [ "$took" -lt 5000 ] || die "that took $took ms"
    echo "node 1 killed: named, all ended after $took ms" ;;
  elastic | elastic-cut)
    up
    mkdir "$work/run"
    epochs=12 pids=()
    elastic_node 0 node0
    elastic_node 1 node1
    until_ranks 4
    for again in 1 2; do
      lost=${pids[-1]}
      if [ "$what" = elastic ]; then "$cluster" kill node1; else "$cluster" crash node1; fi
      { wait "$lost"; } 2> /dev/null && die "the ringrun that was killed ended well"
      until_ranks 2
      [ "$what" = elastic ] || "$cluster" heal node1
      elastic_node 1 "node1-again-$again"
      until_ranks 4
    done
    for pid in "${pids[0]}" "${pids[-1]}"; do wait "$pid" || die "a ringrun failed"; done
    grep -q "w = -$((epochs * 240 * 239 / 2))\$" "$work/node0.log" || die "the model has not seen each sample once per epoch"
    count_samples "$round"
    grep -h 'ringrun: round' "$work/node0.log"
    awk '{ ++n[$1] } END { print n["kept"] " samples of '$epochs' epochs, each once; " n["lost"] + 0 " were seen again after a loss" }' "$work/samples" ;;
  *) echo "run.sh: unknown case '$what'" >&2; exit 6 ;;
esac
