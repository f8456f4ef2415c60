#!/usr/bin/env bash
# Two machines train one run, one process on each, with all of its GPUs:
#   sbatch --nodes=2 --gpus-per-node=1 training/deploy/slurm.sh runs/en-fr
# RUN is on a disk that all machines see. When a process dies all are started again, five times at most,
# and go on from the last epoch; when a machine dies, Slurm does that (--requeue).
#SBATCH --job-name=keras-attention
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
run=${1:?usage: sbatch --nodes=N slurm.sh RUN}

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export KERAS_BACKEND=jax
export KERAS_DISTRIBUTION_JOB_ADDRESSES=${hosts%%[[:space:]]*}:$((20000 + SLURM_JOB_ID % 10000))
export KERAS_DISTRIBUTION_NUM_PROCESSES=$SLURM_NTASKS

for _ in 1 2 3 4 5; do
  # SLURM_PROCID is set in the step alone, for each process.
  if srun --kill-on-bad-exit=1 bash -c \
    'KERAS_DISTRIBUTION_PROCESS_ID=$SLURM_PROCID exec python -m training.train_arrays "$1"' _ "$run"; then
    exit 0
  fi
done
echo "error: $run was started five times and did not end" >&2
exit 1
