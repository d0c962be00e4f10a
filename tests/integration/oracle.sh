#!/bin/sh
# oracle.sh DIR NODE: the real slurmctld and slurmd with the files in DIR/slurm, alone in their own namespaces: own network,
# host name, processes, /dev with DIR/devices ("MAJOR MINOR PATH" lines), /run, /etc/slurm and state. Nothing of the machine changes.
# Run by: unshare -m -n -u -i -p -f --kill-child sh oracle.sh DIR NODE. HWLOC_SYNTHETIC gives slurmd its CPUs.
set -eu
dir=$1 node=$2
mount --make-rprivate /
mount -t proc proc /proc
ip link set lo up
ip address add 192.0.2.1/32 dev lo    # names do not resolve where there is no address but 127.0.0.1
hostname "$node"
mkdir -p "$dir/dev" "$dir/log"
mount -t tmpfs -o mode=755 dev "$dir/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$dir/dev/"
mkdir "$dir/dev/shm" "$dir/dev/pts"
ln -s /proc/self/fd "$dir/dev/fd"
while read -r major minor path; do
    mkdir -p "$(dirname "$dir/$path")"
    mknod -m 666 "$dir/$path" c "$major" "$minor"
done < "$dir/devices"
mount --bind "$dir/dev" /dev
mount --bind "$dir/hosts" /etc/hosts
mount -t tmpfs -o mode=755 run /run
mount --bind "$dir/slurm" /etc/slurm
mount -t tmpfs -o mode=755 state /var/lib/slurm
mount --bind "$dir/log" /var/log/slurm
mkdir -p /run/munge /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
chown slurm: /var/lib/slurm/slurmctld /var/log/slurm
dd if=/dev/urandom of=/run/munge.key bs=128 count=1 2>/dev/null
chmod 600 /run/munge.key
munged --force --key-file=/run/munge.key --seed-file=/run/munge/seed --pid-file=/run/munge/pid --log-file=/run/munge/log
synthetic=${HWLOC_SYNTHETIC:-}
unset HWLOC_SYNTHETIC
slurmctld -c
HWLOC_SYNTHETIC=$synthetic slurmd -N "$node"
tries=0
while [ $tries -lt 60 ]; do
    case $(sinfo -h -N -n "$node" -o %T 2>/dev/null) in
        idle | drained* | inval* | drain* | down) break ;;
    esac
    tries=$((tries + 1))
    sleep 0.1
done
scontrol show node -o "$node" > "$dir/node" 2>&1 || true
scontrol show config > "$dir/config" 2>&1 || true
if [ -s "$dir/job" ]; then timeout 20 sh "$dir/job" > "$dir/job.out" 2>&1 || echo "status $?" >> "$dir/job.out"; fi
chmod 644 /var/log/slurm/*
