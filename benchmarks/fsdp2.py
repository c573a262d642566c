"""Published runs of FSDP2 (`data/fsdp2.csv`, by torchtitan), estimated with constants that never
saw them: no fit takes these rows.

torchtitan's engine is FSDP2 with traits of its own: gradients are reduced in fp32 in every
micro-batch, and its linear layers may be torchao's, in 8 bits. Its selective recomputation is none
of a layout's: it keeps attention's results and those of every second product of a layer, from the
first on, and repeats the rest. Its variants that trace graphs shard in other ways, and are left
out.

**Source**: pytorch/torchtitan 0.3.0, torchtitan/distributed/fsdp.py, activation_checkpoint.py
(`_apply_op_sac`), components/loss.py (`ChunkedLossWrapper`); README of each row's source.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.measured import Run, run_of
from benchmarks.pairs import Pair
from dsgen.estimate.compute import layer_times
from dsgen.estimate.layout import Recompute
from dsgen.estimate.memory import memory
from dsgen.estimate.rates import rates
from dsgen.estimate.states import weight_bytes
from dsgen.estimate.step_time import step_time
from dsgen.job.records import Framework
from dsgen.programs.frameworks import FRAMEWORKS

_SCORED: Final = ("A", "B")  #: qualities of a row; C assumes several fields
DATA: Final = Path(__file__).parent / "data" / "fsdp2.csv"


def _framework() -> Framework:
    trainer = FRAMEWORKS["huggingface"].shardings["fsdp2"]
    engine = replace(
        trainer.engine, reduces_sums=True, defers_reduction=False, computes_narrowly=True
    )
    return replace(trainer, engine=engine)


def runs() -> Iterator[tuple[Run, bool]]:
    """Each run with enough to be estimated, and whether it repeats products one by one."""
    with DATA.open(newline="") as file:
        for row in csv.DictReader(file):
            run = run_of(row)
            if run is None:
                continue
            training = replace(
                run.job.training,
                kernels="fused" if row["compiled"] else "eager",
                cross_entropy=row["loss"] or None,
            )
            job = replace(run.job, framework=_framework(), training=training)
            layout = replace(
                run.layout,
                recompute=Recompute.FULL,
                recompute_layers=job.model.layers // 2 if row["selects"] == "layers" else 0,
            )
            yield replace(run, job=job, layout=layout), row["selects"] == "products"


def _products(run: Run) -> tuple[float, float]:
    """Elements a token and layer that are kept beside the layer's input, and the share of products
    that is repeated.
    """
    layer = run.job.model.averaged.largest
    kept, *_ = layer.projections[::2], layer.projections[1::2]
    whole = sum(p.inputs * p.outputs for p in layer.projections)
    again = sum(p.inputs * p.outputs for p in layer.projections[1::2])
    return layer.mixer.widths.values + sum(p.outputs for p in kept), again / whole


def pairs() -> tuple[list[Pair], list[Pair]]:
    """Estimated and measured seconds of steps, and bytes that are reserved."""
    times, sizes = list[Pair](), list[Pair]()
    for run, by_product in runs():
        job, layout = run.job, run.layout
        seconds, reserved = (
            float(step_time(job, layout).total_s),
            float(memory(job, layout).reserved_bytes),
        )
        if by_product:
            elements, again = _products(run)
            (time, *_) = layer_times(job, layout)
            saved = time.core.forward_s + (1 - again) * time.products.forward_s
            passes = layout.gradient_accumulation * job.model.layers
            seconds -= passes * float(saved)
            tokens = layout.micro_batch * job.training.sequence_length
            kept = tokens * job.model.layers * elements * weight_bytes(job) / layout.tensor
            reserved += kept * rates(job).fragmentation_factor
        if run.step_time_s is not None and run.quality in _SCORED:
            times.append(Pair(run=run, estimated=seconds, measured=run.step_time_s))
        if run.peak_memory_bytes is not None and run.memory_quality in _SCORED:
            sizes.append(Pair(run=run, estimated=reserved, measured=run.peak_memory_bytes))
    return times, sizes
