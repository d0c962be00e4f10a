#!/bin/sh
# accounting.sh DIR NODE: MariaDB, slurmdbd, slurmctld and slurmd with the files in DIR/slurm, alone in their own
# namespaces as in oracle.sh; then DIR/job, its output in DIR/job.out. DIR/grants.sql is run by the database at its start.
# Run by: unshare -m -n -u -i -p -f --kill-child sh accounting.sh DIR NODE. HWLOC_SYNTHETIC gives slurmd its CPUs.
set -eu
dir=$1 node=$2
mount --make-rprivate /
mount -t proc proc /proc
ip link set lo up
ip address add 192.0.2.1/32 dev lo
hostname "$node"
mkdir -p "$dir/dev" "$dir/log"
mount -t tmpfs -o mode=755 dev "$dir/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$dir/dev/"
mkdir "$dir/dev/shm" "$dir/dev/pts"
ln -s /proc/self/fd "$dir/dev/fd"
while read -r major minor path; do
    mknod -m 666 "$dir/$path" c "$major" "$minor"
done < "$dir/devices"
mount --bind "$dir/dev" /dev
mount --bind "$dir/hosts" /etc/hosts
mount -t tmpfs -o mode=755 run /run
mount --bind "$dir/slurm" /etc/slurm
mount -t tmpfs -o mode=755 state /var/lib/slurm
mount -t tmpfs -o mode=755 database /var/lib/mysql
mount --bind "$dir/log" /var/log/slurm
mkdir -p /run/munge /run/mysqld /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
chown mysql: /var/lib/mysql /run/mysqld
chown slurm: /var/lib/slurm/slurmctld /var/log/slurm /etc/slurm/slurmdbd.conf
dd if=/dev/urandom of=/run/munge.key bs=128 count=1 2>/dev/null
chmod 600 /run/munge.key
munged --force --key-file=/run/munge.key --seed-file=/run/munge/seed --pid-file=/run/munge/pid --log-file=/run/munge/log
cp "$dir/grants.sql" /run/grants.sql
mariadb-install-db --no-defaults --user=mysql --datadir=/var/lib/mysql --skip-test-db --skip-name-resolve \
    >"$dir/log/install.out" 2>&1
mariadbd --no-defaults --user=mysql --datadir=/var/lib/mysql --bind-address=127.0.0.1 --skip-name-resolve \
    --socket=/run/mysqld/mysqld.sock --init-file=/run/grants.sql --performance-schema=OFF >"$dir/log/mariadbd.out" 2>&1 &

# answers SECONDS CMD...: waits until CMD succeeds.
answers() {
    tries=$(($1 * 10))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "no answer: $*" >&2; exit 1; }
        sleep 0.1
    done
}

answers 120 mariadb-admin --no-defaults --socket=/run/mysqld/mysqld.sock ping
su -s /bin/sh slurm -c 'exec slurmdbd -D' >/dev/null 2>&1 &
answers 120 sacctmgr -i -n show cluster
synthetic=${HWLOC_SYNTHETIC:-}
unset HWLOC_SYNTHETIC
slurmctld -c
answers 60 scontrol ping
HWLOC_SYNTHETIC=$synthetic slurmd -N "$node"
answers 60 sh -c "sinfo -h -n $node -o %T | grep -qE '^(idle|inval|drain|down)'"
scontrol show node -o "$node" > "$dir/node" 2>&1
sh "$dir/job" > "$dir/job.out" 2>&1 || echo "status $?" >> "$dir/job.out"
chmod 644 /var/log/slurm/*
