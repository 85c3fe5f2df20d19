#!/bin/sh
# Installs a device or a hospital as a service on Debian 12 or Raspberry Pi OS (64 bit), without a network. As root:
#
#   sh install.sh device watch-7.toml            the service auscult-device@watch-7
#   sh install.sh hospital north.toml            the service auscult-hospital@north
#   sh install.sh --broker DIRECTORY             mosquitto with what `auscult provision certs` wrote into certs/broker
#
# Beside it are the folder `wheels` and the unit files, as collect.sh puts them there. What it writes:
#
#   /opt/auscult            the programs, in a virtual environment; read only from then on
#   /etc/auscult            settings files, for root and the service's user only
#   /var/lib/auscult/NAME   all that a node keeps: the one place that must be writable
#   /etc/systemd/system     the units
#
# A second call replaces programs and units, and a settings file that is named; what a node keeps stays.
# ROOT=FOLDER prepares an image in a folder: nothing is started there, and no user is made.
# RUN="..." is put in front of the installed Python, for one of another architecture.
set -eu
unset PYTHONPATH PYTHONHOME

root=${ROOT:-}
run=${RUN:-}
python=${PYTHON:-$root/usr/bin/python3}
home=/opt/auscult
user=auscult
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

# $run is a command with its options, or nothing: it must be split into words.
# shellcheck disable=SC2086
call() {
    $run "$@"
}

check_machine() {
    [ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "root's rights are needed: sudo sh install.sh ..."
    call "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python: Python 3.11 or newer is needed"
    set -- "$here"/wheels/pip-*.whl
    [ -f "$1" ] || fail "$here/wheels: no wheel of pip in it; collect.sh makes that folder"
    pip=$1
    set -- "$here"/wheels/auscult_edge-*.whl
    [ -f "$1" ] || fail "$here/wheels: no wheel of auscult-edge in it; collect.sh makes that folder"
    wheel=$1
}

check_settings() {
    [ -f "$settings" ] || fail "$settings: no such settings file"
    name=$(basename "$settings" .toml)
    [ "$name" != "$(basename "$settings")" ] || fail "$settings: a settings file is called NAME.toml"
    case $name in
        *[!A-Za-z0-9_.-]* | [!A-Za-z0-9]*) fail "$name: letters, digits, '_', '-' and '.', as in the name of a node" ;;
    esac
}

make_user() {
    [ -z "$root" ] || return 0
    id "$user" >/dev/null 2>&1 ||
        useradd --system --user-group --home-dir /var/lib/auscult --no-create-home --shell /usr/sbin/nologin "$user"
}

# The new programs take the place of the old ones only when they are complete: a cut of the power leaves either.
install_programs() {
    rm -rf "$root$home.new"
    mkdir -p "$root/opt"
    call "$python" -m venv --without-pip "$root$home.new"
    call "$root$home.new/bin/python3" "$pip/pip" install --quiet --no-index --find-links "$here/wheels" \
        --disable-pip-version-check "$wheel"
    call "$root$home.new/bin/python3" -I -c "import edge_sdk.cli" || fail "the installed programs do not start"
    [ -z "$root" ] || point_into_image
    rm -rf "$root$home.old"
    [ ! -d "$root$home" ] || mv "$root$home" "$root$home.old"
    mv "$root$home.new" "$root$home"
    rm -rf "$root$home.old"
}

# In an image the paths begin at the folder that it is prepared in; on the machine they will not.
point_into_image() {
    for link in "$root$home.new"/bin/python*; do
        case $(readlink "$link") in
            "$root"/*) ln -sfn "$(readlink "$link" | sed "s#^$root##")" "$link" ;;
        esac
    done
    sed -i "s#$root##g" "$root$home.new/pyvenv.cfg"
}

install_service() {
    mkdir -p "$root/etc/auscult" "$root/var/lib/auscult" "$root/etc/systemd/system"
    chmod 0750 "$root/etc/auscult"
    cp "$settings" "$root/etc/auscult/$name.toml.new"
    chmod 0640 "$root/etc/auscult/$name.toml.new"
    mv "$root/etc/auscult/$name.toml.new" "$root/etc/auscult/$name.toml"
    cp "$here"/auscult-*.service "$root/etc/systemd/system"
    [ -n "$root" ] || chown -R "root:$user" /etc/auscult
}

start_service() {
    if [ -n "$root" ]; then
        echo "installed in $root; on the machine: systemctl enable --now auscult-$kind@$name"
        return 0
    fi
    systemctl daemon-reload
    systemctl enable --quiet "auscult-$kind@$name"
    # All that run here: the programs of each were just replaced, and parts of them are loaded when they are needed.
    systemctl try-restart 'auscult-device@*' 'auscult-hospital@*'
    systemctl start "auscult-$kind@$name"
    echo "auscult-$kind@$name is started; its log: journalctl -u auscult-$kind@$name"
}

install_broker() {
    [ -f "$settings/install.sh" ] || fail "$settings: no folder that auscult provision certs has written for a broker"
    command -v mosquitto >/dev/null || [ -x /usr/sbin/mosquitto ] ||
        fail "mosquitto is not installed: apt install mosquitto, or dpkg -i its packages where there is no network"
    sh "$settings/install.sh"
    systemctl enable --quiet mosquitto
    systemctl restart mosquitto
}

kind=${1:-}
settings=${2:-}
[ -n "$settings" ] || fail "expected: device FILE.toml, hospital FILE.toml, or --broker DIRECTORY"
case $kind in
    --broker)
        install_broker
        exit 0
        ;;
    device | hospital) ;;
    *) fail "$kind: expected device, hospital or --broker" ;;
esac
check_machine
check_settings
make_user
install_programs
install_service
start_service
