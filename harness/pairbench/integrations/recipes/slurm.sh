#!/bin/bash
# For: Slurm: workers of a fleet, one on each node of an array, with all of its GPUs and nobody beside it
# File: pairbench-workers.sbatch
#
# Submit it in the checkout on a file system that all nodes see:
#
#   pairbench fleet certificates ~/pairbench-certificates
#   pairbench fleet scheduler tls://0.0.0.0:8786 --certificates ~/pairbench-certificates &    # on the login node
#   sbatch --export=ALL,SCHEDULER=tls://$(hostname):8786 pairbench-workers.sbatch
#   pairbench fleet run suites --scheduler tls://$(hostname):8786 --certificates ~/pairbench-certificates --store s3://bucket/results
#
# To change: how many nodes (array), of which kind (partition, gres), for how long (time), and where pairbench is installed.

#SBATCH --job-name=pairbench
#SBATCH --array=0-3
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --exclusive
#SBATCH --gres=gpu:1
#SBATCH --partition=gpu
#SBATCH --time=08:00:00
#SBATCH --output=pairbench-%A_%a.log
# Two minutes before the end the worker is asked to end: what it is at ends in order, and another one does the rest.
#SBATCH --signal=INT@120

set -euo pipefail

: "${SCHEDULER:?is not set: name the scheduler as in the head of this file}"
CERTIFICATES=${CERTIFICATES:-$HOME/pairbench-certificates}
VENV=${VENV:-$HOME/pairbench-venv}

cd "${SLURM_SUBMIT_DIR:-.}"
# Steps of Slurm bind to some cores; a measurement has the whole node.
exec srun --cpu-bind=none "$VENV/bin/pairbench" fleet worker "$SCHEDULER" --certificates "$CERTIFICATES"
