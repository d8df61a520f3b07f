#!/usr/bin/env bash
# fuzz/run.sh [SECONDS|RUNSr [TARGET...]]: fuzzes each target for a number of seconds, or of runs (20000r). Without
# arguments 20,000 runs of each. The corpus is kept in target/fuzz/corpus and reused. HLB_SEED repeats a run that began
# with the same corpus. `fuzz/run.sh build` only builds the targets.
#
# libFuzzer on the stable toolchain: the compiler adds coverage counters. Only a sanitizer would need nightly, and there is
# no unsafe code here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

amount=${1:-20000r}
shift || true
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(ranges ledger vmi pool loadbalancer record admission conversion dhcp)
case "$amount" in
*r) bound=(-runs="${amount%r}" -max_total_time=120) ;;
*) bound=(-max_total_time="$amount") ;;
esac

platform=$(rustc -vV | sed -n 's/^host: //p')
out=$PWD/target/fuzz
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
# The platform is named so that the flags are not for build scripts and macros, which would not link with them.
RUSTFLAGS="$flags" CARGO_TARGET_DIR="$out" \
	cargo build --quiet --locked --manifest-path fuzz/Cargo.toml --target "$platform"
[ "$amount" != build ] || exit 0

failed=()
for target in "${targets[@]}"; do
	program="$out/$platform/debug/$target"
	corpus="$out/corpus/$target"
	artifacts="$out/artifacts/$target/"
	log="$out/$target.log"
	mkdir -p "$corpus" "$artifacts"
	if "$program" "${bound[@]}" -max_len=4096 -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
		-seed="${HLB_SEED:-0}" -dict=fuzz/words.dict -artifact_prefix="$artifacts" \
		"$corpus" "fuzz/seeds/$target" >"$log" 2>&1; then
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
		speed=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
		memory=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
		reached=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
		echo "fuzz $target: $runs runs, $speed/s, $reached places reached, $memory MiB"
	else
		failed+=("$target")
		grep -v '^#' "$log" | tail -n 60 >&2 || true
		echo "fuzz $target: FAILED, log in $log" >&2
		found=$(sed -n "s/.*Test unit written to //p" "$log" | tail -n 1)
		[ -z "$found" ] || echo "repeat it with: $program $found" >&2
	fi
done
[ "${#failed[@]}" -eq 0 ] || {
	echo "fuzz: ${failed[*]} failed" >&2
	exit 1
}
