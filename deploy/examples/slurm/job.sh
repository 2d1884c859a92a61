#!/bin/bash
#SBATCH --job-name=llama
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --comment=gkm:registry.example/team/caches/llama:1
# The Prolog (prolog.sh) has fetched the cache. Without the Prolog, each node fetches it here.
srun gkm exec --rw --cache registry.example/team/caches/llama:1 --config /etc/gkm/config.yaml \
  --store "/var/lib/gkm-slurm/$UID" -- python serve.py
