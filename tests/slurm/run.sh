#!/usr/bin/env bash
# run.sh [BUILD_DIR]: runs one small training on 4 ranks, by mpirun on this host and by Slurm on two nodes of this
# host (slurm-cluster.sh). Slurm starts it by srun and by each script of labs/slurm. The models must be the same,
# byte for byte, and a rank that fails must fail its job.
#
# Exit status 77: not run, with a line that gives the reason.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scripts=$here/../../labs/slurm
bin=$(realpath "${1:-$here/../../build/release}")/bin
export PATH="$PATH:/usr/sbin:/sbin"

not_run() { echo "slurm: NOT RUN: $1" >&2; exit 77; }
for program in slurmctld slurmd munged srun sbatch ip bridge; do
  command -v "$program" > /dev/null || not_run "no $program here; 'make test-slurm' installs what is needed"
done
unshare --net true 2> /dev/null || not_run "no right to make network namespaces: run the tests as root, and in a container with --privileged"
unshare --net --mount --propagation private true 2> /dev/null ||
  not_run "namespaces need a root folder that is a mount point; in a chroot: mount --bind ROOT ROOT before entering it"

# Under AddressSanitizer, the leaks of Open MPI's plugins look like ours, because the plugins are unloaded before leaks
# are reported. Tests without plugins check for leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

work=$(mktemp -d)
export NETNS_CLUSTER="ringsmith-slurm-$$" NETNS_CLUSTER_DIR="$work/cluster"
cluster="$here/slurm-cluster.sh"
trap '"$cluster" down > /dev/null 2>&1; rm -rf "$work"' EXIT
die() { echo "slurm: $*" >&2; tail -n 40 "$work"/*.log >&2; exit 1; }

head -c 20000 "$here/../../README.md" > "$work/text"
small=(--data "$work/text" --layers 1 --dim 16 --heads 2 --context 16 --batch 2 --steps 6
       --validation-windows 2 --sample 0 --progress off)
"$here/../support/mpirun.sh" 4 "$bin/train_gpt" "${small[@]}" --run-dir "$work/mpirun" > "$work/mpirun.log" 2>&1 ||
  die "mpirun failed"

"$cluster" up 2 --gpus 0 > "$work/up.log" 2>&1 || die "no Slurm cluster"
cd "$work"  # sbatch's folder of submission

same() {  # NAME WHAT
  cmp "$work/mpirun/model.safetensors" "$work/$1/model.safetensors" || die "$2: another model than mpirun's"
  echo "$2: the model that mpirun trains, byte for byte"
}
submit() {  # NAME OPTIONS... -- ARGUMENTS...: waits for the end of the job
  local name=$1 options=()
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  timeout 100 "$cluster" run sbatch --wait --output "$work/$name.log" "${options[@]}" "$scripts/$name.sbatch" "${@:2}" \
    > "$work/sbatch.log" 2>&1
}

timeout 100 "$cluster" run srun --mpi=pmix -N 2 --ntasks-per-node 2 "$bin/train_gpt" "${small[@]}" \
  --run-dir "$work/direct" > "$work/direct.log" 2>&1 || die "srun --mpi=pmix failed"
same direct "srun --mpi=pmix"
submit srun -- "$bin/train_gpt" "${small[@]}" --run-dir "$work/srun" || die "srun.sbatch failed"
same srun "srun.sbatch (PMIx)"
submit store -- "$bin/train_gpt" "${small[@]}" --run-dir "$work/store" || die "store.sbatch failed"
same store "store.sbatch (srun, a store at rank 0)"
submit ringrun -- "$bin/train_gpt" "${small[@]}" --run-dir "$work/ringrun" || die "ringrun.sbatch failed"
same ringrun "ringrun.sbatch (a ringrun on each node)"

for name in srun store ringrun; do
  submit "$name" -- "$bin/train_gpt" --data "$work/nowhere" && die "$name.sbatch: a failed rank, and the job ended well"
  grep -q "nowhere" "$work/$name.log" || die "$name.sbatch does not say what failed"
done
left=$(find "$work" -maxdepth 1 -name '.ringsmith*')
[ -z "$left" ] || die "a job's secret was left behind: $left"
echo "a rank that fails fails its job, and no secret is left behind"
