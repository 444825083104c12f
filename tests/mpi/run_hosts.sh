#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run_hosts.sh MPIEXEC HOSTS RANKS PROGRAM ARGUMENT...: as run_ranks.sh, but on several hosts of this machine, with so many
# ranks on each: network namespaces with a name and an interface (eth0) of their own, which a switch connects. Exits with
# 77 (skipped) where namespaces cannot be made, or mpiexec is not Open MPI's.
mpiexec=$1
hosts=$2
ranks=$3
shift 3
skip() {
    echo "$1: skipped"
    exit 77
}
"$mpiexec" --version 2>/dev/null | grep -q open-mpi || skip "no mpiexec of Open MPI"
name=dcp-$$
ip netns add "$name-switch" 2>/dev/null || skip "no network namespaces can be made"
work=$(mktemp -d)
clean_up() {
    for namespace in switch $(seq "$hosts"); do
        ip netns delete "$name-$namespace" 2>/dev/null
    done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

connect() { # host
    ip netns add "$name-$1" &&
        ip link add eth0 netns "$name-$1" type veth peer name "port$1" netns "$name-switch" &&
        ip -n "$name-switch" link set dev "port$1" master switch up &&
        ip -n "$name-$1" address add "10.77.0.$1/24" dev eth0 &&
        ip -n "$name-$1" link set dev lo up &&
        ip -n "$name-$1" link set dev eth0 up &&
        echo "10.77.0.$1 slots=$ranks" >>"$work/hosts"
}
ip -n "$name-switch" link add name switch type bridge && ip -n "$name-switch" link set dev switch up || skip "no bridge"
for host in $(seq "$hosts"); do
    connect "$host" || exit 1
done

# Instead of ssh: ADDRESS COMMAND...
cat >"$work/on" <<END
#!/bin/sh
host=\${1##*.}
shift
exec ip netns exec "$name-\$host" unshare --uts sh -c "hostname host\$host && \$*"
END
chmod +x "$work/on"
# Open MPI connects two ranks with their first message, and ends the job when the network is down then: all are connected
# in the beginning.
export OMPI_MCA_mpi_preconnect_mpi=1
export OMPI_MCA_orte_default_hostfile="$work/hosts" OMPI_MCA_plm_rsh_agent="$work/on" OMPI_MCA_plm_rsh_no_tree_spawn=1
ip netns exec "$name-1" unshare --uts sh -c 'hostname host1 && exec "$@"' sh \
    "$(dirname "$0")/run_ranks.sh" "$mpiexec" $((hosts * ranks)) "$@"
