#!/bin/sh
# Runs as root in each of two guests, n1 and n2: Soft-RoCE, a small Slurm over both, real perftest through it.
#   sh guest.sh DIR NAME     DIR: the directory shared by all; has `settings` and `munge.key`, takes the results
# n1 does the work, n2 is there until n1 ends. Each stage of n1 ends with a line "STAGE STATUS UPTIME" in DIR/progress;
# nothing after a failed stage is run.
set -u
DIR=$1 NAME=$2
PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
export PATH
. "$DIR/settings"                       # PYTHON PREFIX REPOSITORY STAGES
CASES=$DIR/cases
OWN=/run/g                              # memory of this guest

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

# --- both guests ---------------------------------------------------------------------------------------------

address() { echo "10.99.0.${1#n}"; }

start_device() {
    ip link set lo up
    modprobe -a virtio_net rdma_rxe
    wait_for 50 test -e /sys/class/net/eth0
    ip addr add "$(address "$NAME")/24" dev eth0
    ip link set eth0 mtu 9000 up            # RDMA's own packets then carry 4096 bytes
    rdma link add rxe0 type rxe netdev eth0
    for host in n1 n2; do echo "$(address $host) $host"; done >>/etc/hosts
}

start_slurmd() {
    # The ordinary user of the jobs. RDMA registers locked memory, so that slurmd and its jobs get all of it.
    echo 'hpc:x:5000:5000::/home/hpc:/bin/sh' >>/etc/passwd
    echo 'hpc:x:5000:' >>/etc/group
    install -d -o 5000 -g 5000 /home/hpc
    ulimit -l unlimited
    mkdir -p $OWN/spool $OWN/state /run/munge /etc/slurm
    install -m 600 "$DIR/munge.key" $OWN/munge.key
    munged --force --key-file=$OWN/munge.key --pid-file=$OWN/munge.pid --log-file=$OWN/munge.log \
        --seed-file=$OWN/munge.seed
    # The file system that both nodes share: users are told apart in it, and see it wherever DIR lies.
    mkdir -p $OWN/share
    mount -t 9p -o trans=virtio,version=9p2000.L,access=user,cache=none,msize=262144 share $OWN/share
    cat >/etc/slurm/slurm.conf <<CONF
ClusterName=guests
SlurmctldHost=n1($(address n1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$OWN/state
SlurmdSpoolDir=$OWN/spool
SlurmctldPidFile=$OWN/slurmctld.pid
SlurmdPidFile=$OWN/slurmd.pid
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
NodeName=n1 NodeAddr=$(address n1) CPUs=4 RealMemory=500 State=UNKNOWN
NodeName=n2 NodeAddr=$(address n2) CPUs=4 RealMemory=500 State=UNKNOWN
PartitionName=val Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    # No systemd in here that could make scopes: slurmd makes its own, in the slice where it expects one.
    echo IgnoreSystemd=yes >/etc/slurm/cgroup.conf
    mkdir /sys/fs/cgroup/system.slice
    [ "$NAME" != n1 ] || slurmctld -c
    slurmd
}

# --- n1 ------------------------------------------------------------------------------------------------------

stage_device() {
    set -ex
    start_device
    ibv_devinfo -v >"$DIR/ibv_devinfo.out"
    cat /sys/class/infiniband/rxe0/ports/1/gids/1 /sys/class/infiniband/rxe0/ports/1/rate
}

both_idle() { [ "$(sinfo -h -t idle -o %D)" = 2 ]; }
as_user() { setpriv --reuid=5000 --regid=5000 --clear-groups --inh-caps=-all "$@"; }

stage_slurm() {
    set -ex
    start_slurmd
    wait_for 400 both_idle
    sinfo -N -l
    as_user srun -D / -N2 --ntasks-per-node=1 sh -c 'echo $(hostname) $(id -u) $(ulimit -l)' >"$DIR/srun.out"
}

# perf CASE WHO NODE OPTIONS…: ib_write_bw on NODE through Slurm; its output in CASE.WHO.out, its exit status beside it.
perf() {
    case=$1 who=$2 node=$3; shift 3
    as_user srun -D / -w "$node" -n1 -Q timeout 60 ib_write_bw "$@" >"$CASES/$case.$who.out" 2>&1
    echo $? >"$CASES/$case.$who.status"
}

listens() { ss -Hltn "sport = :$1" | grep -q .; }
# The server of this guest that a client has reached, by the port it listens on.
serving() { ss -Htnp state established "$1" | grep ib_write_bw | sed -n 's/.*pid=\([0-9]*\).*/\1/p'; }

# pair CASE OPTIONS…: a server on n1 and, when it listens, a client on n2; each case has a port of its own.
port=18600
pair() {
    pair=$1; shift
    port=$((port + 1))
    perf "$pair" server n1 -d rxe0 -F -p $port "$@" &
    server=$!
    wait_for 100 listens $port || return 1
    perf "$pair" client n2 -d rxe0 -F -p $port "$@" n1 &
    client=$!
    [ "$pair" != killed ] || { sleep 5; kill -9 "$(serving "sport = :$port")"; }
    wait $server $client
}

# Under emulation, on a machine that does much else, perftest may find the clock too unsteady (and then says 0 Gb/s), or
# a guest may stand still for longer than RDMA waits for an answer. Only then a measurement is tried again, twice.
STALLED="Correlation coefficient|Completion with error"
stalled() { grep -rqaE "$STALLED" "$@"; }

measured() {
    for _ in 1 2 3; do
        pair "$@" || return 1
        stalled "$CASES/$1".*.out || return 0
        echo "$1: stalled"
    done
}

stage_perftest() {
    mkdir "$CASES"
    measured duration --report_gbits -x 1 -s 65536 -D 3 || return 1
    measured iterations -x 1 -s 65536 -n 500 || return 1
    # A GID index that is empty; the server dies while the client sends; no server; a device that is not there.
    pair no_gid --report_gbits -x 7 -s 65536 -D 3
    pair killed --report_gbits -x 1 -s 65536 -D 8
    perf no_server client n2 -d rxe0 -x 1 -p 18690 n1
    perf no_device client n2 -d mlx5_9 -x 1 -p 18691 n1
    return 0
}

# hpcadmin and its data, where the user may read them wherever the checkout lies; the virtual environment likewise.
install_hpcadmin() {
    mkdir -p $OWN/src $OWN/venv
    for name in hpcadmin checks conf_templates playbooks; do
        [ ! -d "$REPOSITORY/$name" ] || cp -r "$REPOSITORY/$name" $OWN/src
    done
    chmod -R go=rX $OWN/src
    if [ -n "$PREFIX" ]; then
        mount --bind "$PREFIX" $OWN/venv
        PYTHON=$OWN/venv${PYTHON#"$PREFIX"}
    fi
    "$PYTHON" -m compileall -q $OWN/src/hpcadmin $OWN/src/checks
    install -d -o 5000 -g 5000 -m 700 $OWN/share/hpcadmin
}

# validate CASE SITE SUITE: real checks through sbatch, as the user; report, progress and exit status in CASE.*
validate() {
    echo "$1 $(uptime_s)"
    as_user env -i PATH="$PATH" HOME=/home/hpc USER=hpc PYTHONPATH=$OWN/src HPCADMIN_SITE=$OWN/$2 \
        timeout 240 "$PYTHON" -m hpcadmin validate --suite "$OWN/$3" --json >"$VALIDATE/$1.json" 2>"$VALIDATE/$1.err"
    echo $? >"$VALIDATE/$1.status"
}

# The same, again while the machine is too unsteady for perftest.
validate_steady() {
    for _ in 1 2 3; do
        validate "$@"
        stalled $OWN/share/hpcadmin/runs || break
        mv $OWN/share/hpcadmin/runs "$OWN/share/hpcadmin/stalled.$(uptime_s)"
    done
}

stage_validate() {
    VALIDATE=$DIR/validate
    mkdir "$VALIDATE"
    install_hpcadmin || return 1
    cp "$DIR/suite.toml" "$DIR/kin.toml" "$DIR/site.toml" $OWN
    sed '$a device = "mlx5_9"' $OWN/site.toml >$OWN/no_device.toml
    sed 's/^seconds = .*/seconds = 12/' $OWN/site.toml >$OWN/long.toml
    validate_steady pass site.toml suite.toml
    mv $OWN/share/hpcadmin/runs $OWN/share/hpcadmin/first
    validate_steady kin site.toml kin.toml
    validate no_device no_device.toml suite.toml
    # The server is killed 4 s after the client has come.
    { wait_for 1200 came && sleep 4 && kill -9 "$(serving "$SERVERS")"; } &
    killer=$!
    validate killed long.toml suite.toml
    kill $killer 2>/dev/null
    return 0
}
SERVERS="sport ge :1024"
came() { [ -n "$(serving "$SERVERS")" ]; }

if [ "$NAME" = n1 ]; then
    for name in $STAGES; do stage "$name"; done
    echo "end 0 $(uptime_s)" >>"$DIR/progress"
else
    { set -x; start_device && start_slurmd && sleep 600; } >"$DIR/$NAME.log" 2>&1
fi
