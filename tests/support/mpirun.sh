#!/usr/bin/env bash
# mpirun.sh WORLD PROGRAM [ARGS...]: starts PROGRAM on WORLD ranks, also as root and on fewer cores.
# RINGSMITH_DEADLINE (seconds, default 240; 0: none) bounds the whole group. After the deadline every
# rank is killed, and a line reports it. Without an mpirun on the machine, ringrun starts the ranks.
set -u
world=$1
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_base_warn_component_unused=0 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
# Ranks share two cores, so each uses one BLAS thread.
export OPENBLAS_NUM_THREADS=1
# Open MPI stores its session in this folder. If the folder is unusable, it would print 30 lines.
for variable in TMPDIR TEMP TMP; do
  folder=${!variable:-}
  [ -z "$folder" ] || break
done
if [ ! -d "${folder:-/tmp}" ] || [ ! -w "${folder:-/tmp}" ]; then
  echo "mpirun.sh: ${folder:+$variable=}${folder:-/tmp} cannot be written to: set TMPDIR to a folder that can" >&2
  exit 6
fi
deadline=${RINGSMITH_DEADLINE:-240}
run=(mpirun --bind-to none --oversubscribe -np "$world" "$@")
command -v mpirun > /dev/null ||
  run=("$(dirname "$1")/ringrun" --standalone --nproc-per-node "$world" --no-prefix -- "$@")
interrupted=
if [ "$deadline" = 0 ]; then  # in the terminal's foreground, so that Ctrl-C reaches mpirun
  "${run[@]}" <&0 &
  group=$!
  trap 'interrupted=1' INT
  trap 'kill -TERM $group' TERM HUP
else
  timeout --signal=TERM --kill-after=5 "$deadline" "${run[@]}" <&0 &
  group=$!
  trap 'interrupted=1; kill -TERM $group' INT
  trap 'kill -TERM $group' TERM HUP
fi
began=$SECONDS
wait $group 2>/dev/null  # also hides bash's message about a timeout that killed itself
code=$?
while [ $code -gt 128 ] && kill -0 $group 2>/dev/null; do  # a signal interrupted the wait
  wait $group 2>/dev/null
  code=$?
done
# 124 and 137 are timeout's codes after the deadline; Open MPI 5 also exits with 137 for a killed
# rank.
if { [ $code -eq 124 ] || [ $code -eq 137 ]; } && [ $((SECONDS - began)) -ge "${deadline%.*}" ] && [ "$deadline" != 0 ]; then
  echo "mpirun.sh: $world ranks of $1 did not end within $deadline s; all were killed" >&2
fi
if [ -n "$interrupted" ]; then
  [ -t 2 ] && printf '\r\033[K' >&2  # there may be a progress line
  for ((i = 1; i < $#; ++i)); do
    [ "${!i}" = --run-dir ] && { ((++i)); folder=${!i}; [ ! -d "$folder" ] || wrote="; what it wrote is in $folder"; }
  done
  echo "mpirun.sh: interrupted${wrote:-}" >&2
  trap - INT
  kill -INT $$  # so that the caller sees the signal
fi
exit $code
