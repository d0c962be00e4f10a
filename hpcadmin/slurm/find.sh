# Where tools are on this node, whether they can start there, and what they say of their version. What they print comes
# with a bar before each line, so that it cannot pass for a word of ours. $@: what is known, as "NAME PATH MTIME SIZE".
LC_ALL=C
PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin
export LC_ALL PATH
# A program of MPI would take itself for a rank of this step, and refuse to start by itself.
for v in $(env | sed -n -e 's/^\(SLURM_[A-Za-z0-9_]*\)=.*/\1/p' -e 's/^\(PMI_[A-Za-z0-9_]*\)=.*/\1/p' \
    -e 's/^\(PMIX_[RNS][A-Za-z0-9_]*\)=.*/\1/p' -e 's/^\(OMPI_[CU][A-Za-z0-9_]*\)=.*/\1/p'); do unset "$v"; done
exec 3>&1
cd / || exit 70
LIMIT=
timeout -k 1 5 true 2>/dev/null && LIMIT='timeout -k 1 10'

# Few processes: where each takes a second (emulated guests) a look must not take a minute.
KNOWN='
'
for v in "$@"; do KNOWN="$KNOWN$v
"; done
# known WORDS: whether they are among the arguments of this script.
known() {
    case $KNOWN in *"
$1
"*) ;; *) return 1 ;; esac
}

# kind FILE: sets magic and machine from its first bytes.
kind() {
    set -- $(od -An -tx1 -N20 "$1" 2>/dev/null)
    magic=${1-}${2-} machine=${19-}${20-}
}
kind /proc/self/exe
HERE=$machine
for LOADER in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1 ''; do [ -x "$LOADER" ] && break; done

# starts FILE: what keeps it from starting, as far as can be told without starting it. The loader lists what it would
# load, as ldd has it do.
starts() {
    kind "$1"
    case $magic in
    7f45)
        if [ "$machine" != "$HERE" ]; then echo foreign; fi
        if [ -n "$LOADER" ]; then LD_TRACE_LOADED_OBJECTS=1 "$LOADER" "$1" 2>&1; else ldd "$1" 2>&1; fi |
            sed -n 's/^[[:space:]]*\([^[:space:]]*\) => not found.*/lacks \1/p' ;;
    2321) ;;
    *) echo odd ;;
    esac
}

# ask CMD...: what it prints, and its exit status.
ask() {
    a_status=$( { { { $LIMIT "$@" </dev/null 2>&1 3>&- 4>&-; echo $? >&4; } |
        { head -c 4096 | tr -c ' -~\n' '?'; echo; } | sed 's/^/|/' >&3; } 4>&1; } 2>/dev/null)
    echo "status $a_status"
}

# find_tool NAME PATH N PLACE... ARG...: PATH "": the name on PATH, then the places (shell patterns of files).
find_tool() {
    f_name=$1 f_path=$2 f_count=$3 f_word=where f_found=''
    shift 3
    echo "tool $f_name"
    case $f_path in
    /*) [ -f "$f_path" ] && f_found=$f_path ;;
    *) f_found=$(command -v -- "${f_path:-$f_name}") ;;
    esac
    case $f_found in /*) ;; *) f_found='' ;; esac       # command -v also tells functions
    while [ "$f_count" -gt 0 ]; do
        for f_one in $1; do
            if [ -z "$f_found$f_path" ] && [ -f "$f_one" ] && [ -x "$f_one" ]; then f_found=$f_one f_word=place; fi
        done
        f_count=$((f_count - 1))
        shift
    done
    if [ -n "$f_found" ]; then
        echo "$f_word $f_found"
        f_stamp=$(stat -L -c '%Y %s' "$f_found" 2>/dev/null) && echo "stamp $f_stamp"
        if [ ! -x "$f_found" ]; then
            echo noexec
        else
            starts "$f_found"
            if [ $# -gt 0 ]; then
                if known "$f_name $f_found $f_stamp"; then echo same; else ask "$f_found" "$@"; fi
            fi
        fi
    fi
    echo "end $f_name"
}
