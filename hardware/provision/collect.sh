#!/bin/sh
# Collects on a machine with a network all that install.sh needs on one without: wheels of auscult-edge (what devices and
# hospitals need of Auscult), of what it needs, of pip, and the files of this folder.
#
#   sh hardware/provision/collect.sh DIRECTORY [ARCHITECTURE [PYTHON]]     aarch64 and 3.11 (Debian 12) if nothing is said
#
# Take DIRECTORY to the board, and there: sudo sh DIRECTORY/install.sh device NAME.toml
set -eu

directory=${1:?a directory is needed: sh collect.sh DIRECTORY [ARCHITECTURE [PYTHON]]}
architecture=${2:-aarch64}
version=${3:-3.11}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python3}
wheels=$directory/wheels

mkdir -p "$wheels"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" "$here/edge"
set -- "$wheels"/auscult_edge-*.whl
"$python" -m pip download --quiet --dest "$wheels" --only-binary :all: --implementation cp --python-version "$version" \
    --platform "manylinux_2_28_$architecture" --platform "manylinux_2_27_$architecture" \
    --platform "manylinux2014_$architecture" "$1" pip
cp "$here"/install.sh "$here"/*.service "$directory"
echo "collected in $directory: $(find "$wheels" -name '*.whl' | wc -l) wheels for $architecture, Python $version"
