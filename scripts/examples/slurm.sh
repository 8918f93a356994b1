#!/usr/bin/env bash
# A Slurm array: one shard a task, each on a node with a Docker engine of its own, results on a file system that all see.
#   array=$(sbatch --parsable scripts/examples/slurm.sh)
#   sbatch --dependency="afterany:$array" scripts/examples/slurm.sh merge
# afterany: a shard with a failed trial exits 1, and its trials count all the same.
#SBATCH --job-name=crashlab
#SBATCH --array=1-8
#SBATCH --cpus-per-task=4
#SBATCH --time=02:00:00
#SBATCH --signal=B:TERM@120
set -euo pipefail
package=${CRASHLAB_PACKAGE:-refund-desk}
results=${CRASHLAB_RESULTS:-$PWD/crashlab-results}
# What `crashlab check` printed when the package was reviewed.
digest=${CRASHLAB_DIGEST:?set it to the package digest, sha256:…}

if [ "${1:-}" = merge ]; then
  merged=$(crashlab --results "$results" merge "$results"/runs/*)
  exec crashlab --results "$results" view "$merged"
fi
# `exec`: the signal that Slurm sends two minutes before the end reaches crashlab itself, which then cleans up.
exec crashlab --results "$results" run "$package" --trust-evaluation-code="$digest" \
  --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --jobs "${SLURM_CPUS_PER_TASK:-4}"
