#!/bin/bash
#SBATCH --job-name=edgekit-workers
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=12:00:00
# A Dask scheduler on the first node, and one worker on each node. --exclusive keeps other jobs away from what is measured.
# FOLDER is shared by all nodes and holds the environment and the runs.
set -eu
folder=${FOLDER:-$PWD}
port=${PORT:-8786}
source "$folder/.venv/bin/activate"
dask scheduler --port "$port" --no-dashboard --no-show &
scheduler=$!
trap 'kill "$scheduler"' EXIT
echo "edgekit run … --on dask://$(hostname):$port"
srun dask worker "tcp://$(hostname):$port" --nworkers 1 --nthreads 1 --no-dashboard --death-timeout 300
