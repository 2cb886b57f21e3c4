#!/bin/bash
# A Slurm cluster on one machine: a slurmd in each node of netns-cluster.sh,
# slurmctld and munged on node0, everything under one temporary directory.
# No systemd, no slurmdbd, nothing in /etc.  `-h` lists the commands.
set -euo pipefail

usage() { cat <<'USAGE'
usage: slurm-cluster.sh COMMAND
  up N [--cpus C] [--gpus G] [NETNS-OPTION...]
                 N nodes with C CPUs (default 4, more than there are is fine) and
                 G pretended GPUs (default 2) each; --rate, --delay, ... as for
                 netns-cluster.sh
  run CMD...     run CMD (sinfo, srun, sbatch, a test) on node0, as a user would
  boot NODE      heal NODE and start its slurmd again (after netns-cluster.sh crash)
  logs           print the daemons' logs
  down           end everything
Nodes are netns-cluster.sh's: its exec, partition, crash, ... work on them.
Environment: NETNS_CLUSTER, NETNS_CLUSTER_DIR as for netns-cluster.sh.
USAGE
}

say() { echo "slurm-cluster: $*" >&2; }
die() { say "$*"; exit 2; }

here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
net=$here/../nodes/netns-cluster.sh
export PATH=$PATH:/usr/sbin:/sbin
export NETNS_CLUSTER=${NETNS_CLUSTER:-default}
export NETNS_CLUSTER_DIR=${NETNS_CLUSTER_DIR:-${TMPDIR:-/tmp}/netns-cluster.$(id -u)}
dir=$NETNS_CLUSTER_DIR/$NETNS_CLUSTER/slurm     # removed with the network

# Slurm's daemons insist on setgroups(), which a user namespace denies to root. In such a namespace, everything
# runs as the ordinary user "daemon" instead.
user=root as_user=()
if [ "$(cat /proc/self/setgroups)" = deny ]; then
    user=daemon as_user=(unshare --user --map-user="$(id -u daemon)" --map-group="$(id -g daemon)" --)
fi

configure() {                           # N CPUS GPUS
    local last=$(($1 - 1)) i
    mkdir -p "$dir"/{state,log,dev}
    for ((i = 0; i < $1; i++)); do mkdir -p "$dir/spool/node$i" "$dir/tmp/node$i"; done
    (umask 077; head -c 128 /dev/urandom >"$dir/munge.key")
    cat >"$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=node0
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/slurmctld.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmdSpoolDir=$dir/spool/%n
SlurmdLogFile=$dir/log/slurmd.%n
TmpFS=$dir/tmp/%n
SlurmdParameters=config_overrides
SlurmdTimeout=20
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
KillWait=2
CompleteWait=0
MpiDefault=none
CONF
    if [ "$3" -gt 0 ]; then
        # File= must be a character device; a link to one is accepted.
        for ((i = 0; i < $3; i++)); do ln -s /dev/null "$dir/dev/gpu$i"; done
        echo "GresTypes=gpu" >>"$dir/slurm.conf"
        echo "NodeName=node[0-$last] Name=gpu File=$dir/dev/gpu[0-$(($3 - 1))]" >"$dir/gres.conf"
    fi
    cat >>"$dir/slurm.conf" <<CONF
NodeName=node[0-$last] CPUs=$2 RealMemory=1000 $([ "$3" -eq 0 ] || echo "Gres=gpu:$3")
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:4
CONF
}

on() {                                  # NODE CMD...: with a clean environment, as after boot
    local node=$1; shift
    "$net" exec "$node" env -i PATH="$PATH" HOME="${HOME:-/}" SLURM_CONF="$dir/slurm.conf" \
        "${as_user[@]}" "$@" </dev/null
}

up() {
    local n=$1 cpus=4 gpus=2 options=() i
    shift
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || die "$1: value missing"
        case $1 in --cpus) cpus=$2 ;; --gpus) gpus=$2 ;; *) options+=("$1" "$2") ;; esac
        shift 2
    done
    command -v slurmctld slurmd munged >/dev/null || die "packages missing, run make test-slurm, which installs them"
    "$net" up "$n" "${options[@]}"
    trap 'logs >&2 || :; down' EXIT
    configure "$n" "$cpus" "$gpus"
    on node0 munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" \
        --pid-file="$dir/munged.pid" --log-file="$dir/log/munged" --seed-file="$dir/munge.seed" \
        2>"$dir/log/munged.start" || { cat "$dir/log/munged.start" >&2; die "munged"; }
    on node0 slurmctld -c >>"$dir/log/slurmctld.start" 2>&1
    for ((i = 0; i < n; i++)); do on "node$i" slurmd >>"$dir/log/slurmd.start" 2>&1; done
    for ((i = 0; ; i++)); do
        [ "$(on node0 sinfo -h -N -t idle 2>/dev/null | wc -l)" -ne "$n" ] || break
        [ $i -lt 300 ] || { on node0 sinfo -N -l >&2; die "nodes did not come up"; }
        sleep 0.1
    done
    trap - EXIT
}

logs() { tail -n +1 "$dir"/log/*; }

down() {
    trap - EXIT
    "$net" down
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
    up) [ $# -ge 1 ] || die "up N"; up "$@" ;;
    run)
        [ -s "$dir/slurm.conf" ] || die "no cluster '$NETNS_CLUSTER' (up N first)"
        [ $# -gt 0 ] || die "run CMD..."
        export SLURM_CONF=$dir/slurm.conf OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        export OMPI_MCA_orte_tmpdir_base=$NETNS_CLUSTER_DIR/$NETNS_CLUSTER/mpi
        exec "$net" exec node0 "${as_user[@]}" "$@" ;;
    boot)
        "$net" heal "${1:?NODE}"
        on "$1" slurmd >>"$dir/log/slurmd.start" 2>&1 ;;
    logs) logs ;;
    down) down ;;
    help | -h | --help) usage ;;
    *) usage >&2; exit 2 ;;
esac
