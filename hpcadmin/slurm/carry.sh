# On each node of a job whose nodes share no folder: says what the job leaves in its folder there, and takes words from the
# host that submitted it. FOLDER TURNS. Lines of less than 1000 bytes, because srun hands on longer ones in pieces:
#   node NAME | at FILE OFFSET, then +BASE64 lines | done TIME JOB | all | none
LC_ALL=C
umask 077
folder=$1 turns=$2
until [ -e "$folder/script" ]; do
    [ "$turns" -gt 0 ] || { echo "none"; exit 73; }
    turns=$((turns - 1))
    sleep 0.2
done
[ -O "$folder" ] && [ ! -h "$folder" ] && cd "$folder" || { echo "none"; exit 73; }
echo "node $SLURMD_NODENAME"
exec 3<&0
{
    while read -r word; do
        case $word in stop) : >stop ;; end) : >collected ;; esac
    done
} <&3 &
listener=$!
last=''
trap 'last=yes' TERM

pass() {
    number=0
    for file in "$SLURMD_NODENAME.log" driver.log srun.out slurm.out sizes claimed begun stopped; do
        number=$((number + 1))
        [ -s "$file" ] && [ -f "$file" ] && [ ! -h "$file" ] || continue
        size=$(wc -c <"$file")
        eval "sent=\${sent_$number:-0}"
        [ "$size" -gt "$sent" ] || continue
        echo "at $file $sent"
        tail -c "+$((sent + 1))" <"$file" | head -c $((size - sent)) | base64 -w 720 | sed 's/^/+/'
        eval "sent_$number=$size"
    done
}

said_done='' said_all=''
while :; do
    has_done='' has_all=''
    [ ! -e over ] || has_all=yes
    [ ! -e done ] || has_done=yes
    pass
    if [ -n "$has_done" ] && [ -z "$said_done" ]; then
        read -r text <done
        echo "done $text"
        said_done=yes
    fi
    if [ -n "$has_all" ] && [ -z "$said_all" ]; then echo all; said_all=yes; fi
    [ -z "$last" ] && [ ! -e collected ] && [ -e script ] || break      # its folder goes with the job
    kill -0 "$listener" 2>/dev/null || exit 0       # whoever asked is gone; what is here stays
    if [ -n "$said_all" ]; then sleep 0.1; else sleep 0.5; fi
done
kill "$listener" 2>/dev/null
exit 0
