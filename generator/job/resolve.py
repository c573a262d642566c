"""A spec of the right shape becomes a `Job`: names looked up, defaults in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from ..catalog import Accelerator, Model
from ..findings import Finding, Severity, Version
from ..text.source import Source
from ..text.wording import dots, in_spec
from ..units import DAY, GB, GIB, MINUTE, gib
from .arguments import is_fine_tuning
from .codes import MISSING_KEY, PARTIAL_SEQUENCES, WRONG_VALUE
from .quantities import read_batch_tokens, read_counts, read_time_limit, read_tokens
from .records import (
    BatchRamp,
    Calibration,
    Cluster,
    Data,
    Framework,
    Frameworks,
    Job,
    JobLaunch,
    Lora,
    Origin,
    Output,
    Pins,
    Reliability,
    Tokenizer,
    Training,
)
from .releases import NEWEST, OLDEST_MEGATRON, release_from
from .resolve_names import config_of_model, resolve_calibration, resolve_cluster, resolve_model

DEFAULT_SEQUENCE_LENGTH: Final = 4096  # tokens, where a job says none and the model has as many
#: Beyond the upper end of the allocator's band, what reaches the upper end of nvidia-smi's, rounded
#: to the side that refuses fewer of the runs that ran: `python -m benchmarks.headroom` prints the
#: trade-off.
DEFAULT_HEADROOM: Final = 0.05
DEFAULT_FRAMEWORK: Final = "megatron-deepspeed"
DEFAULT_RANK: Final = 16  #: of LoRA's adapters

#: Keys of `training` that are the framework's to choose where they are left out.
_AS_THE_FRAMEWORK: Final = (
    "kernels",
    "cross_entropy",
    "dispatcher",
    "gradient_dtype",
    "moment_dtype",
    "master_dtype",
)

Keys = Mapping[str, Any]
_Fact = TypeVar("_Fact")
_TOKENS: Final = "write a value such as `tokens: {}`"


def resolve(
    source: Source, broken: Iterable[str], frameworks: Frameworks
) -> tuple[Job | None, tuple[Finding, ...]]:
    """The job, or every reason why there is none.

    `broken` are the pointers of values that the schema refused.
    """
    pointers = tuple(broken)
    data: Keys = source.data if isinstance(source.data, dict) else {}
    findings: list[Finding] = []

    def resolved(
        key: str, look_up: Callable[..., tuple[_Fact | None, tuple[Finding, ...]]], *rest: object
    ) -> _Fact | None:
        """The fact that `key` names, if it can be looked up."""
        if key not in data or not _sound(f"/{key}", pointers):
            return None
        fact, problems = look_up(source, data[key], *rest)
        findings.extend(problems)
        return fact

    model, cluster = resolved("model", resolve_model), resolved("cluster", resolve_cluster)
    findings.extend(_check_training(source, data, model, pointers))
    findings.extend(_check_choices(source, data, pointers, frameworks))
    findings.extend(_check_release(source, data, pointers, frameworks))
    findings.extend(_check_time_limit(source, pointers))
    for key, range_ in {"gpus": "960..1024", "nodes": "120..128"}.items():
        if key in data and _sound(f"/{key}", pointers) and cluster is not None:
            hint = f"write a range of whole nodes, such as `{key}: {range_}`"
            read = partial(_counts, data, cluster)
            findings.extend(_refused(source, f"/{key}", hint, read, f"`{key}`: "))
    calibration: Calibration | None = Calibration()
    if "calibration" in data and cluster is not None:
        is_known = _sound("/framework", pointers)
        framework = data.get("framework", DEFAULT_FRAMEWORK) if is_known else None
        calibration = resolved("calibration", resolve_calibration, cluster, framework)
    if cluster is not None and _sound("/memory", pointers):
        findings.extend(_check_reserved(source, data, cluster))
    wrong = any(finding.severity is Severity.ERROR for finding in findings)
    if pointers or wrong or model is None or cluster is None or calibration is None:
        return None, tuple(findings)
    job = _job(source, data, model, _without_reserved(data, cluster), frameworks)
    return replace(job, calibration=calibration), tuple(findings)


def _sound(pointer: str, broken: tuple[str, ...]) -> bool:
    """Ask whether nothing broken is at, below or above `pointer`.

    The root doesn't count: it is broken where keys are missing.
    """
    place = f"{pointer}/"
    broken_places = [f"{broken_pointer}/" for broken_pointer in broken if broken_pointer]
    return not any(other.startswith(place) or place.startswith(other) for other in broken_places)


def _check_time_limit(source: Source, broken: tuple[str, ...]) -> Iterator[Finding]:
    """Report a time limit that Slurm couldn't read, or of less than a minute."""
    pointer = "/launch/time_limit"
    limit: Any = source.value(pointer)
    if limit is not None and _sound(pointer, broken):
        hint = "write a value such as `time_limit: 2-00:00:00`"
        read = partial(read_time_limit, limit)
        yield from _refused(source, pointer, hint, read, "`launch.time_limit`: ")


def _check_training(
    source: Source, data: Keys, model: Model | None, broken: tuple[str, ...]
) -> Iterator[Finding]:
    """Report what the schema can't of the duration and the global batch: tokens are whole, and make
    whole sequences.
    """
    training: Keys = data.get("training", {})
    duration, batch = "/training/duration", "/training/global_batch"
    if _sound(duration, broken):
        tokens = training.get("duration", {}).get("tokens", 1)
        hint = _TOKENS.format("300B")
        yield from _refused(source, f"{duration}/tokens", hint, partial(read_tokens, tokens))
    if not _sound(batch, broken) or not _sound("/training/sequence_length", broken):
        return
    if training.get("global_batch") is None:
        hint = "add `global_batch: 512`, in sequences, or `global_batch: {tokens: 4194304}`"
        yield MISSING_KEY.at(source.locate("/training"), "`training.global_batch` is missing", hint)
    elif isinstance(training["global_batch"], Mapping):
        yield from _check_batch_tokens(source, training, model)


def _check_batch_tokens(source: Source, training: Keys, model: Model | None) -> Iterator[Finding]:
    """Report a global batch in tokens that isn't a number of them, or no whole sequences."""
    pointer, tokens = "/training/global_batch/tokens", training["global_batch"]["tokens"]
    hint = _TOKENS.format("4194304")
    problems = tuple(_refused(source, pointer, hint, partial(read_tokens, tokens)))
    yield from problems
    if problems or ("sequence_length" not in training and model is None):
        return

    where, length = source.locate(pointer), _sequence_length(training, model)
    read, decimal = read_batch_tokens(tokens, length), read_tokens(tokens)
    below = read // length
    if read % length:
        choices = [
            f"tokens: {n * length} ({n} sequence{'s' if n > 1 else ''})"
            for n in (below, below + 1)
            if n
        ]
        message = f"{read} tokens are {read / length:.2f} sequences of {length} tokens"
        yield PARTIAL_SEQUENCES.at(where, message, f"use {' or '.join(choices)}")
    elif read != decimal:
        message = f"`tokens: {tokens}` is read as {read}, {below} sequences of {length} tokens;"
        message += f" {decimal} would be {decimal / length:.2f}"
        yield PARTIAL_SEQUENCES.at(where, message, f"write `tokens: {read}`", Severity.NOTE)


def _refused(
    source: Source, pointer: str, hint: str, read: Callable[[], object], name: str = ""
) -> Iterator[Finding]:
    """Report what the reader of a value has against it, under the key's `name`."""
    try:
        read()
    except ValueError as problem:
        yield WRONG_VALUE.at(source.locate(pointer), f"{name}{problem}", hint)


def _check_choices(
    source: Source, data: Keys, broken: tuple[str, ...], frameworks: Frameworks
) -> Iterator[Finding]:
    """Report choices that the framework's launch files can't say.

    Each of these keys has one value there, or one in fp16.
    """
    name, training = data.get("framework", DEFAULT_FRAMEWORK), data.get("training")
    if not isinstance(training, Mapping):
        return
    framework = frameworks.get(name) if isinstance(name, str) else None
    only_values = {} if framework is None else dict(_sharded(framework, training).only)
    half = training.get("precision") == "fp16"
    if half:
        only_values["gradient_dtype"] = "same"
    yield from _check_sharding(source, training, str(name), broken, frameworks)
    for key, only in only_values.items():
        value, where = training.get(key), f"/training/{key}"
        if value not in (None, only) and _sound(where, broken):
            in_half = " in fp16" if half and key == "gradient_dtype" else ""
            said = f"`training.{key}: {in_spec(value)}`"
            problem = f"{said} is not available with framework: {name}{in_half}"
            others = [
                each.name
                for each in frameworks.values()
                if each.name != name and each.can_say({key: value}) and not in_half
            ]
            otherwise = f"use framework: {' or '.join(others)}" if others else "remove the key"
            hint = f"write `{key}: {in_spec(only)}`, or {otherwise}"
            yield WRONG_VALUE.at(source.locate(where), problem, hint)


def _sharded(framework: Framework, training: Keys) -> Framework:
    """The framework with the sharding that the spec asks for."""
    stated = training.get("sharding")
    return framework.shardings.get(stated, framework) if isinstance(stated, str) else framework


def _check_sharding(
    source: Source, training: Keys, name: str, broken: tuple[str, ...], frameworks: Frameworks
) -> Iterator[Finding]:
    """Report a sharding that the framework hasn't."""
    where, framework = "/training/sharding", frameworks.get(name)
    stated = training.get("sharding")
    if not isinstance(stated, str) or framework is None or not _sound(where, broken):
        return
    if stated == framework.sharding or stated in framework.shardings:
        return
    shardings = " or ".join(filter(None, (framework.sharding, *framework.shardings)))
    others = [other.name for other in frameworks.values() if stated in other.shardings]
    remedy = f"write `sharding: {shardings}`" if shardings else "remove the key"
    hint = f"{remedy}, or use framework: {' or '.join(others)}" if others else remedy
    problem = f"`training.sharding: {stated}` is not available with framework: {name}"
    yield WRONG_VALUE.at(source.locate(where), problem, hint)


def _check_release(
    source: Source, data: Keys, broken: tuple[str, ...], frameworks: Frameworks
) -> Iterator[Finding]:
    """Report a release of Megatron-Core, or of what brings one, that files are not written for."""
    name, key = data.get("framework", DEFAULT_FRAMEWORK), "megatron_version"
    brings = frameworks[name].brings if _sound("/framework", broken) else {}
    oldest = OLDEST_MEGATRON
    if brings and data.get(key) is not None:
        message = f"`{key}` is not read with framework: {name}, whose release brings its own"
        hint = "remove it, or set megatron_bridge_version"
        yield WRONG_VALUE.at(source.locate(f"/{key}"), message, hint)
    if brings:
        key, oldest = "megatron_bridge_version", next(iter(brings))

    stated, where = data.get(key), f"/{key}"
    if stated is None or not _sound(where, broken) or release_from(stated) >= oldest:
        return
    message = f"`{key}: {stated}` is older than {dots(oldest)}, the oldest that has a writer"
    hint = f"use {dots(oldest)} or later, or remove the key"
    yield WRONG_VALUE.at(source.locate(where), message, hint)


def _check_reserved(source: Source, data: Keys, cluster: Cluster) -> Iterator[Finding]:
    """Report memory that another program holds and the accelerator doesn't have."""
    reserved = _reserved_bytes(data)
    has = cluster.accelerator.memory_bytes
    if reserved >= has:
        name = cluster.accelerator.name
        message = f"`reserved_gib: {gib(reserved)}` is all of the {gib(has)} GiB that {name} has"
        yield WRONG_VALUE.at(source.locate("/memory/reserved_gib"), message, "reserve less")


def _without_reserved(data: Keys, cluster: Cluster) -> Cluster:
    """The cluster without the memory of its accelerators that another program holds."""
    reserved = _reserved_bytes(data)
    if not reserved:
        return cluster
    left = cluster.accelerator.memory_bytes - reserved
    return replace(cluster, accelerator=replace(cluster.accelerator, memory_bytes=left))


def _reserved_bytes(data: Keys) -> float:
    reserved = data.get("memory", {}).get("reserved_gib", 0)
    return float(reserved) * GIB if isinstance(reserved, (int, float)) else 0.0


def _counts(data: Keys, cluster: Cluster) -> tuple[int, ...]:
    """The counts of GPUs that the job may have, ascending."""
    node = cluster.accelerators_per_node
    if "gpus" in data:
        return read_counts(data["gpus"], node)
    return tuple(nodes * node for nodes in read_counts(data["nodes"], 1))


def _job(source: Source, data: Keys, model: Model, cluster: Cluster, frameworks: Frameworks) -> Job:
    training, launch = data.get("training", {}), data.get("launch", {})
    framework = _sharded(frameworks[data.get("framework", DEFAULT_FRAMEWORK)], training)
    counts = _counts(data, cluster)
    start = training.get("lora", training.get("weights"))
    fine_tunes = is_fine_tuning(start, launch.get("arguments", ()))
    return Job(
        name=data.get("name", model.name),
        framework=framework,
        deepspeed_version=_release(data, "deepspeed_version", "deepspeed"),
        megatron_version=_core(framework, data),
        megatron_bridge_version=_release(data, "megatron_bridge_version", "megatron-bridge"),
        transformers_version=_release(data, "transformers_version", "transformers"),
        model=model,
        model_config=config_of_model(source, data["model"]),
        cluster=cluster,
        gpus=counts[-1],
        elastic=counts if len(counts) > 1 else (),
        training=_training(training, model, cluster.accelerator, framework, fine_tunes),
        pins=Pins(**{key: pinned_value(value) for key, value in data.get("layout", {}).items()}),
        headroom=float(data.get("memory", {}).get("headroom", DEFAULT_HEADROOM)),
        launch=_launch(source, launch, _script(framework, model, data)),
        origin=Origin(path=source.path, locations=source.locations),
        data=_data(source, data.get("data", {})),
        output=Output(**{key: whole(value) for key, value in data.get("output", {}).items()}),
        reliability=_reliability(data.get("reliability", {}), launch),
        deepspeed_config=_whole_numbers(data.get("deepspeed_config") or {}),
    )


def _launch(source: Source, launch: Keys, usual_script: str) -> JobLaunch:
    """The spec's `launch`; numbers among words and variables stay as they were written."""
    target, limit = launch.get("target", "slurm"), launch.get("time_limit")
    return JobLaunch(
        target=target,
        script=launch.get("script", usual_script),
        arguments=tuple(
            _as_text(source, f"/launch/arguments/{index}", word)
            for index, word in enumerate(launch.get("arguments", ()))
        ),
        environment={
            name: _as_text(source, f"/launch/environment/{name}", value)
            for name, value in launch.get("environment", {}).items()
        },
        time_limit_s=None if limit is None else read_time_limit(limit),
        options={key: whole(value) for key, value in launch.get(target, {}).items()},
    )


def _data(source: Source, data: Keys) -> Data:
    """The spec's `data`; a path that is a number stays as it was written."""
    path = data.get("path", ())
    paths = [path] if isinstance(path, str) else path
    return Data(
        path=tuple(_as_text(source, f"/data/path/{i}", each) for i, each in enumerate(paths)),
        split=data.get("split"),
        tokenizer=Tokenizer(**data.get("tokenizer", {})),
    )


def _release(data: Keys, key: str, program: str) -> Version:
    """The release of a program that the spec names, else the newest that is known."""
    stated = data.get(key)
    return NEWEST[program] if stated is None else release_from(stated)


def _core(framework: Framework, data: Keys) -> Version:
    """The release of Megatron-Core: the one that the framework's own release brings, else the
    spec's.
    """
    if not framework.brings:
        return _release(data, "megatron_version", "megatron-core")
    bridge_release = _release(data, "megatron_bridge_version", "megatron-bridge")
    return framework.brings[max(known for known in framework.brings if known <= bridge_release)]


def _script(framework: Framework, model: Model, data: Keys) -> str:
    """The training script that a job starts where it names none."""
    if framework.scripts is None:
        return framework.script
    return framework.scripts(model, _core(framework, data)) or framework.script


def _whole_numbers(value: Any) -> Any:
    """A value of any depth, in which numbers such as 5e8 are integers."""
    if isinstance(value, Mapping):
        return {key: _whole_numbers(inner) for key, inner in value.items()}
    return [_whole_numbers(inner) for inner in value] if isinstance(value, list) else whole(value)


def _lora(training: Keys, model: Model, framework: Framework) -> Lora | None:
    """The adapters that a job trains; a recipe's where it says no others."""
    stated = training.get("lora", {} if training.get("mode") == "lora" else None)
    if stated is None:
        return None

    of_recipe = framework.adapters.of_recipe if framework.adapters is not None else None
    default = of_recipe(model) if of_recipe is not None else None
    rank = int(stated.get("rank", default.rank if default else DEFAULT_RANK))
    modules = stated.get("modules", default.modules if default else "all-linear")
    return Lora(
        rank=rank,
        alpha=int(stated.get("alpha", default.alpha if default else 2 * rank)),
        modules=(modules,) if isinstance(modules, str) else tuple(modules),
        base=stated.get("base", "unquantized"),
    )


def _training(
    training: Keys,
    model: Model,
    accelerator: Accelerator,
    framework: Framework,
    fine_tunes: bool,
) -> Training:
    length = _sequence_length(training, model)
    sequences = _sequences(training["global_batch"], length)
    lora, weights = _lora(training, model, framework), training.get("weights")
    duration, ramp = training.get("duration", {}), training.get("batch_ramp")

    # What holds where the spec says nothing.
    precision = next((name for name in ("bf16", "fp16") if accelerator.supports(name)), "fp32")
    has_flash = accelerator.generation.runs_flash(model.widest_head) and not model.is_eager
    learning_rate = 2e-5 if fine_tunes and lora is None else 1e-4
    mode = "pretrain" if weights is None else "sft"
    if lora is not None:
        mode = "lora"
    return Training(
        mode=training.get("mode", mode),
        weights=weights,
        sequence_length=length,
        global_batch=sequences,
        precision=training.get("precision", precision),
        optimizer=training.get("optimizer", "adamw"),
        attention=training.get("attention", "flash" if has_flash else "unfused"),
        duration_tokens=_duration_tokens(duration, length, sequences),
        duration_steps=whole(duration.get("steps")),
        duration_epochs=duration.get("epochs"),
        learning_rate=float(training.get("learning_rate", learning_rate)),
        weight_decay=float(training.get("weight_decay", 0.0 if fine_tunes else 0.1)),
        gradient_clipping=float(training.get("gradient_clipping", 1.0)),
        fp8_parameters=training.get("fp8_parameters", False),
        fp8_recipe=training.get("fp8_recipe", "delayed"),
        cuda_graphs=training.get("cuda_graphs", "none"),
        paged_stash=training.get("paged_stash"),
        expert_capacity=training.get("expert_capacity"),
        fp8_attention=training.get("fp8_attention", False),
        mtp_depths=int(training.get("mtp_depths", 0)),
        lora=lora,
        batch_ramp=None if ramp is None else _batch_ramp(ramp),
        **{key: training.get(key) for key in _AS_THE_FRAMEWORK},
        quantized_weights=bool(training.get("quantized_weights")),
        quantized_gradients=bool(training.get("quantized_gradients")),
    )


def _sequences(batch: Any, length: int) -> int:
    """Sequences of the spec's global batch, which may be in tokens."""
    if isinstance(batch, Mapping):
        return read_batch_tokens(batch["tokens"], length) // length
    return int(batch)


def _batch_ramp(ramp: Keys) -> BatchRamp:
    return BatchRamp(**{key: whole(value) for key, value in ramp.items()})


def _sequence_length(training: Keys, model: Model | None) -> int:
    """Tokens of a sequence; learned positions are trained at their full length, others at up to
    4096.
    """
    if "sequence_length" in training or model is None:
        return int(training["sequence_length"])
    if model.position_embedding == "learned":
        return model.max_positions
    return min(model.max_positions, DEFAULT_SEQUENCE_LENGTH)


def _duration_tokens(duration: Keys, length: int, sequences: int) -> float | None:
    """Tokens in all; `None` when the spec doesn't say."""
    if "tokens" in duration:
        return float(read_tokens(duration["tokens"]))
    if "steps" in duration:
        return float(duration["steps"]) * length * sequences
    if "samples" in duration:
        return float(duration["samples"]) * float(duration.get("epochs", 1)) * length
    return None


def pinned_value(value: Any) -> Any:
    """A value of the spec's `layout` as in `Pins`, which are immutable: a list of names as a
    tuple.
    """
    return tuple(value) if isinstance(value, list) else whole(value)


def _reliability(reliability: Keys, launch: Keys) -> Reliability:
    """The spec's `reliability`, in SI units.

    Machines are preemptible where the spec says so, else where the launcher asks for such.
    """
    options = launch.get(launch.get("target", ""), {})
    asks_for_spot = options.get("use_spot", False)
    asks_for_spot = asks_for_spot or options.get("queue_settings", {}).get("job_tier") == "spot"
    units = {
        "storage_gbytes_per_s": ("storage_bytes_per_s", GB),
        "node_days_between_failures": ("node_s_between_failures", DAY),
        "restart_minutes": ("restart_s", MINUTE),
    }
    in_si = {
        field: float(reliability[key]) * unit
        for key, (field, unit) in units.items()
        if key in reliability
    }
    return Reliability(preemptible=reliability.get("preemptible", asks_for_spot), **in_si)


def whole(value: Any) -> Any:
    """`1e3` is an integer to the schema; to Python it is a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_text(source: Source, pointer: str, value: str | int | float) -> str:
    """Text as it is; a number as it was written, as a script may tell `1e-4` from `0.0001`."""
    return value if isinstance(value, str) else source.texts.get(pointer, str(value))
