#!/usr/bin/env bash
# The demo: demo.sh [share | dhcp | shell]. Prints what it will do, builds what is missing and
# runs the demo.
#
# The Go build takes longest. The Rust build runs beside it at the lowest priority:
# it uses what the Go build leaves over, and finishes after it; with equal shares
# both take longer. It is not optimised: on two cores that takes half as long, and
# the demo does not notice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
out=${CARGO_TARGET_DIR:-target}/debug

say() { printf '%s\n' "$*"; }
# Prints the purpose of a build, and its duration if there is no earlier build.
step() {
	if [ "$1" = there ]; then say "  - $2: built before, will be checked"; else say "  - $2: $3"; fi
}

plane=missing
for built in target/plane/plane-*; do [ ! -x "$built" ] || plane=there; done
tools=missing
[ ! -f target/tools/env ] || tools=there
rust=missing
[ ! -x "$out/demo" ] || rust=there

say "Harvester load balancer"
say
say "First, missing parts are built, into target/; nothing is installed:"
step "$plane" "a Kubernetes control plane, etcd and kube-vip, from Go source" "5 to 15 minutes on two cores, once"
step "$rust" "the operator and this demo, in Rust" "2 to 3 minutes, at the same time"
step "$tools" "nft, ip and DHCP servers, if the system has none" "some seconds"
say
if [ "${1:-}" = shell ]; then
	say "Then, after 15 seconds, a shell in the test cluster:"
else
	say "Then the demo, half a minute:"
fi
say "  - a control plane with two nodes, and the operator, in separate network namespaces"
[ "${1:-}" = dhcp ] || say "  - three virtual machines (stand-ins), a pool and a load balancer, from YAML"
case ${1:-} in
dhcp)
	say "  - a DHCP server, and the process that leases addresses from it"
	say "  - the lease of a load balancer is renewed, survives a kill, and is given back"
	;;
share)
	say "  - a second load balancer on the same address, while requests go on"
	say "  - the first load balancer is deleted, and the address stays; then the second one"
	;;
shell) ;;
*)
	say "  - requests through the load balancer; a virtual machine fails and recovers"
	say "  - metrics, IPAllocations, and the deletion of the load balancer, which leaves nothing behind"
	;;
esac
say

began=$(date +%s)
# In a separate process group, which is killed when this script exits: an interrupt does not reach background processes.
set -m
e2e/plane/build.sh target/plane >/dev/null &
go=$!
set +m
trap 'kill -- "-$go" 2>/dev/null || :' EXIT
e2e/tools.sh target/tools
# Without what only helps later builds and debuggers: a tenth less of processor time.
CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false \
	nice -n 19 "$cargo" build --locked --workspace --bin harvester-load-balancer --bin demo
say "Rust build finished after $(($(date +%s) - began)) s."
wait "$go"
trap - EXIT
say "All builds finished after $(($(date +%s) - began)) s."
say

export HLB_OPERATOR="${HLB_OPERATOR:-$(cd "$out" && pwd)/harvester-load-balancer}"
exec "$out/demo" "$@"
