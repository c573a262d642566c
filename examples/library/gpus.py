"""How many GPUs a run needs to be done in time: dsgen as a library.

`python gpus.py SPEC DAYS` plans the job on growing numbers of GPUs, and stops at the first that is
done within so many days, with saving, failures and restarts.
"""

from __future__ import annotations

import sys

import dsgen

SECONDS_PER_DAY = 86_400


def main(spec: str, most_days: float) -> None:
    """Plan `spec` on one number of GPUs after another."""
    for gpus in (64, 128, 256, 512, 1024, 2048):
        job = dsgen.load_job(spec, overrides={"gpus": gpus})
        found = dsgen.search(job, top=1)
        if isinstance(found, dsgen.Infeasible):
            print(f"{gpus:>5} GPUs: no layout fits")
            continue
        plan = found.plans[0]
        if plan.run is None:
            sys.exit("the spec has no training.duration")
        days, layout = plan.run.wall_s / SECONDS_PER_DAY, plan.layout
        print(
            f"{gpus:>5} GPUs: {days:.1f} days, tensor {layout.tensor}, pipeline {layout.pipeline}"
        )
        if days <= most_days:
            return
    sys.exit(f"no number of GPUs up to {gpus} is done in {most_days:g} days")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
