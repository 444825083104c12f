#!/bin/sh
# Installs those of the named Debian packages that are missing; as root, or else with sudo.
set -eu
missing=
for package in "$@"; do
    if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
        missing="$missing $package"
    fi
done
[ -n "$missing" ] || exit 0
echo "installing:$missing"
run=
[ "$(id -u)" = 0 ] || run=sudo
$run apt-get update -q
# shellcheck disable=SC2086
$run env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
