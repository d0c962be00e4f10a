#!/bin/bash
# A real systemd as the first process of namespaces of its own, on an overlay of this machine's root: nothing of it is left.
#   systemd_here.sh FOLDER SCRIPT BIND…     FOLDER is empty; each BIND (FROM:TO) is mounted there; SCRIPT is run as a unit, once
set -eu
folder=$1 script=$2
shift 2
if [ "${SYSTEMD_HERE:-}" != inside ]; then
    group=/sys/fs/cgroup/systemd
    [ -d "$group" ] || group=/sys/fs/cgroup
    group=$group/hpcadmin-test-$$
    mkdir "$group"
    remove() { find "$group" -depth -type d -exec rmdir {} + 2>/dev/null; }
    trap remove EXIT
    SYSTEMD_HERE=inside bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' - "$group" \
        unshare -m -p -f -u -i -C --propagation private --kill-child bash "$0" "$folder" "$script" "$@" || true
    exit 0
fi
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
cd "$folder/root"
mount -t proc proc proc
mount -t sysfs sysfs sys -o ro
for part in dev run tmp; do mount -t tmpfs tmpfs $part; done
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/pts dev/shm
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666
ln -s pts/ptmx dev/ptmx
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 sys/fs/cgroup
else
    mount -t tmpfs tmpfs sys/fs/cgroup
    mkdir sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd,xattr systemd sys/fs/cgroup/systemd
fi
for bind in "$@"; do
    mkdir -p ".${bind#*:}"
    mount --bind "${bind%%:*}" ".${bind#*:}"
done
cat >etc/systemd/system/here.target <<'EOF'
[Unit]
DefaultDependencies=no
Wants=here.service
After=here.service
EOF
cat >etc/systemd/system/here.service <<EOF
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh "$script"
ExecStopPost=/bin/kill -s RTMIN+4 1
EOF
mkdir old
pivot_root . old
umount -l old
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/lib/systemd/systemd --unit=here.target \
    --log-target=console --show-status=no
