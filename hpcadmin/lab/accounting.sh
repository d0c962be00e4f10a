# Sourced by boot.sh on a head with accounting: MariaDB on 127.0.0.1, slurmdbd, the cluster, one account, the user.
data=/var/lib/mysql
out=/var/log/mysql
mkdir -p "$data" "$out" /run/mysqld
chown mysql: "$data" "$out" /run/mysqld
mariadb-install-db --no-defaults --user=mysql --datadir="$data" --skip-test-db --skip-name-resolve \
    </dev/null >"$out/install.out" 2>&1 3>&- || fail "mariadb-install-db: $(tail -n 1 "$out/install.out")"
setsid mariadbd --no-defaults --user=mysql --datadir="$data" --bind-address=127.0.0.1 --port=3306 --skip-name-resolve \
    --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid --init-file=/etc/hpcadmin/lab/grants.sql \
    --innodb-buffer-pool-size=128M --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0 \
    --performance-schema=OFF </dev/null >"$out/mariadbd.out" 2>&1 3>&- &

# wait_for SECONDS WHAT LOG CMD...: until CMD succeeds.
wait_for() {
    tries=$(($1 * 10)) what=$2 log=$3
    shift 3
    until "$@" </dev/null >/dev/null 2>&1 3>&-; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "$what does not answer: $(grep -iE 'error|fatal' "$log" | tail -n 1)"
        sleep 0.1
    done
}

wait_for 40 mariadbd "$out/mariadbd.out" mariadb-admin --no-defaults --socket=/run/mysqld/mysqld.sock ping
setsid slurmdbd -D </dev/null >/var/log/slurm/slurmdbd.out 2>&1 3>&- &
wait_for 40 slurmdbd /var/log/slurm/slurmdbd.out sacctmgr -i -n show cluster
for entry in "cluster $CLUSTER" "account lab Description=lab Organization=lab" \
    "user root Account=lab AdminLevel=Administrator" "user $LAB_USER Account=lab"; do
    # shellcheck disable=SC2086  (an entry is several words)
    sacctmgr -i add $entry </dev/null >>/var/log/slurm/sacctmgr.out 2>&1 3>&-
done
sacctmgr -n -P show assoc format=user,account 2>/dev/null 3>&- | grep -q "^$LAB_USER|lab" ||
    fail "sacctmgr: $(tail -n 1 /var/log/slurm/sacctmgr.out)"
