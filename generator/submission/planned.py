"""`plan.json`, the plan beside files that dsgen wrote, read back as the job that they are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..catalog import find_model, find_node_type
from ..estimate.model_size import parameter_count
from ..facts.facts import UNKNOWN, completed
from ..findings import InvalidJob
from ..job.load import load_with_findings
from ..job.overrides import plain_source
from ..job.records import Frameworks, Job
from ..job.resolve_names import resolve_model
from ..units import GBIT_PER_S
from .plan_file import plan_of

#: Facts of a model that a plan names, and its number of parameters: a preset of its name that has
#: the same is the model.
_OF_MODEL: Final = ("layers", "hidden", "heads", "vocab")
#: A model in the place of one that a plan doesn't describe.
_STAND_IN: Final = "gpt3-175b"
_MOST_FACTOR: Final = 100.0  #: no estimate is so far off
_MOST_BYTES_PER_S: Final = 1e18  #: no network is so fast, and what is larger may be no float
#: Keys of a plan's training that a spec says in other words, or that cost no memory.
_OTHER_WORDS: Final = ("duration_tokens", "weights", "lora")
_VERSIONS: Final = (
    "deepspeed_version",
    "megatron_version",
    "transformers_version",
    "megatron_bridge_version",
)
#: A release of Megatron-Bridge brings one of Megatron-Core: a spec names only the first.
_OF_BRIDGE, _OF_CORE = "megatron_bridge_version", "megatron_version"


def cluster_of(planned: Mapping[str, Any]) -> str | dict[str, Any]:
    """A plan's machines: the node type with this network, else what a spec says of them."""
    node_type = find_node_type(str(planned.get("name")))
    rate = planned.get("network_bytes_per_s_per_node")
    if node_type is not None and node_type.network_bytes_per_s_per_node == rate:
        return node_type.name
    keys = ("accelerator", "accelerators_per_node", "network", "price_per_node_hour")
    cluster = {key: planned[key] for key in keys if planned.get(key) is not None}
    if isinstance(rate, (int, float)) and 0 < rate < _MOST_BYTES_PER_S:
        cluster["network_gbits_per_s_per_node"] = rate / GBIT_PER_S
    return cluster


def planned_job(text: str, frameworks: Frameworks) -> Job | None:
    """The job of a plan, with its whole layout pinned; None where the text isn't a plan's.

    It lacks its model where the plan doesn't say enough of it.
    """
    plan = plan_of(text)
    match plan:
        case {
            "job": {"model": dict(model), "cluster": dict(cluster), "training": dict(training)},
            "layout": dict(layout),
            "memory": dict(memory),
        }:
            model_in_spec = _model_of(model)
            spec = _spec(plan["job"], model_in_spec or _STAND_IN, cluster, training, layout, memory)
            try:
                job, _ = load_with_findings(spec, frameworks)
            except InvalidJob:
                return None
            job = _as_measured(job, memory, plan.get("calibration"))
            return completed(job, model=UNKNOWN) if model_in_spec is None else job
    return None


def _as_measured(job: Job, memory: Mapping[str, Any], calibration: object) -> Job:
    """The job with what the plan leaves of the device's memory to it, and its measured factor."""
    capacity, accelerator = memory.get("capacity_bytes"), job.cluster.accelerator
    if isinstance(capacity, (int, float)) and 0 < capacity < accelerator.memory_bytes:
        smaller = replace(accelerator, memory_bytes=float(capacity))
        job = replace(job, cluster=replace(job.cluster, accelerator=smaller))
    match calibration:
        case {"memory_factor": (int() | float()) as factor} if 0 < factor < _MOST_FACTOR:
            return replace(job, calibration=replace(job.calibration, memory_factor=factor))
    return job


def _model_of(described: Mapping[str, Any]) -> str | dict[str, Any] | None:
    """The model that a plan describes, as a spec says it.

    It is the preset of that name, or is made of the keys that the plan has.
    """
    name, config = str(described.get("name")), described.get("config")
    in_spec: str | dict[str, Any] = name
    if isinstance(config, dict):
        in_spec = {**config, "name": name}
    elif find_model(name) is None:
        return None
    model, _ = resolve_model(plain_source({"model": in_spec}), in_spec)
    if model is None or parameter_count(model) != described.get("parameters"):
        return None
    is_same = all(getattr(model, fact, None) == described.get(fact) for fact in _OF_MODEL)
    return in_spec if is_same else None


def _spec(
    job: Mapping[str, Any],
    model: str | dict[str, Any],
    cluster: Mapping[str, Any],
    training: Mapping[str, Any],
    layout: Mapping[str, Any],
    memory: Mapping[str, Any],
) -> dict[str, Any]:
    """The spec that gives a plan's job and layout; its values are judged when it is loaded."""
    training_in_spec = {key: value for key, value in training.items() if key not in _OTHER_WORDS}
    lora = training.get("lora")
    if isinstance(lora, Mapping):
        modules = lora.get("modules")
        if isinstance(modules, list) and len(modules) == 1:
            [modules] = modules
        training_in_spec["lora"] = {**lora, "modules": modules}
    versions = [key for key in _VERSIONS if key in job]
    if _OF_BRIDGE in versions and _OF_CORE in versions:
        versions.remove(_OF_CORE)
    return {
        **{key: job.get(key) for key in ("name", "framework", *versions)},
        "model": model,
        "cluster": cluster_of(cluster),
        "gpus": job.get("gpus"),
        "training": training_in_spec,
        "layout": layout,
        "memory": {"headroom": memory.get("headroom_fraction")},
        "launch": {"target": job.get("target"), "script": job.get("script")},
    }
