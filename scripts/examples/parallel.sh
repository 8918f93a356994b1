#!/usr/bin/env bash
# One evaluation in N shards at the same time on one machine with GNU parallel, merged into one run at the end; exits as the
# whole would.
#   scripts/examples/parallel.sh 4 refund-desk --trust-evaluation-code=sha256:…
# Worth it where one process is not enough; `crashlab run --jobs N` alone runs N trials at once. With parallel's --sshlogin
# the shards spread over machines, each with an engine of its own (then bring the runs' folders together before the merge).
set -euo pipefail
shards=$1
shift
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

# A shard with a failed trial exits 1: that is a result, and no reason to stop the others.
# shellcheck disable=SC2317 # by parallel
run_shard() {
  local shard=$1 of=$2 into=$3
  shift 3
  crashlab run "$@" --shard "$shard/$of" --quiet --format json >"$into/$shard.json" || true
}
export -f run_shard
seq "$shards" | parallel --will-cite --jobs 0 --line-buffer run_shard {} "$shards" "$runs" "$(printf '%q ' "$@")"

# What a document holds at a key: the run's id; the exit code.
key() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
ids=()
for shard in $(seq "$shards"); do
  ids+=("$(key run <"$runs/$shard.json")")
done
merged=$(crashlab merge "${ids[@]}")
crashlab view "$merged"
exit "$(crashlab view "$merged" --format json | key exit)"
