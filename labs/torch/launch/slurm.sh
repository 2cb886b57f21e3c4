#!/bin/bash
#SBATCH --job-name=train --nodes=2 --ntasks-per-node=2 --cpus-per-task=4 --time=01:00:00
# slurm.sh PROGRAM...: sbatch starts one rank per task. Variables are those of PyTorch's env://.
set -eu
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))  # below the ephemeral ports; another job has another one
export WORLD_SIZE=$SLURM_NTASKS OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
export USE_LIBUV=0  # Debian 13's PyTorch 2.6 has no libuv
# shellcheck disable=SC2016  # the tasks expand it
# --kill-on-bad-exit: when a rank fails, the others end, too.
exec srun --kill-on-bad-exit=1 bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec "$@"' - "$@"
