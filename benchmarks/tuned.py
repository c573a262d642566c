"""Our choice beside NVIDIA's layouts of 2026: `python -m benchmarks.tuned [FILE] [NAME ...]`.

`data/tuned.csv` has recipes of Megatron-Bridge, each with its source, with their dispatcher, CUDA
graphs, precision and depths pinned; `data/tuned.yaml` says why a row may be refused, and explains
claims. What explains a claim closes it: theirs is estimated with each knob of ours, and the share
of the claim that is gone is printed. FILE is another table of the same columns. Recipes to
fine-tune, those of models that take images, and those of accelerators that aren't in the catalog
are left out. No time is measured.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.experts import Comparison, Expert, compare, summary, table
from dsgen.catalog import find_model
from dsgen.estimate.step_time import step_time
from dsgen.findings import InvalidJob
from dsgen.numerals import python_float, whole

DATA: Final = Path(__file__).with_name("data")
ROWS: Final = DATA / "tuned.csv"
_NODES: Final[Mapping[str, Any]] = {
    "b200": "nvidia/dgx-b200",
    "b300": "nvidia/dgx-b300",
    "gb200": "nvidia/gb200-nvl72",
    "gb300": "nvidia/gb300-nvl72",
    "h100": "nvidia/dgx-h100",
    "vr200": {
        "accelerator": "vr200-288gb",
        "accelerators_per_node": 4,
        "link_domain": 72,
        "intra_node": "nvswitch",
        "network": "infiniband",
        "network_gbits_per_s_per_node": 6400,
    },
}
#: Transformer Engine's graphs are of modules, `local` ones of a dense model's whole iteration.
_GRAPHS: Final = {
    "transformer_engine": "partial",
    "local": "full_iteration",
    "full_iteration": "full_iteration",
}
_IMAGES: Final = "_vl_"
#: Claims over this are explained.
EXPLAINED: Final = 0.1
#: What of a layout is changed at once.
_KNOBS: Final[Mapping[str, tuple[str, ...]]] = {
    "overlap": ("expert_overlap",),
    "experts": ("expert",),
    "experts and overlap": ("expert", "expert_overlap"),
    "stages": ("pipeline", "virtual_pipeline"),
    "tensor": ("tensor", "sequence_parallel", "tensor_overlap"),
    "micro-batch": ("micro_batch",),
    "recomputation": ("recompute", "recompute_modules", "recompute_layers"),
}


@cache
def reasons() -> Mapping[str, Any]:
    """The file of reasons."""
    found: Mapping[str, Any] = yaml.safe_load((DATA / "tuned.yaml").read_text())
    return found


def believed() -> dict[str, str]:
    """By row, why a claim is believed."""
    return {name: entry["because"] for entry in reasons()["believed"] for name in entry["rows"]}


def rows(path: Path = ROWS) -> Iterator[dict[str, str]]:
    """The rows that a spec can say: what trains a model of text from scratch."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            trains_text = row.get("task", "pretrain") == "pretrain" and _IMAGES not in row["name"]
            if trains_text and row["accelerator"] in _NODES:
                yield row


def expert_of(row: Mapping[str, str]) -> Expert:
    """A row as job and pins."""
    refused: dict[str, str] = {}
    for entry in reasons()["refused"]:
        if row["name"] in entry["rows"]:
            refused[entry["rule"]] = entry["because"]
    return Expert(
        name=row["name"],
        row={"refused": refused},
        spec={
            "name": row["name"].replace("_", "-"),
            "framework": "megatron-lm",
            "model": row["model"],
            "cluster": _NODES[row["accelerator"]],
            "gpus": whole(row["gpus"]),
            "training": _training(row),
            "launch": {"target": "slurm", "script": "train.py"},
        },
        pins=_pins(row),
        unread=(),
    )


def _training(row: Mapping[str, str]) -> dict[str, Any]:
    """The training, with the loss that Megatron-LM has in place of Transformer Engine's."""
    precision = "nvfp4" if row["precision"] == "fp4" else row["precision"]
    native = row["model"].startswith("nemotron")
    found: dict[str, Any] = {
        "sequence_length": whole(row["seq"]),
        "global_batch": whole(row["gbs"]),
        "precision": precision,
        "cross_entropy": "fused" if native else "unfused",
    }
    if row["grad_reduce_dtype"] == "bf16":
        found["gradient_dtype"] = "same"
    if row["exp_avg_dtype"] == "bfloat16":
        found["moment_dtype"] = "bf16"
    if precision == "fp8":
        found["fp8_recipe"] = row["precision_recipe"]
    if precision != "bf16":
        found["fp8_parameters"] = row["low_precision_params"] == "y"
    if row["mtp_layers"] not in ("", "0"):
        found["mtp_depths"] = whole(row["mtp_layers"])
    if _has_experts(row):
        backend = row["flex_backend"]
        found["dispatcher"] = backend if backend in ("hybridep", "deepep") else "alltoall"
    if graphs := _GRAPHS.get(row["cuda_graph_impl"]):
        found["cuda_graphs"] = graphs
    # With graphs of parts the table's stash has no effect, as in Megatron-LM itself.
    if row["paged_stash"] == "y" and found.get("cuda_graphs") == "full_iteration":
        found["paged_stash"] = True
        found["expert_capacity"] = python_float(row["rank_capacity_factor"])
    return found


def _has_experts(row: Mapping[str, str]) -> bool:
    return row["ep"] not in ("", "1")


def _pins(row: Mapping[str, str]) -> dict[str, Any]:
    """The layout; how layers are dealt to stages is left to the search."""
    pins: dict[str, Any] = {
        "tensor": whole(row["tp"]),
        "pipeline": whole(row["pp"]),
        "context": whole(row["cp"] or "1"),
        "micro_batch": whole(row["mbs"]),
        "zero_stage": 3 if row["fsdp"] == "y" else 1 if row["distributed_optimizer"] == "y" else 0,
        "offload": "none",
        "recompute": row["recompute_granularity"] or "none",
    }
    if pins["tensor"] > 1:
        pins["sequence_parallel"] = row["sequence_parallel"] == "y"
    if pins["pipeline"] > 1:
        pins["virtual_pipeline"] = whole(row["vp"] or "1")
    if row["num_dist_opt_instances"] not in ("", "1"):
        pins["zero_copies"] = whole(row["num_dist_opt_instances"])
    if _has_experts(row):
        pins["expert"] = whole(row["ep"])
        pins["expert_tensor"] = whole(row["etp"] or "1")
        pins["expert_overlap"] = row["ep_overlap"] == "y"
    if pins["recompute"] == "selective":
        if modules := row["recompute_modules"].split():
            pins["recompute_modules"] = modules
        else:
            pins["recompute"] = "none"
    if pins["recompute"] == "full" and row["recompute_method"] == "block":
        pins["recompute_layers"] = whole(row["recompute_num_layers"])
    return pins


def comparisons(path: Path, names: list[str]) -> Iterator[Comparison]:
    """Each row of a known model, or those that are named, both ways; prints which aren't said."""
    for row in rows(path):
        if names and row["name"] not in names:
            continue
        try:
            find_model(row["model"])
            yield compare(expert_of(row))
        except (InvalidJob, KeyError, LookupError) as error:
            said = error.findings[0].message if isinstance(error, InvalidJob) else error
            print(f"{row['name']}: {said}")


def closing(found: Iterable[Comparison]) -> Iterator[str]:
    """How much of each claim is gone when theirs takes one knob of ours, as a share of logarithms;
    whether that fits isn't asked.
    """
    for c in found:
        if c.refused_by or (c.claim or 0) <= EXPLAINED:
            continue
        theirs, ours = c.nearest, c.ours.plans[0]
        closed = {}
        for name, fields in _KNOBS.items():
            values = {field: getattr(ours.layout, field) for field in fields}
            mixed = replace(theirs.layout, **values)
            if mixed == theirs.layout:
                continue
            ranks = mixed.tensor * mixed.pipeline * mixed.context
            data = theirs.layout.world // ranks
            passes = theirs.layout.global_batch // (data * mixed.micro_batch)
            mixed = replace(mixed, data=data, gradient_accumulation=passes)
            seconds = float(step_time(theirs.job, mixed).total_s)
            closed[name] = log(float(theirs.step_time.total_s) / seconds) / log(1 + (c.claim or 0))
        shares = ", ".join(f"{name} {share:.0%}" for name, share in closed.items())
        yield f"- {c.expert.name} {c.claim:+.0%}: {shares}"


def main(words: list[str]) -> None:
    """Print the tables."""
    path = Path(words.pop(0)) if words and words[0].endswith(".csv") else ROWS
    found = list(comparisons(path, words))
    print("\n".join(table(found)), end="\n\n")
    print("\n".join(summary(found, believed())), end="\n\n")
    print("\n".join(closing(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
