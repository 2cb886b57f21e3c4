#!/usr/bin/env bash
# mpirun.sh WORLD PROGRAM [ARGS...]: starts PROGRAM on WORLD ranks, also as root and on fewer cores.
# RINGSMITH_DEADLINE (seconds, default 240) bounds the whole group: past it every rank is killed.
set -u
world=$1
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_base_warn_component_unused=0 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
# Ranks share two cores: one BLAS thread each.
export OPENBLAS_NUM_THREADS=1
exec timeout --signal=TERM --kill-after=5 "${RINGSMITH_DEADLINE:-240}" \
  mpirun --bind-to none --oversubscribe -np "$world" "$@"
