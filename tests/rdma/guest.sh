#!/bin/sh
# Runs inside the guest as root: Soft-RoCE, real perftest, a small Slurm, hpcadmin's own check through it.
#   sh guest.sh DIR      DIR: the directory shared with the machine; reads DIR/settings, leaves its results there
# Each stage ends with a line "NAME STATUS UPTIME" in DIR/progress; nothing after a failed stage is run.
set -u
DIR=$1
PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
export PATH
. "$DIR/settings"                       # PYTHON REPOSITORY STAGES
ADDRESS_1=10.99.0.1 ADDRESS_2=10.99.0.2
CASES=$DIR/cases
mkdir -p "$CASES"

uptime_s() { cut -d' ' -f1 /proc/uptime; }

stage() {
    ( "stage_$1" ) >"$DIR/$1.log" 2>&1
    status=$?
    echo "$1 $status $(uptime_s)" >>"$DIR/progress"
    [ "$status" = 0 ] || exit 1
}

# wait_for TENTHS COMMAND…: until the command succeeds.
wait_for() {
    left=$1; shift
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || { echo "gave up: $*"; return 1; }
        sleep 0.1
    done
}
listens() { ss -ltn | grep -q ":$1 "; }

stage_device() {
    set -ex
    # Two host names in one kernel: two addresses of one device, so two RoCE GIDs of one HCA. The name of the guest
    # itself must not lead to 127.0.0.1, where no RDMA device is.
    ip link set lo up
    modprobe veth
    modprobe rdma_rxe
    ip link add eth0 type veth peer name peer0
    ip link set eth0 up
    ip link set peer0 up
    ip addr add "$ADDRESS_1/24" dev eth0
    ip addr add "$ADDRESS_2/24" dev eth0
    rdma link add rxe0 type rxe netdev eth0
    printf '%s n1\n%s n2\n' "$ADDRESS_1" "$ADDRESS_2" >>/etc/hosts
    cat /sys/class/infiniband/rxe0/ports/1/gids/1 /sys/class/infiniband/rxe0/ports/1/link_layer \
        /sys/class/infiniband/rxe0/ports/1/rate
    ibv_devinfo -v >"$DIR/ibv_devinfo.out"
}

# perf CASE NAME OPTIONS…: ib_write_bw, its output in CASE.NAME.out and its exit status in CASE.NAME.status
perf() {
    to=$CASES/$1.$2; shift 2
    timeout 40 ib_write_bw --report_gbits "$@" >"$to.out" 2>&1
    echo $? >"$to.status"
}

# pair CASE OPTIONS…: a server and, when it listens, a client, on a port of this case's own.
port=18600
pair() {
    case=$1; shift
    port=$((port + 1))
    perf "$case" server -d rxe0 -x 1 -p "$port" "$@" &
    server=$!
    wait_for 100 listens "$port" || return 1
    perf "$case" client -d rxe0 -x 1 -p "$port" "$@" n1
    wait "$server"
}

# The process whose command line ends with these words (the kernel's own record of it): of a server, its last option.
pid_of() {
    for dir in /proc/[0-9]*; do
        line=$(tr '\0' ' ' 2>/dev/null <"$dir/cmdline") || continue
        case $line in "ib_write_bw "*"$1 ") echo "${dir#/proc/}"; return 0 ;; esac
    done
    return 1
}

stage_perftest() {
    set -x
    pair duration -s 65536 -D 3 || return 1
    pair iterations -s 65536 -n 500 || return 1
    pair bidirectional -s 65536 -D 3 -b || return 1
    pair all_sizes -a -n 20 || return 1
    # A GID index that is empty; no server; a device that is not there.
    pair no_gid -s 65536 -D 3 -x 7
    perf no_server client -d rxe0 -x 1 -p 18690 -D 3 n1
    perf no_device client -d mlx5_9 -x 1 -p 18691 -D 3 n1
    # The server is killed while the client sends.
    perf killed server -d rxe0 -x 1 -D 10 -p 18693 &
    server=$!
    wait_for 100 listens 18693 || return 1
    perf killed client -d rxe0 -x 1 -D 10 -p 18693 n1 &
    client=$!
    sleep 3
    kill -9 "$(pid_of "-p 18693")"
    wait "$server" "$client"
    return 0
}

stage_slurm() {
    set -ex
    host=$(hostname -s)
    # Ordinary user of the jobs; his locked memory is what RDMA registers.
    echo 'hpc:x:5000:5000::/home/hpc:/bin/sh' >>/etc/passwd
    echo 'hpc:x:5000:' >>/etc/group
    mkdir -p /home/hpc && chown 5000:5000 /home/hpc
    ulimit -l unlimited
    install -d -m 700 /run/g/munge && install -d -m 755 /run/munge
    dd if=/dev/urandom of=/run/g/munge/key bs=128 count=1 2>/dev/null
    chmod 600 /run/g/munge/key
    chmod 755 /run/g
    munged --force --key-file=/run/g/munge/key --pid-file=/run/g/munge/pid --log-file=/run/g/munge/log \
        --seed-file=/run/g/munge/seed
    for name in state spool/n1 spool/n2 tmp/n1 tmp/n2; do mkdir -p "/run/g/$name"; done
    chmod 1777 /run/g/tmp/n1 /run/g/tmp/n2
    mkdir -p /etc/slurm
    cat >/etc/slurm/slurm.conf <<CONF
ClusterName=guest
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/run/g/state
SlurmdSpoolDir=/run/g/spool/%n
TmpFS=/run/g/tmp/%n
SlurmctldPidFile=/run/g/slurmctld.pid
SlurmdPidFile=/run/g/slurmd-%n.pid
SlurmctldLogFile=$DIR/slurmctld.log
SlurmdLogFile=$DIR/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PropagateResourceLimitsExcept=MEMLOCK
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=$host NodeAddr=$ADDRESS_1 Port=17001 CPUs=2 RealMemory=500 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=$ADDRESS_2 Port=17002 CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=val Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    # No systemd in here that could make scopes: slurmd makes its own, in the slice where it expects one.
    echo IgnoreSystemd=yes >/etc/slurm/cgroup.conf
    mkdir /sys/fs/cgroup/system.slice
    slurmctld -c
    slurmd -N n1
    slurmd -N n2
    wait_for 300 both_idle
    sinfo
    as_user srun -N2 --ntasks-per-node=1 sh -c 'echo $SLURMD_NODENAME $(id -u) $(ulimit -l)' >"$DIR/srun.out"
}
as_user() { setpriv --reuid=5000 --regid=5000 --clear-groups --reset-env --inh-caps=-all "$@"; }
both_idle() { [ "$(sinfo -h -t idle -o %D)" = 2 ]; }

for name in $STAGES; do stage "$name"; done
echo "end 0 $(uptime_s)" >>"$DIR/progress"
