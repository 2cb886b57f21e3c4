#!/usr/bin/env bash
# mpirun.sh WORLD PROGRAM [ARGS...]: starts PROGRAM on WORLD ranks, also as root and on fewer cores.
# RINGSMITH_DEADLINE (seconds, default 240; 0: none) bounds the whole group: past it every rank is
# killed, and a line says so. Without an mpirun on the machine, ringrun starts the ranks.
set -u
world=$1
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_base_warn_component_unused=0 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
# Ranks share two cores: one BLAS thread each.
export OPENBLAS_NUM_THREADS=1
deadline=${RINGSMITH_DEADLINE:-240}
run=(mpirun --bind-to none --oversubscribe -np "$world" "$@")
command -v mpirun > /dev/null ||
  run=("$(dirname "$1")/ringrun" --standalone --nproc-per-node "$world" --no-prefix -- "$@")
[ "$deadline" = 0 ] && exec "${run[@]}"  # in the terminal's foreground: Ctrl-C reaches it
timeout --signal=TERM --kill-after=5 "$deadline" "${run[@]}" <&0 &
group=$!
trap 'kill -TERM $group' TERM INT HUP
wait $group
code=$?
[ $code -gt 128 ] && kill -0 $group 2>/dev/null && wait $group  # the wait was broken by a signal
# 124 and 137 are timeout's own; a program that is killed by a signal ends mpirun with another code.
if [ $code -eq 124 ] || [ $code -eq 137 ]; then
  echo "mpirun.sh: $world ranks of $1 did not end within $deadline s; all were killed" >&2
fi
exit $code
