#!/bin/sh
# Long forms of the tests, one part after another: `e2e/soak.sh` runs all of them, which takes hours,
# `e2e/soak.sh crash leaders` some. Stops at the first that finds a wrong and says how to come to it again. What a part
# writes is kept in target/soak/<part>.log.
#
# HLB_ROUNDS and HLB_SEED reach the parts that play rounds.
set -eu
cd "$(dirname "$0")/.."

CARGO=${CARGO:-cargo}
ALL="model hostile fuzz leaders faults crash"
logs=target/soak
mkdir -p "$logs"

# What a part runs. HLB_SOAK is what makes a test a long one.
command_of() {
	test="$CARGO test --locked --package"
	case $1 in
	crash) echo "env HLB_SOAK=1 $test harvester-lb-e2e --test crash -- killed_amid" ;;
	leaders) echo "env HLB_SOAK=1 $test harvester-lb-e2e --test records -- ipa_5_leaders" ;;
	faults) echo "env HLB_SOAK=1 $test harvester-lb-e2e --test faults" ;;
	hostile) echo "env HLB_SOAK=1 $test harvester-load-balancer --package harvester-lb-e2e --test hostile" ;;
	model) echo "env HLB_SCHEDULES=${HLB_SCHEDULES:-2000000} $test harvester-load-balancer --test schedules -- --nocapture" ;;
	fuzz) echo "fuzz/run.sh 1800" ;;
	*) return 1 ;;
	esac
}

# Seconds as a reader likes them.
time_of() {
	printf '%d h %02d min %02d s' $(($1 / 3600)) $(($1 / 60 % 60)) $(($1 % 60))
}

parts=${*:-$ALL}
for part in $parts; do
	command_of "$part" >/dev/null || {
		echo "there is no part $part; there are: $ALL" >&2
		exit 2
	}
done

summary=
for part in $parts; do
	run=$(command_of "$part")
	log=$logs/$part.log
	echo "== $part: $run"
	began=$(date +%s)
	# A pipe has the status of its last program, so the status of the first takes another way.
	{
		code=0
		$run 2>&1 || code=$?
		echo $code >"$logs/code"
	} | tee "$log"
	code=$(cat "$logs/code")
	took=$(time_of $(($(date +%s) - began)))
	if [ "$code" -ne 0 ]; then
		{
			printf '%s' "$summary"
			echo "$part: WRONG after $took, exit code $code; all it wrote is in $log"
			echo "  command: $run"
			grep -o 'HLB_SEED=[0-9]*\( HLB_ROUNDS=[0-9]*\)\{0,1\}' "$log" | tail -n 1 | sed 's/^/  with /'
		} >&2
		exit 1
	fi
	summary="$summary$part: nothing wrong in $took
$(sed -n 's/.*\(found wrong: 0\)/&/p' "$log" | sed 's/^/  /')
"
done
echo "== soak"
printf '%s' "$summary" | sed '/^ *$/d'
