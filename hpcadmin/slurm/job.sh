# ---- hpcadmin: the functions that every job uses -------------------------------------------------------------------
LC_ALL=C
export LC_ALL
umask 077
MAX=32768                       # blocks of 512 bytes of one output that are kept (16 MiB)
GRACE=2                         # seconds a server gets to end by itself after its client

now() {
    n_time=$(date +%s.%N)
    case $n_time in *[!0-9.]* | '') n_time=$(date +%s) ;; esac
}

# scratch: a private folder on this node, in the run folder where the node has no usable /tmp; gone at the end.
scratch() {
    TMPD=$(mktemp -d "${TMPDIR:-/tmp}/hpcadmin.XXXXXX" 2>/dev/null) || TMPD=$(mktemp -d "$OUT/.tmp.XXXXXX") || exit 70
    trap 'rm -rf "$TMPD"' EXIT
    trap 'exit 143' TERM INT HUP
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
    if [ -e "$2.more" ]; then flags=${flags:+$flags,}truncated; rm -f "$2.more"; fi
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

# ---- on a node

# one ID STEP SECONDS CMD...: run CMD and append its frame to this node's log.
one() {
    o_id=$1 o_step=$2 o_limit=$3
    shift 3
    capture "$TMPD/out" "$o_limit" "$@"
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
    frame "$1" "$2" "$3" "$4" "$u_host" "$u.out" >"$u.frame"
}

# unstarted ID STEP ROLE NODE FLAG
unstarted() {
    u=$TMPD/$1.$2
    now; start=$n_time end=$n_time status=- flags=$5
    : >"$u.out"
    frame "$1" "$2" "$3" "$4" "$HOST" "$u.out" >"$u.frame"
}

# drop_step NAME: cancel the step of that name, whose srun had to be killed.
drop_step() {
    squeue -h -s -j "$SLURM_JOB_ID" -o '%i %j' 2>/dev/null | while read -r d_id d_name; do
        [ "$d_name" = "$1" ] && scancel "$d_id" 2>/dev/null
    done
}

# ranks ID STEP NODE SECONDS CMD...: a parallel program; CMD is or ends in its srun, whose output and status they are.
ranks() {
    r_id=$1 r_step=$2 r_node=$3 r_limit=$4
    shift 4
    capture "$TMPD/$r_id.$r_step.out" "$r_limit" "$@"
    case $flags in *timeout*) drop_step "$r_id.$r_step" ;; esac
    frame "$r_id" "$r_step" ranks "$r_node" "$HOST" "$TMPD/$r_id.$r_step.out" >"$TMPD/$r_id.$r_step.frame"
}

# each ID STEP SECONDS COUNT NODELIST CMD...: one process on each node; the nodes append the frames to their own logs.
each() {
    e_id=$1 e_step=$2 e_limit=$3 e_count=$4 e_list=$5
    shift 5
    timeout -k 5 $((e_limit + 15)) srun $SRUN $PLAIN -J "$e_id.$e_step" -N "$e_count" -n "$e_count" -w "$e_list" \
        ${IMAGE:+"--container-image=$IMAGE" "--container-mounts=$OUT:$OUT"} \
        sh "$SELF" each "$e_id" "$e_step" "$e_limit" "$@" >>"$OUT/srun.out" 2>&1 </dev/null
    case $? in 124 | 137) drop_step "$e_id.$e_step" ;; esac
}

# serve ID STEP NODE SECONDS READY_SECONDS PORT TEXT CMD...: start a server and wait until it is ready.
serve() {
    v_id=$1 v_step=$2 v_node=$3 v=$TMPD/$1.$2 v_limit=$4
    shift 3
    now; u_start=$n_time
    mkfifo "$v.in" "$v.up"
    timeout -k 5 $((v_limit + 15)) srun $SRUN $PLAIN -J "$v_id.$v_step" -N 1 -n 1 -w "$v_node" \
        ${IMAGE:+"--container-image=$IMAGE" "--container-mounts=$OUT:$OUT"} \
        sh "$SELF" server "$@" <"$v.in" >"$v.up" 2>"$v.err" &
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
    if [ "$v_word" != ready ]; then unstarted "$l_id" "$l_step" client "$l_node" nostart; return; fi
    now; u_start=$n_time
    timeout -k 5 $((l_limit + 15)) srun $SRUN $PLAIN -J "$l_id.$l_step" -N 1 -n 1 -w "$l_node" \
        ${IMAGE:+"--container-image=$IMAGE" "--container-mounts=$OUT:$OUT"} \
        sh "$SELF" client "$@" >"$l.raw" 2>"$l.err" </dev/null 4>&- 3<&-
    case $? in 124 | 137) drop_step "$l_id.$l_step" ;; esac
    unpack "$l_id" "$l_step" client "$l_node"
}

# unserve: the client is done; end the server and take its output.
unserve() {
    exec 4>&-
    cat <&3 >"$v.raw"
    exec 3<&-
    wait "$v_pid"
    case $? in 124 | 137) drop_step "$v_id.$v_step" ;; esac
    unpack "$v_id" "$v_step" server "$v_node"
}

# together ID: the last command put into the background belongs to test ID; collect waits for all and keeps their frames.
together() { t_all="${t_all:-} $!:$1"; }

collect() {
    for t_one in ${t_all:-}; do
        wait "${t_one%%:*}"
        for t_frame in "$TMPD/${t_one#*:}".*.frame; do
            [ -e "$t_frame" ] && cat "$t_frame" >>"$OUT/driver.log"
        done
        rm -rf "$TMPD/${t_one#*:}".*
    done
    t_all=''
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

# by_node STAGE SECONDS COUNT NODELIST: every node runs its own list of tests of this stage, side by side.
by_node() {
    timeout -k 5 "$2" srun $SRUN $PLAIN -J "$1" -N "$3" -n "$3" -w "$4" sh "$SELF" node "$1" \
        >>"$OUT/srun.out" 2>&1 </dev/null
    case $? in 124 | 137) drop_step "$1" ;; esac
}

begin() {
    # A finished run is not written to again: a job that is started by hand later gets a folder of its own.
    if [ -e "$OUT/done" ]; then OUT=$OUT/by-hand-$SLURM_JOB_ID; mkdir -p "$OUT" || exit 73; fi
    HPCADMIN_OUT=$OUT
    export HPCADMIN_OUT
    scratch
    : >>"$OUT/driver.log"
}

# finish: what says that the job has done all it had to do.
finish() {
    now
    echo "$n_time ${SLURM_JOB_ID:-}" >"$OUT/.done" && mv "$OUT/.done" "$OUT/done"
}

on_node() {
    [ -n "${SLURMD_NODENAME:-}" ] || { echo "hpcadmin: SLURMD_NODENAME is not set" >&2; exit 70; }
    OUT=${HPCADMIN_OUT:-$OUT}
    scratch
}

case ${1:-} in
each) shift; on_node; one "$@"; exit 0 ;;
client) shift; on_node; client_on_node "$@"; exit 0 ;;
server) shift; on_node; server_on_node "$@"; exit 0 ;;
node) on_node ;;
with) shift; with "$@" ;;
within) shift; within "$@" ;;
*) begin ;;
esac
# ---- end of the functions ------------------------------------------------------------------------------------------
