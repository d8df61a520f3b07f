#!/usr/bin/env bash
# The demo: demo.sh [shell]. Says at once what is to come, builds what is
# missing, and shows it.
#
# The Go build and the Rust build run side by side: each has minutes in which it
# uses one core. The Rust build has the packages and features of the tests', so
# that neither builds anything that the other has built (e2e/src/world.rs).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
out=${CARGO_TARGET_DIR:-target}/debug

say() { printf '%s\n' "$*"; }
# Says what a build is for, and how long it takes where there is nothing yet.
step() {
	if [ "$1" = there ]; then say "  - $2: built before, looked at again"; else say "  - $2: $3"; fi
}

plane=missing
for built in target/plane/plane-*; do [ ! -x "$built" ] || plane=there; done
tools=missing
[ ! -f target/tools/env ] || tools=there
rust=missing
[ ! -x "$out/demo" ] || rust=there

say "Harvester load balancer"
say
say "First what is missing is built, into target/; nothing is installed:"
step "$plane" "a Kubernetes control plane, etcd and kube-vip, from Go source" "5 to 15 minutes on two cores, once"
step "$rust" "the operator and this demo, in Rust" "2 to 3 minutes, at the same time"
step "$tools" "nft, ip and DHCP servers, where the system has none" "some seconds"
say
if [ "${1:-}" = shell ]; then
	say "Then, after 15 seconds, there is a shell in it:"
else
	say "Then half a minute of demo:"
fi
say "  - a control plane with two nodes, and the operator, in namespaces of their own"
say "  - three virtual machines (stand-ins), a pool and a load balancer, from YAML"
if [ "${1:-}" != shell ]; then
	say "  - requests through the load balancer; a machine stops answering, and answers again"
	say "  - metrics, records, and what is left when the load balancer is deleted: nothing"
fi
say

began=$(date +%s)
# A process group of its own, which ends with this script: an interrupt would pass by what runs in the background.
set -m
e2e/plane/build.sh target/plane >/dev/null &
go=$!
set +m
trap 'kill -- "-$go" 2>/dev/null || :' EXIT
e2e/tools.sh target/tools
"$cargo" build --locked --workspace --bin harvester-load-balancer --bin demo --example ledger
say "The Rust part is there after $(($(date +%s) - began)) s."
wait "$go"
trap - EXIT
say "All is there after $(($(date +%s) - began)) s."
say

export HLB_OPERATOR="${HLB_OPERATOR:-$(cd "$out" && pwd)/harvester-load-balancer}"
exec "$out/demo" "$@"
