#!/bin/sh
# First process of a lab host's PID namespace: starts the services, says "ready" on descriptor 3, then stays and
# collects orphans. `boot.sh slurmd` starts that service alone (after a fault). Settings: /etc/hpcadmin/lab/boot.conf.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH LANG=C.UTF-8
unset SLURM_CONF
. /etc/hpcadmin/lab/boot.conf

fail() {
    printf 'failed %s\n' "$1" >&3
    exit 1
}

start_slurmd() {
    set -- "$(command -v slurmd)" -D -N "$NAME"
    [ -z "$SLURMD_HWLOC" ] || set -- env HWLOC_XMLFILE="$SLURMD_HWLOC" "$@"
    setsid "$@" </dev/null >/var/log/slurm/slurmd.out 2>&1 3>&- &
}

if [ "$1" = slurmd ]; then
    # Entered from outside: join this host's control groups, as its other services have.
    for group in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do
        [ ! -w "$group" ] || echo $$ >"$group" || :
    done 2>/dev/null
    start_slurmd
    exit 0
fi

mkdir -p /run/sshd /run/hpcadmin
chmod 755 /run/sshd
"$(command -v sshd)" -E /var/log/sshd.log </dev/null >>/var/log/boot.log 2>&1 3>&- || fail "sshd: $(tail -n 1 /var/log/sshd.log)"

if [ "$MUNGE_USER" = root ]; then
    munged --force --num-threads=2 </dev/null >/var/log/munge/munged.out 2>&1 3>&-
else
    setpriv --reuid="$MUNGE_USER" --regid="$MUNGE_USER" --init-groups \
        munged --num-threads=2 </dev/null >/var/log/munge/munged.out 2>&1 3>&-
fi || fail "munged: $(tail -n 1 /var/log/munge/munged.out)"

if [ "$ROLE" = head ]; then
    if [ -n "$ACCOUNTING" ]; then
        . /etc/hpcadmin/lab/accounting.sh
    fi
    setsid slurmctld -c -D </dev/null >/var/log/slurm/slurmctld.out 2>&1 3>&- &
else
    start_slurmd
fi

printf 'ready\n' >&3
exec 3>&-
while :; do
    sleep 2147483647 &
    wait $!
done
