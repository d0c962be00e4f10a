# ---- hpcadmin: the functions that every job uses -------------------------------------------------------------------
LC_ALL=C
export LC_ALL
umask 077
MAX=32768                       # blocks of 512 bytes of one output that are kept (16 MiB)
GRACE=2                         # seconds a server gets to end by itself after its client
SEE=${HPCADMIN_SEE:-300}        # turns of 0.2 s in which a node may come to see the run folder
TAKEN=${HPCADMIN_TAKEN:-600}    # seconds in which somebody may come for what lies on the nodes

# What a node starts, before it has seen any file of ours: MARK WANT SCRIPT TURNS ARGS... A file server may show the
# folder late, and another file system may be at the same path.
START='mark=$1 want=$2 self=$3 left=$4; shift 4; while :; do got=""; '\
'[ -z "$want" ] || { read -r got <"$mark"; } 2>/dev/null; [ "$got" = "$want" ] && [ -r "$self" ] && exec sh "$self" "$@"; '\
'[ "$left" -gt 0 ] || break; left=$((left - 1)); sleep 0.2; done; why="there is no ${self%/*}"; '\
'[ ! -e "${self%/*}" ] || why="${self%/*} holds other files there"; '\
'echo "hpcadmin: $SLURMD_NODENAME does not see the run folder: $why" >&2; exit 73'

# clock: read once; from there on now goes by the kernel's count of seconds, which needs no process and is never set.
clock() {
    read -r n_up n_x </proc/uptime
    n_ns=$(date +%s%N)
    case $n_ns in *[!0-9]* | '') n_ns=$(date +%s) ;; esac
    [ ${#n_ns} -ge 19 ] || n_ns=${n_ns}000000000
    n_off=$((${n_ns%???????} - ${n_up%.*}${n_up#*.}))
}

# now: n_time, seconds since 1970 with two decimals.
now() {
    read -r n_up n_x </proc/uptime
    n_cs=$((n_off + ${n_up%.*}${n_up#*.}))
    n_time=${n_cs%??}.${n_cs#"${n_cs%??}"}
}

# scratch: a private folder on this node, in the run folder where the node has no usable /tmp; gone at the end.
scratch() {
    TMPD=$(mktemp -d "${TMPDIR:-/tmp}/hpcadmin.XXXXXX" 2>/dev/null) || TMPD=$(mktemp -d "$OUT/.tmp.XXXXXX") || exit 70
    trap 'rm -rf "$TMPD"' EXIT
    trap 'exit 143' TERM INT HUP
    clock
    HOST=?
    read -r HOST </proc/sys/kernel/hostname 2>/dev/null
    case $HOST in '' | *[!A-Za-z0-9_.-]*) HOST=? ;; esac
}

# The command is run in a shell of its own inside `timeout`, with all that it starts: nothing that keeps the pipe open
# can hold us. Its exit status goes to a file, so that a time-out is told from a command that returned 124. cat, bounded by
# ulimit, because head keeps what it has read in a buffer that is lost when it is killed; a full disk ends it as well.
CAPTURE='o=$1 s=$2 m=$3; shift 3
{ "$@"; echo $? >"$s"; } 2>&1 </dev/null |
{ (ulimit -c 0; ulimit -f "$m"; exec cat >"$o") || { : >"$o.more"; cat >/dev/null; }; } 2>/dev/null'

# capture FILE SECONDS CMD...: output in FILE; sets status ("-": it did not end by itself), flags, start, end.
capture() {
    c_file=$1 c_limit=$2
    shift 2
    : >"$c_file.status"
    now; start=$n_time
    timeout -k 5 "$c_limit" sh -c "$CAPTURE" sh "$c_file" "$c_file.status" "$MAX" "$@"
    outcome $? "$c_file" "$c_limit"
}

outcome() {
    now; end=$n_time
    status='' flags=''
    read -r status <"$2.status"
    case $status in
    '' | *[!0-9]*)
        status=-
        if [ "$1" = 124 ] || [ $((${end%.*} - ${start%.*})) -ge "$3" ]; then flags=timeout; else flags=killed; fi ;;
    esac
    if [ -e "$2.more" ]; then
        flags=${flags:+$flags,}truncated
        [ "$(wc -c <"$2")" -ge $((MAX * 512)) ] || flags=$flags,noroom      # less than is kept: the disk is full
        rm -f "$2.more"
    fi
    [ -e "$2" ] || : >"$2"
    flags=${flags:--}
}

# frame ID STEP ROLE NODE HOST FILE: the output in FILE as a frame on stdout, with status, start, end and flags.
frame() {
    f_sum=$(cksum <"$6") || return 1
    printf 'HPCADMIN-FRAME 1 id=%s step=%s role=%s node=%s host=%s status=%s start=%s end=%s bytes=%s crc=%s flags=%s\n' \
        "$1" "$2" "$3" "$4" "$5" "$status" "$start" "$end" "${f_sum#* }" "${f_sum%% *}" "$flags"
    cat "$6"
    echo
}

# plain FILE: whether it may be written to: it is not there, or a regular file. A pipe would hold us for ever.
plain() {
    [ ! -h "$1" ] && { [ ! -e "$1" ] || [ -f "$1" ]; } && return
    echo "hpcadmin: ${SLURMD_NODENAME:-} ${1##*/} is no regular file: not written to" >&2
    return 1
}

# ---- on a node

# one ID STEP SECONDS CMD...: run CMD and append its frame to this node's log.
one() {
    o_id=$1 o_step=$2 o_limit=$3
    shift 3
    plain "$OUT/$SLURMD_NODENAME.log" || return
    if [ -n "${AGAIN:-}" ] && grep -q -a "^HPCADMIN-FRAME 1 id=$o_id step=$o_step " "$OUT/$SLURMD_NODENAME.log"; then
        return                          # it was done before another node stopped the step
    fi
    capture "$TMPD/out" "$o_limit" "$@"
    plain "$OUT/$SLURMD_NODENAME.log" || return
    frame "$o_id" "$o_step" each "$SLURMD_NODENAME" "$HOST" "$TMPD/out" >>"$OUT/$SLURMD_NODENAME.log"
}

# packed: an output for the driver on stdout: a line with what frame() needs to know, then the bytes.
packed() {
    p_sum=$(cksum <"$1")
    printf 'packed %s %s %s %s %s %s\n' "$status" "$start" "$end" "$flags" "$HOST" "$p_sum"
    cat "$1"
}

listening() {
    grep -q -i "^ *[0-9]*: [0-9a-f]*:$1 [0-9a-f]*:[0-9a-f]* 0a " /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# client SECONDS CMD...
client_on_node() {
    c_limit=$1
    shift
    capture "$TMPD/out" "$c_limit" "$@"
    packed "$TMPD/out"
}

# server SECONDS READY_SECONDS PORT(hex or -) TEXT CMD...: says "ready" or "failed WHY" on stdout, runs until it ends or
# our stdin does, then packs.
server_on_node() {
    s_limit=$1 s_ready=$2 s_port=$3 s_text=$4
    shift 4
    s_out=$TMPD/out s_flag=''
    : >"$s_out" >"$s_out.status"
    now; start=$n_time
    if [ "$s_port" != - ] && listening "$s_port"; then
        echo "failed port-in-use"
        end=$start status=- flags=portbusy
        packed "$s_out"
        return
    fi
    timeout -k 5 "$s_limit" sh -c "$CAPTURE" sh "$s_out" "$s_out.status" "$MAX" "$@" &
    s_pid=$!
    read -r s_begin s_x </proc/uptime
    while :; do
        if [ "$s_port" != - ]; then listening "$s_port" && break
        elif [ -n "$s_text" ]; then grep -q -F -e "$s_text" "$s_out" 2>/dev/null && break
        else break; fi
        [ -s "$s_out.status" ] && { s_flag=ended; break; }
        kill -0 "$s_pid" 2>/dev/null || { s_flag=ended; break; }
        read -r s_now s_x </proc/uptime
        [ $((${s_now%.*} - ${s_begin%.*})) -ge "$s_ready" ] && { s_flag=notready; break; }
        sleep 0.03
    done
    if [ -z "$s_flag" ]; then
        echo ready
        read -r s_x                     # ends when the driver closes our stdin
        s_n=0
        while [ ! -s "$s_out.status" ] && [ "$s_n" -lt $((GRACE * 20)) ]; do sleep 0.05; s_n=$((s_n + 1)); done
        [ -s "$s_out.status" ] || s_flag=stopped
    else
        echo "failed $s_flag"
    fi
    [ -s "$s_out.status" ] || kill "$s_pid" 2>/dev/null
    wait "$s_pid"
    outcome $? "$s_out" "$s_limit"
    if [ -n "$s_flag" ]; then case $flags in - | killed) flags=$s_flag ;; *) flags=$flags,$s_flag ;; esac; fi
    packed "$s_out"
}

# ---- around a command: what its tool needs to be found

# gone WORDS: the command cannot be started; with what the module system had to say. 5 is the step's own output.
gone() {
    g_said=$(grep -v '^[[:space:]]*$' "$x_said" 2>/dev/null | head -n 6 | cut -c 1-300 | tr -s '[:space:]' ' ')
    printf 'hpcadmin: %s\n' "$1${g_said:+: $g_said}" >&5
    [ "$x_said" = /dev/null ] || rm -f "$x_said"
    trap - EXIT
    exit 78
}

# module_command: define `module`, as login shells have it. OpenHPC's lmod.sh does nothing where it sees a job.
module_command() {
    x_nodes=${SLURM_NODELIST-}
    unset SLURM_NODELIST PBS_NODEFILE
    x_shell=sh
    case ${BASH:-} in */bash) x_shell=bash ;; esac
    if [ -n "$MODULES_INIT" ]; then
        [ -r "$MODULES_INIT" ] || gone "$MODULES_INIT, of [modules] init, cannot be read"
        . "$MODULES_INIT"
    elif ! command -v module >/dev/null 2>&1; then
        [ -r /etc/profile.d/00-modulepath.sh ] && . /etc/profile.d/00-modulepath.sh
        for x_file in /etc/profile.d/lmod.sh /etc/profile.d/modules.sh /etc/profile.d/z00_lmod.sh \
            "${LMOD_PKG:-/usr/share/lmod/lmod}/init/$x_shell" "${MODULESHOME:-/usr/share/modules}/init/$x_shell" \
            "/usr/share/Modules/init/$x_shell"; do
            [ -r "$x_file" ] && . "$x_file"
            command -v module >/dev/null 2>&1 && break
        done
    fi
    [ -z "$x_nodes" ] || { SLURM_NODELIST=$x_nodes; export SLURM_NODELIST; }
}

# with N FOLDER... M MODULE... CMD...: CMD with N folders after those of PATH and M environment modules loaded; in bash
# where there is one, because sites' own start files are written for it.
with() {
    case ${BASH:-} in */bash) ;; *) command -v bash >/dev/null 2>&1 && exec bash "$SELF" with "$@" ;; esac
    x_count=$1 x_folders=''
    shift
    while [ "$x_count" -gt 0 ]; do x_folders=$x_folders:$1 x_count=$((x_count - 1)); shift; done
    x_count=$1
    shift
    if [ "$x_count" -gt 0 ]; then
        exec 5>&1
        x_said=$(mktemp "${TMPDIR:-/tmp}/hpcadmin.XXXXXX") || x_said=/dev/null
        trap 'gone "the environment modules ended the shell"' EXIT
        module_command >"$x_said" 2>&1
        command -v module >/dev/null 2>&1 || gone "there is no command module here: neither Lmod nor Environment Modules"
        [ -z "$MODULE_PATHS" ] || module use "$MODULE_PATHS" >"$x_said" 2>&1
        while [ "$x_count" -gt 0 ]; do
            x_before=${LOADEDMODULES-}
            module load "$1" >"$x_said" 2>&1 || gone "module load $1"
            # Modules 3 tells what went wrong and returns 0; so does Lmod when it cannot run itself.
            case :${LOADEDMODULES-}: in
            *:"$1":* | *:"$1"/*) ;;
            *) [ "$x_before" != "${LOADEDMODULES-}" ] || gone "module load $1 loads nothing" ;;
            esac
            x_count=$((x_count - 1))
            shift
        done
        trap - EXIT
        [ "$x_said" = /dev/null ] || rm -f "$x_said"
        exec 5>&-
    fi
    PATH=$PATH$x_folders
    export PATH
    unset SLURM_EXPORT_ENV          # with NONE, srun would leave behind what the modules have set
    exec "$@"
}

# within IMAGE CMD...: CMD in a container, with the node's GPUs.
within() {
    y_image=$1 y_gpus=''
    shift
    y_run=$(command -v apptainer || command -v singularity) || {
        echo "hpcadmin: neither apptainer nor singularity is there to start $y_image"
        exit 78
    }
    if [ -e /dev/nvidiactl ]; then y_gpus=--nv; elif [ -e /dev/kfd ]; then y_gpus=--rocm; fi
    exec "$y_run" exec $y_gpus "$y_image" "$@"
}

# with_mpirun MPIRUN TASKS HOST,HOST,... CMD...: so many ranks of CMD on each of these nodes, started by mpirun, whose own
# daemons are steps of the job. The job has one task a node: Open MPI would take more ranks for too many, and let them
# yield their processors. Nothing is bound: the threads of NCCL and UCX would all be on a rank's only core.
with_mpirun() {
    z_run=$1 z_tasks=$2 z_hosts=$3
    shift 3
    command -v "$z_run" >/dev/null 2>&1 || { echo "hpcadmin: $z_run is not there to start MPI programs"; exit 78; }
    z_nodes=$(printf '%s\n' "$z_hosts" | tr ',' '\n' | wc -l)
    z_all=$((z_nodes * z_tasks))
    SLURM_OVERLAP=1 SLURM_TASKS_PER_NODE="$z_tasks(x${SLURM_JOB_NUM_NODES:-${SLURM_NNODES:-$z_nodes}})"
    export SLURM_OVERLAP SLURM_TASKS_PER_NODE
    z_version=$("$z_run" --version 2>&1 </dev/null | head -n 20)
    case $z_version in
    *"Open MPI"* | *OpenRTE* | *PRRTE* | *prterun*)
        if [ "$(id -u)" = 0 ]; then         # somebody has said --allow-root
            OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
            PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
            export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
            export PRTE_ALLOW_RUN_AS_ROOT PRTE_ALLOW_RUN_AS_ROOT_CONFIRM
        fi
        z_slots=$(printf '%s\n' "$z_hosts" | sed "s/,/:$z_tasks,/g; s/\$/:$z_tasks/")
        exec "$z_run" --host "$z_slots" -np "$z_all" --map-by "ppr:$z_tasks:node" --bind-to none "$@" ;;
    *HYDRA* | *Hydra* | *"Intel(R) MPI"*)
        I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0
        export I_MPI_JOB_RESPECT_PROCESS_PLACEMENT
        exec "$z_run" -hosts "$z_hosts" -n "$z_all" -ppn "$z_tasks" "$@" ;;
    esac
    echo "hpcadmin: $z_run is neither Open MPI's nor one of MPICH's family: $(printf '%s' "$z_version" | head -n 1 | cut -c 1-200)"
    exit 78
}

# ---- in the driver: each call leaves $TMPD/ID.STEP.frame. IMAGE: container of a step's processes, by pyxis

# unpack ID STEP ROLE NODE: from what a node packed in $TMPD/ID.STEP.raw to a frame; whatever is not whole is "lost".
unpack() {
    u=$TMPD/$1.$2
    {
        u_word='' u_crc='' u_bytes='' u_host=''
        read -r u_word status start end flags u_host u_crc u_bytes
        cat >"$u.out"
    } <"$u.raw"
    if [ "$u_word" != packed ] || [ "$(cksum <"$u.out")" != "$u_crc $u_bytes" ]; then
        status=- flags=lost u_host=$HOST start=$u_start
        now; end=$n_time
        head -c 65536 "$u.err" >>"$u.out"
    fi
    case $flags in *lost* | *timeout* | *killed*) suspect "$1" ;; esac
    frame "$1" "$2" "$3" "$4" "$u_host" "$u.out" >"$u.frame"
}

# unstarted ID STEP ROLE NODE FLAG
unstarted() {
    u=$TMPD/$1.$2
    now; start=$n_time end=$n_time status=- flags=$5
    if [ "$5" = gone ]; then echo "$gone" >"$u.out"; else : >"$u.out"; fi
    frame "$1" "$2" "$3" "$4" "$HOST" "$u.out" >"$u.frame"
}

# drop_step NAME: cancel the step of that name, whose srun had to be killed.
drop_step() {
    squeue -h -s -j "$SLURM_JOB_ID" -o '%i %j' 2>/dev/null | while read -r d_id d_name; do
        [ "$d_name" = "$1" ] && scancel "$d_id" 2>/dev/null
    done
}

# ---- nodes that answer no more: LOST holds their names. A step with one of them costs srun 10 to 20 s, takes those of
# other nodes with it, and Slurm itself notices after SlurmdTimeout only, five minutes as a rule.
LOST='' LIST='' gone=''
ALIVE=12                        # seconds in which a node must start something to be alive
SUSPECTS=64                     # at most that are tried at one time
GONE='failed on node |Node failure on |slurm_receive_msgs|Requested node configuration|Unable to create step|timed out on send'

# on ID LIST: the test that is run next, and its nodes. Sets gone, the first of them that is lost.
on() {
    LIST=$2
    echo "$2" >"$TMPD/$1.list"
    lost_of "$2"
}

lost_of() {
    gone=''
    [ -n "$LOST" ] || return 1
    for e_one in $(scontrol show hostnames "$1"); do
        case " $LOST " in *" $e_one "*) gone=$e_one; return 0 ;; esac
    done
    return 1
}

# suspect ID: a step of the test failed as one does on a node that is not there.
suspect() { printf '%s\n' "${LIST:-}" >"$TMPD/$1.suspect"; }

# named FILE: the nodes that srun complains of there.
named() {
    sed -n -e 's/.* failed on node \([A-Za-z0-9_.-]*\).*/\1/p' -e 's/.*Node failure on \([A-Za-z0-9_.-]*\).*/\1/p' \
        -e 's/.*slurm_receive_msgs: \[\[\([A-Za-z0-9_.-]*\).*/\1/p' "$1" 2>/dev/null
}

# suspects LIST FILE: all nodes of a short list; of a long one those that srun or Slurm complain of.
suspects() {
    i_all=$(scontrol show hostnames "$1")
    if [ "$(printf '%s\n' "$i_all" | wc -l)" -gt "$SUSPECTS" ]; then
        i_all=$({ named "$2"; sinfo -h -N -n "$1" -o '%N %t' 2>/dev/null |
            awk '$2 ~ /[*]$/ || $2 ~ /^(down|fail|unk|boot)/ { print $1 }'; } | sort -u | head -n "$SUSPECTS")
    fi
    printf '%s\n' "$i_all"
}

# try_nodes NODE...: those that can start nothing are lost, unless the node can neither on which this script runs: then
# it is Slurm that does not answer.
try_nodes() {
    p_all=''
    for p_node in "${SLURMD_NODENAME:-}" "$@"; do
        case " $LOST " in *" $p_node "*) continue ;; esac
        timeout -k 1 "$ALIVE" srun $SRUN $PLAIN -J alive -N 1 -n 1 -w "$p_node" true >/dev/null 2>&1 </dev/null &
        p_all="$p_all $!:$p_node"
    done
    p_lost=''
    for p_one in $p_all; do wait "${p_one%%:*}" || p_lost="$p_lost ${p_one#*:}"; done
    case "$p_lost " in *" ${SLURMD_NODENAME:-} "*) return ;; esac
    LOST=$LOST$p_lost
}

# settle: which nodes of the tests that failed are lost; that is written before the outputs of these.
settle() {
    set --
    for s_file in "$TMPD"/*.suspect; do
        [ -e "$s_file" ] || return 0
        ! lost_of "$(cat "$s_file")" || continue
        s_id=${s_file##*/}
        s_id=${s_id%.suspect}
        set -- "$@" $(suspects "$(cat "$s_file")" "$TMPD/$s_id.0.out")
    done
    s_nodes=$(printf '%s\n' "$@" | sort -u | head -n "$SUSPECTS")
    set --
    for s_node in $s_nodes; do [ "$s_node" = "${SLURMD_NODENAME:-}" ] || set -- "$@" "$s_node"; done
    [ $# -eq 0 ] || try_nodes "$@"
    for s_file in "$TMPD"/*.suspect; do
        s_id=${s_file##*/}
        s_id=${s_id%.suspect}
        if lost_of "$(cat "$s_file")"; then
            for s_frame in "$TMPD/$s_id".*.frame; do [ ! -e "$s_frame" ] || mark_gone "$s_frame"; done
        fi
        rm -f "$s_file"
        ended "$s_id"
    done
    keep_ended
}

# watch PID:ID...: of tests that run side by side. One that goes on long after the others have ended may wait for a node
# that is lost, and would do so until its time-out: then it is ended here.
watch() {
    trap 'kill $! 2>/dev/null; exit 0' TERM
    trap - EXIT
    read -r w_begin w_x </proc/uptime
    w_slow=0 w_left=$* w_all=$#
    while :; do
        sleep 1 &
        wait $!
        read -r w_now w_x </proc/uptime
        w_took=$((${w_now%.*} - ${w_begin%.*}))
        set --
        for w_one in $w_left; do ! kill -0 "${w_one%%:*}" 2>/dev/null || set -- "$@" "$w_one"; done
        [ $# -gt 0 ] || return
        [ "$w_left" = "$*" ] || w_slow=$w_took
        w_left=$*
        if [ $# -lt "$w_all" ] && [ "$w_took" -gt $((2 * w_slow + 10)) ]; then
            : >"$TMPD/trying"
            look_for_lost $w_left
            rm -f "$TMPD/trying"
            w_slow=$w_took
        fi
    done
}

look_for_lost() {
    w_lists=''
    for w_one in "$@"; do w_lists="$w_lists,$(cat "$TMPD/${w_one#*:}.list")"; done
    w_lost=$LOST
    try_nodes $(suspects "${w_lists#,}" /dev/null)
    [ "$w_lost" != "$LOST" ] || return 0
    echo "$LOST" >"$TMPD/lost"
    for w_one in "$@"; do
        lost_of "$(cat "$TMPD/${w_one#*:}.list")" || continue
        read -r w_kids <"/proc/${w_one%%:*}/task/${w_one%%:*}/children"
        [ -z "$w_kids" ] || kill $w_kids
    done
}

# unwatch: the tests have ended; what was found out about their nodes is kept.
unwatch() {
    [ -n "$w_pid" ] || return 0
    [ -e "$TMPD/trying" ] || kill "$w_pid" 2>/dev/null
    wait "$w_pid"
    [ ! -e "$TMPD/lost" ] || read -r LOST <"$TMPD/lost"
}

# mark_gone FRAME: the same output, after the name of the node that is lost.
mark_gone() {
    {
        read -r q_head
        for q_word in $q_head; do
            q_value=${q_word#*=}
            case $q_word in
            id=*) q_id=$q_value ;; step=*) q_step=$q_value ;; role=*) q_role=$q_value ;; node=*) q_node=$q_value ;;
            host=*) q_host=$q_value ;; status=*) status=$q_value ;; start=*) start=$q_value ;; end=*) end=$q_value ;;
            bytes=*) q_bytes=$q_value ;; flags=*) flags=$q_value ;;
            esac
        done
        { echo "$gone"; cat; } >"$TMPD/gone"
    } <"$1"
    case $flags in -) flags=gone ;; *) flags=$flags,gone ;; esac
    head -c $((${#gone} + 1 + q_bytes)) "$TMPD/gone" >"$TMPD/gone.out"
    frame "$q_id" "$q_step" "$q_role" "$q_node" "$q_host" "$TMPD/gone.out" >"$1"
    rm -f "$TMPD/gone" "$TMPD/gone.out"
}

# ranks ID STEP NODE SECONDS CMD...: a parallel program; CMD is or ends in its srun, whose output and status they are.
ranks() {
    r_id=$1 r_step=$2 r_node=$3 r_limit=$4
    shift 4
    if [ -n "$gone" ]; then unstarted "$r_id" "$r_step" ranks "$r_node" gone; return; fi
    capture "$TMPD/$r_id.$r_step.out" "$r_limit" "$@"
    case $flags in *timeout* | *killed*) drop_step "$r_id.$r_step" ;; esac
    case $status,$flags in
    0,-) ;;
    *timeout* | *killed*) suspect "$r_id" ;;
    *) ! grep -q -a -E "$GONE" "$TMPD/$r_id.$r_step.out" || suspect "$r_id" ;;
    esac
    frame "$r_id" "$r_step" ranks "$r_node" "$HOST" "$TMPD/$r_id.$r_step.out" >"$TMPD/$r_id.$r_step.frame"
}

# each ID STEP SECONDS COUNT NODELIST CMD...: one process on each node; the nodes append the frames to their own logs.
each() {
    e_id=$1 e_step=$2 e_limit=$3 e_count=$4 e_list=$5
    shift 5
    if [ -n "$gone" ]; then
        for e_node in $(scontrol show hostnames "$e_list"); do
            unstarted "$e_id" "$e_step" each "$e_node" gone
            mv "$TMPD/$e_id.$e_step.frame" "$TMPD/$e_id.$e_step.$e_node.frame"
        done
        return
    fi
    timeout -k 5 $((e_limit + 15 + SEE / 5)) srun $SRUN $PLAIN -J "$e_id.$e_step" -N "$e_count" -n "$e_count" -w "$e_list" \
        ${IMAGE:+"--container-image=$IMAGE" "--container-mounts=${SELF%/*}:${SELF%/*}"} \
        sh -c "$START" sh "$MARK" "$WANT" "$SELF" "$SEE" each "$e_id" "$e_step" "$e_limit" "$@" \
        >>"$OUT/srun.out" 2>&1 </dev/null
    case $? in
    0) ;;
    124 | 137) drop_step "$e_id.$e_step"; suspect "$e_id" ;;
    *) suspect "$e_id" ;;
    esac
}

# serve ID STEP NODE SECONDS READY_SECONDS PORT TEXT CMD...: start a server and wait until it is ready.
serve() {
    v_id=$1 v_step=$2 v_node=$3 v=$TMPD/$1.$2 v_limit=$4
    shift 3
    v_word=''
    if [ -n "$gone" ]; then unstarted "$v_id" "$v_step" server "$v_node" gone; return; fi
    now; u_start=$n_time
    mkfifo "$v.in" "$v.up"
    timeout -k 5 $((v_limit + 15 + SEE / 5)) srun $SRUN $PLAIN -J "$v_id.$v_step" -N 1 -n 1 -w "$v_node" \
        ${IMAGE:+"--container-image=$IMAGE" "--container-mounts=${SELF%/*}:${SELF%/*}"} \
        sh -c "$START" sh "$MARK" "$WANT" "$SELF" "$SEE" server "$@" <"$v.in" >"$v.up" 2>"$v.err" &
    v_pid=$!
    exec 4>"$v.in" 3<"$v.up"
    v_word=''
    read -r v_word v_why <&3
    [ "$v_word" = ready ]
}

# client ID STEP NODE SECONDS CMD...: only when the server is ready.
client() {
    l_id=$1 l_step=$2 l_node=$3 l_limit=$4 l=$TMPD/$1.$2
    shift 3
    if [ -n "$gone" ]; then unstarted "$l_id" "$l_step" client "$l_node" gone; return; fi
    if [ "$v_word" != ready ]; then unstarted "$l_id" "$l_step" client "$l_node" nostart; return; fi
    now; u_start=$n_time
    timeout -k 5 $((l_limit + 15 + SEE / 5)) srun $SRUN $PLAIN -J "$l_id.$l_step" -N 1 -n 1 -w "$l_node" \
        ${IMAGE:+"--container-image=$IMAGE" "--container-mounts=${SELF%/*}:${SELF%/*}"} \
        sh -c "$START" sh "$MARK" "$WANT" "$SELF" "$SEE" client "$@" >"$l.raw" 2>"$l.err" </dev/null 4>&- 3<&-
    case $? in 124 | 137) drop_step "$l_id.$l_step" ;; esac
    unpack "$l_id" "$l_step" client "$l_node"
}

# unserve: the client is done; end the server and take its output.
unserve() {
    [ -z "$gone" ] || return 0
    exec 4>&-
    cat <&3 >"$v.raw"
    exec 3<&-
    wait "$v_pid"
    case $? in 124 | 137) drop_step "$v_id.$v_step" ;; esac
    unpack "$v_id" "$v_step" server "$v_node"
}

# together ID: the last command put into the background belongs to test ID, and calls ended at its end; collect waits for
# all and keeps their frames: of all that have ended so far at one time, because each process costs as much as a test.
together() { t_all="${t_all:-} $!:$1"; }

ended() { [ -e "$TMPD/$1.suspect" ] || : >"$TMPD/$1.ended"; }

collect() {
    w_pid=''
    case ${t_all:-} in *:*:*) watch $t_all 2>/dev/null & w_pid=$! ;; esac
    for t_one in ${t_all:-}; do
        wait "${t_one%%:*}"
        [ ! -e "$TMPD/${t_one#*:}.suspect" ] || continue
        for t_frame in "$TMPD/${t_one#*:}".*.frame; do
            if [ -e "$t_frame" ]; then ended "${t_one#*:}"; keep_ended; fi
            break
        done
    done
    t_all='' SEE=5
    unwatch
    settle
}

keep_ended() {
    t_ids=''
    for t_mark in "$TMPD"/*.ended; do t_mark=${t_mark##*/} t_ids="$t_ids ${t_mark%.ended}"; done
    set --
    for t_id in $t_ids; do
        for t_frame in "$TMPD/$t_id".*.frame; do
            if [ -e "$t_frame" ]; then set -- "$@" "$t_frame"; fi
        done
    done
    [ $# -eq 0 ] || ! plain "$OUT/driver.log" || cat "$@" >>"$OUT/driver.log"
    set --
    for t_id in $t_ids; do set -- "$@" "$TMPD/$t_id".*; done
    rm -rf "$@"
}

# meet SECONDS FOLDER...: wait until the jobs of these folders have begun too, so that all hold what they were given at
# one time. Sets met; the kernel's count of seconds, because clocks are set.
meet() {
    : >"$OUT/begun"
    m_limit=$1
    shift
    read -r m_begin m_x </proc/uptime
    while :; do
        m_here=0
        for m_one in "$@"; do [ -e "$m_one/begun" ] && m_here=$((m_here + 1)); done
        met=yes
        [ "$m_here" -eq $# ] && return
        met=no
        read -r m_now m_x </proc/uptime
        [ $((${m_now%.*} - ${m_begin%.*})) -ge "$m_limit" ] && return
        sleep 0.2
    done
}

# own ID STEP NODE SECONDS CMD...: what a job of a test's own runs.
own() {
    w_id=$1 w_step=$2 w_node=$3 w_limit=$4
    shift 4
    capture "$TMPD/own" "$w_limit" "$@"
    if [ "$met" = no ]; then case $flags in -) flags=alone ;; *) flags=$flags,alone ;; esac; fi
    frame "$w_id" "$w_step" job "$w_node" "$HOST" "$TMPD/own" >>"$OUT/driver.log"
}

# by_node STAGE SECONDS COUNT NODELIST: every node runs its own list of tests of this stage, side by side. A node that is
# lost ends srun on all of them: then the others go on where they were.
by_node() {
    b_count=$3 b_list=$4 b_again=''
    while [ "$b_again" != xxx ]; do
        if lost_of "$b_list"; then left_of; fi
        [ "$b_count" -gt 0 ] || return 0
        timeout -k 5 $(($2 + SEE / 5)) srun $SRUN $PLAIN -J "$1" -N "$b_count" -n "$b_count" -w "$b_list" \
            sh -c "$START" sh "$MARK" "$WANT" "$SELF" "$SEE" node "$1" $b_again >"$TMPD/by_node" 2>&1 </dev/null
        b_status=$?
        cat "$TMPD/by_node" >>"$OUT/srun.out"
        SEE=5                   # it had its time
        case $b_status in 0) return ;; 124 | 137) drop_step "$1" ;; esac
        b_lost=$LOST
        try_nodes $(suspects "$b_list" "$TMPD/by_node")
        [ "$b_lost" != "$LOST" ] || return 0
        b_again=x$b_again
    done
}

# left_of: b_list and b_count without those that are lost.
left_of() {
    set --
    for e_one in $(scontrol show hostnames "$b_list"); do
        case " $LOST " in *" $e_one "*) ;; *) set -- "$@" "$e_one" ;; esac
    done
    b_count=$# b_list=$(printf '%s,' "$@")
    b_list=${b_list%,}
}

# halt STAGE: between two stages. When the run is to stop, this one and those after it are not begun.
halt() {
    [ -e "$OUT/stop" ] || return 0
    echo "$1" >"$OUT/stopped"
    finish
    exit 0
}

begin() {
    # Slurm has started the job a second time: its logs hold what the first time left, and the rest is planned again.
    if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
        [ -n "$AWAY" ] || [ -e "$OUT/done" ] || : >"$OUT/requeued"
        echo "hpcadmin: this job was requeued; what it left undone is planned again" >&2
        exit 75
    fi
    if [ -n "$AWAY" ]; then
        begin_away "$@"
    else
        sh -c "$START" sh "$MARK" "$WANT" /dev/null "$SEE" 2>/dev/null || {
            echo "hpcadmin: ${SLURMD_NODENAME:-} does not see the run folder: $OUT" >&2
            exit 73
        }
        # A finished run is not written to again: a job that is started by hand later gets a folder of its own.
        # The same for one that was submitted twice because the first answer was lost: only one job writes here.
        if [ -e "$OUT/done" ] || [ -e "$OUT/claimed" ]; then
            OUT=$OUT/by-hand-$SLURM_JOB_ID
            mkdir "$OUT" || exit 73
        fi
    fi
    (set -C; echo "${SLURM_JOB_ID:-}" >"$OUT/claimed") || exit 73
    HPCADMIN_OUT=$OUT
    export HPCADMIN_OUT
    scratch
    : >>"$OUT/driver.log"
}

# finish: what says that the job has done all it had to do. sizes: how long the logs are as those see them who wrote them.
finish() {
    now
    {
        ! plain "$OUT/driver.log" || echo "driver.log $(wc -c <"$OUT/driver.log")"
        awk '$1 == "wrote" && NF == 3 { s[$2] = $3 } END { for (n in s) print n ".log", s[n] }' "$OUT/srun.out"
    } >"$OUT/sizes" 2>/dev/null
    echo "$n_time ${SLURM_JOB_ID:-}" >"$OUT/.done" && mv "$OUT/.done" "$OUT/done"
    [ -z "$AWAY" ] || finish_away
}

# ---- where the nodes share no folder: each has one of its own, by a name that nobody can guess

# What every node does first: FOLDER FIRST_NODE SUM; the script comes on stdin.
STAGE='umask 077
find "${1%/*}" -maxdepth 1 -type d -user "$(id -u)" -name "hpcadmin-*" -mtime +1 -exec rm -rf {} + 2>/dev/null
[ "$SLURMD_NODENAME" = "$2" ] || mkdir -m 700 "$1" || {
    echo "hpcadmin: $SLURMD_NODENAME cannot make the folder $1"
    exit 73
}
cat >"$1/script.new" && [ "$(cksum <"$1/script.new")" = "$3" ] && mv "$1/script.new" "$1/script" || {
    echo "hpcadmin: $SLURMD_NODENAME has no room in ${1%/*}: the script did not come there whole"
    exit 73
}
sh "$1/script" programs || {
    echo "hpcadmin: $SLURMD_NODENAME has no room in ${1%/*}: the programs did not come there whole"
    rm -f "$1/script"
    exit 73
}'

# all_nodes NAME CMD...: one process on each node of the job.
all_nodes() {
    a_name=$1
    shift
    timeout -k 5 60 srun $SRUN $PLAIN -J "$a_name" -N "${SLURM_JOB_NUM_NODES:-1}" -n "${SLURM_JOB_NUM_NODES:-1}" "$@"
}

# begin_away [by-hand]: mkdir takes no folder and no link that is there. By hand, and when it was submitted twice, it has
# another folder and prints what it has to say.
begin_away() {
    HAND=''
    case ${1:-} in by-hand) HAND=yes ;; *) mkdir -m 700 "$OUT" 2>/dev/null || HAND=yes ;; esac
    if [ -n "$HAND" ]; then
        OUT=$OUT-by-hand-${SLURM_JOB_ID:-}
        mkdir -m 700 "$OUT" || exit 73
    else
        exec >"$OUT/slurm.out" 2>&1
    fi
    SELF=$OUT/script SEE=0
    all_nodes files sh -c "$STAGE" sh "$OUT" "${SLURMD_NODENAME:-}" "$(cksum <"$0")" <"$0" >>"$OUT/srun.out" 2>&1
    case $0 in */hpcadmin-packed-*) rm -f "$0" ;; esac
}

# finish_away: what lies on the nodes is taken by a step that the host starts which submitted; it ends with the job.
finish_away() {
    if [ -n "$HAND" ]; then
        cat "$OUT/srun.out" "$OUT/driver.log"
        all_nodes over sh -c 'cat "$1/$SLURMD_NODENAME.log" 2>/dev/null
            rm -rf "$3"
            [ "$SLURMD_NODENAME" = "$2" ] || rm -rf "$1"' sh "$OUT" "${SLURMD_NODENAME:-}" "$AWAY" </dev/null
        rm -rf "$OUT"
        return
    fi
    all_nodes over sh -c ': >"$1/over"' sh "$OUT" >>"$OUT/srun.out" 2>&1 </dev/null
    : >"$OUT/over"
    read -r k_begin k_x </proc/uptime
    until [ -e "$OUT/collected" ]; do
        read -r k_now k_x </proc/uptime
        [ $((${k_now%.*} - ${k_begin%.*})) -lt "$TAKEN" ] || return
        sleep 0.2
    done
    all_nodes clean sh -c 'cd / && rm -rf "$1"' sh "$OUT" >/dev/null 2>&1 </dev/null
    rm -rf "$OUT"
    sleep 0.3                   # for the step that collects to end by itself
}

# wrote: how long this node's log is now, for the driver.
wrote() {
    plain "$OUT/$SLURMD_NODENAME.log" && printf 'wrote %s %s\n' "$SLURMD_NODENAME" "$(wc -c <"$OUT/$SLURMD_NODENAME.log")"
}

on_node() {
    [ -n "${SLURMD_NODENAME:-}" ] || { echo "hpcadmin: SLURMD_NODENAME is not set" >&2; exit 70; }
    OUT=${HPCADMIN_OUT:-$OUT}
    [ -z "$AWAY" ] || SELF=$OUT/script
    scratch
}

case ${1:-} in
each) shift; on_node; one "$@"; wrote; exit 0 ;;
client) shift; on_node; client_on_node "$@"; exit 0 ;;
server) shift; on_node; server_on_node "$@"; exit 0 ;;
node) on_node; AGAIN=${3:-} ;;
programs) programs; exit ;;
with) shift; with "$@" ;;
within) shift; within "$@" ;;
mpirun) shift; with_mpirun "$@" ;;
*) begin "$@" ;;
esac
# ---- end of the functions ------------------------------------------------------------------------------------------
