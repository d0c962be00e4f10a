# Sourced by scripts/test and scripts/demo: installs what they need on a fresh Debian 12, as root.
# Packages come through apt and pip; Python packages go into a virtual environment of this checkout's own.

set -eu
ROOT=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$ROOT"

say() { printf '%s\n' "== $*" >&2; }

need_root() {
    if [ "$(id -u)" != 0 ]; then
        echo "$0: must run as root: it installs packages and starts a Slurm cluster in namespaces" >&2
        exit 2
    fi
}

# install_packages NAME…: only what is missing is asked of apt.
install_packages() {
    missing=
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    say "apt-get install$missing"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    # RUNLEVEL=1: services of the packages are not started; the lab starts its own in its own namespaces.
    # shellcheck disable=SC2086  # a list of package names
    if ! { apt-get update -q && RUNLEVEL=1 apt-get install -y -q --no-install-recommends $missing; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "$0: apt-get could not install$missing" >&2
        exit 2
    fi
    rm -f "$log"
}

BASE_PACKAGES="python3 python3-venv ca-certificates"
LAB_PACKAGES="slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins openmpi-bin libopenmpi-dev gcc libc6-dev
 openssh-server openssh-client iproute2 util-linux procps pciutils hwloc-nox"

# Tools and shells that tests put questions to; what is not there is skipped with the reason.
UNIT_PACKAGES="openmpi-bin libopenmpi-dev gcc libc6-dev openssh-server openssh-client openssl util-linux pciutils hwloc-nox
 tcsh fish sudo dmidecode dash busybox-static bzip2 systemd logrotate vagrant vagrant-libvirt ruby prometheus"
LAB_TEST_PACKAGES="mariadb-server slurmdbd debootstrap chromium dash busybox-static environment-modules iperf3
 iputils-ping poppler-utils libxml2-utils
 fonts-dejavu-core fonts-wqy-zenhei"
# tiny-initramfs first: another initramfs tool would bring udev and a newer systemd. busybox-static, as virtme-ng wants.
RDMA_PACKAGES="tiny-initramfs linux-image-amd64 qemu-system-x86 busybox-static kmod perftest ibverbs-utils
 ibverbs-providers iproute2"

# make_venv EXTRA: the virtual environment, outside the checkout so that an ordinary user can read it wherever the
# checkout lies. hpcadmin is installed into it as from a wheel, anew whenever a file of the project has changed.
make_venv() {
    key=$(printf '%s' "$ROOT" | sha256sum | cut -c1-12)
    VENV=${HPCADMIN_VENV:-/var/cache/hpcadmin/venv-$key}
    state=$(find hpcadmin checks conf_templates playbooks pyproject.toml setup.cfg README.md -type f \
        ! -name '*.pyc' -exec sha256sum {} + | sort | sha256sum)
    if [ "$(cat "$VENV/.hpcadmin-state" 2>/dev/null)" = "$1 $state" ]; then
        return 0
    fi
    say "virtual environment $VENV"
    mkdir -p "$(dirname "$VENV")"
    [ -x "$VENV/bin/python" ] || /usr/bin/python3 -m venv "$VENV"
    log=$(mktemp)
    if ! { "$VENV/bin/pip" install -q ".$1" && "$VENV/bin/pip" install -q --force-reinstall --no-deps .; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "$0: pip could not install hpcadmin into $VENV" >&2
        exit 2
    fi
    rm -rf "$log" "$ROOT/build" "$ROOT/hpcadmin.egg-info"
    printf '%s' "$1 $state" >"$VENV/.hpcadmin-state"
}
