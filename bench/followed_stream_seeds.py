"""Is the figure of bench_followed's stream chance? The same stream with other seeds, planned without a cluster.

With seed 1 at loads 0.80 and 0.90, the controllers and Kueue's scheduler decided each run exactly as these functions
do, its domains included, so more seeds need neither. One pool without domains places every run for which there are
nodes.
`PYTHONPATH=tests python bench/followed_stream_seeds.py` prints the means of GPU-hours rejected and of domains a run,
and what each seed rejected.
"""

import os
from statistics import mean

from bench_followed import FULL
from gkm.packing.values import Policy
from packing_stream import FIGURES, effect
from packing_stream_runs import DOMAINS, arrivals
from packing_stream_ways import WAYS

SEEDS = int(os.environ.get("SEEDS", "12"))
COMPARED = (str(Policy.FEWEST_DOMAINS), "kueue", "one-pool")


def main() -> None:
    domains, count = FULL.stream_domains, FULL.stream_runs
    for load in FULL.loads:
        streams = [arrivals(seed, load * domains / DOMAINS, count // 4, count) for seed in range(1, SEEDS + 1)]
        for name in COMPARED:
            rows = [effect(name, WAYS[name], runs, count // 4, domains) for runs in streams]
            rejected, used = ([row[figure] for row in rows] for figure in FIGURES[:2])
            seen = " ".join(f"{value:.2f}" for value in rejected)
            print(f"{load:.2f} {name:<16}{mean(rejected):>8.3f} %{mean(used):>8.3f}   {seen}", flush=True)


if __name__ == "__main__":
    main()
