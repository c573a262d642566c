"""A run as its Megatron arguments describe it: a job with every layout key pinned, and which of its facts are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from ....catalog.records import Accelerator, Model
from ....documents.megatron_arguments import MegatronArguments
from ....documents.submission import Submission
from ....findings import Location
from ....job.records import Cluster, Job, Launch, Origin, Pins, Training
from .config import config_of, stage_of
from .described_facts import Facts
from .described_model import model_of
from .rule import CONTEXT, EXPERT, GLOBAL, MICRO, PIPELINE, TENSOR, ULYSSES, gpus_of, model_parallel, replicas_of
from .stages import chunks_of

_CHUNKS: Final = ("--num-virtual-stages-per-pipeline-rank", "--num-layers-per-virtual-pipeline-stage")
_OTHER_CHUNKS: Final = ("--pipeline-model-parallel-layout", "--hybrid-layer-pattern", "--hybrid-override-pattern")
_RECOMPUTE: Final = ("--recompute-granularity", "--recompute-activations", "--checkpoint-activations")
_FSDP: Final = ("--use-megatron-fsdp", "--use-custom-fsdp", "--use-torch-fsdp2")
_FLASH: Final = ("--use-flash-attn", "--use-flash-attn-v1", "--use-flash-attn-v2", "--use-flash-attn-triton")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The job, the names of the facts in it that the arguments say, and their places by layout key."""

    arguments: MegatronArguments
    job: Job
    facts: frozenset[str]
    places: Mapping[str, Location]

    def locate(self, names: tuple[str, ...]) -> Location:
        """The place of the first of the keys that is written, else of the program."""
        return next((self.places[name] for name in names if name in self.places), self.arguments.locate(""))


def described_jobs(submission: Submission) -> Iterator[Described]:
    """A job for each set of arguments of a training run."""
    for arguments in submission.megatron:
        if arguments.given and arguments.trains:
            yield _Reader(Facts(arguments=arguments, submission=submission)).described()


class _Reader:
    """Reads arguments fact by fact; what isn't known gets a value that no rule stumbles over."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.arguments = facts.arguments
        self.submission = facts.submission
        self.places = facts.places
        self.is_lm = facts.is_lm

    def described(self) -> Described:
        """The job of the arguments."""
        pins, model = self._pins(), model_of(self.facts)
        job = Job(
            name=self.arguments.program or "run",
            framework=self.submission.frameworks[self.arguments.flavour],
            deepspeed_version=self.submission.deepspeed_version,
            model=model,
            cluster=self._cluster(),
            gpus=self._gpus(pins, model),
            training=self._training(),
            pins=pins,
            headroom=0.0,
            launch=Launch(target="shell", script="", arguments=(), environment={}, time_limit_s=None, options={}),
            origin=Origin(path=self.arguments.path),
        )
        return Described(arguments=self.arguments, job=job, facts=frozenset(self.facts.known), places=self.places)

    def _pins(self) -> Pins:
        expert = EXPERT if self.is_lm else "--moe-expert-parallel-size"
        micro = self.facts.number("micro_batch", MICRO)
        return Pins(
            tensor=self.facts.number("tensor", TENSOR, 1),
            pipeline=self.facts.number("pipeline", PIPELINE, 1),
            virtual_pipeline=self._chunks(),
            context=self.facts.number("context", CONTEXT if self.is_lm else ULYSSES, 1),
            expert=self.facts.number("expert", expert, 1),
            sequence_parallel=self.facts.flag("sequence_parallel", "--sequence-parallel"),
            zero_stage=self._stage(),
            micro_batch=micro,
            gradient_accumulation=self._accumulation(micro),
            recompute=self._recompute(),
            offload=self._offload(),
        )

    def _chunks(self) -> int | None:
        if not self.arguments.sure(*_CHUNKS, *_OTHER_CHUNKS) or any(map(self.arguments.has, _OTHER_CHUNKS)):
            return None
        given = next((name for name in _CHUNKS if self.arguments.has(name)), None)
        chunks = 1 if given is None else chunks_of(self.arguments)
        if chunks is not None and chunks > 0:
            self.facts.known.add("virtual_pipeline")
            if given is not None:
                self.places["virtual_pipeline"] = self.arguments.locate(given)
            return chunks
        return None

    def _accumulation(self, micro: int | None) -> int | None:
        replicas = replicas_of(self.submission, self.arguments)
        batch = self.facts.number("global_batch", GLOBAL)
        if micro and replicas and batch is None and self.arguments.lacks(GLOBAL):
            self.facts.known.add("accumulation")
            return 1
        if micro and replicas and batch and batch % (micro * replicas) == 0:
            self.facts.known.add("accumulation")
            self.places["gradient_accumulation"] = self.arguments.locate(GLOBAL)
            return batch // (micro * replicas)
        return None

    def _stage(self) -> int | None:
        if not self.is_lm:
            found = stage_of(self.arguments, self.submission)
            if found is None or not self.arguments.has("--deepspeed"):
                return None
            self.facts.known.add("zero_stage")
            name = "--zero-stage"
            self.places["zero_stage"] = self.arguments.locate(name) if self.arguments.has(name) else found[1]
            return found[0]
        if any(map(self.arguments.has, _FSDP)):
            return None
        return int(self.facts.flag("zero_stage", "--use-distributed-optimizer"))

    def _recompute(self) -> str | None:
        arguments, kind = self.arguments, self.arguments.value("--recompute-granularity")
        if not arguments.sure(*_RECOMPUTE) or (arguments.has("--recompute-granularity") and kind is None):
            return None
        self.facts.known.add("recompute")
        if arguments.has("--recompute-granularity"):
            self.places["recompute"] = arguments.locate("--recompute-granularity")
        full = kind == "full" or arguments.has("--checkpoint-activations")
        return "full" if full else "selective" if kind or arguments.has("--recompute-activations") else "none"

    def _offload(self) -> str | None:
        if self.is_lm:
            return "optimizer" if self.facts.flag("offload", "--optimizer-cpu-offload") else "none"
        config = config_of(self.arguments, self.submission)
        if config is None or config.stage is None:
            return None
        self.facts.known.add("offload")
        if not config.offloads("optimizer") or not config.stage:
            return "none"
        self.places["offload"] = config.locate("/zero_optimization/offload_optimizer/device")
        return "optimizer+parameters" if config.offloads("param") and config.stage == 3 else "optimizer"

    def _training(self) -> Training:
        precision, attention = self._precision(), self._attention()
        return Training(
            sequence_length=self.facts.number("sequence", "--seq-length") or 1,
            global_batch=self.facts.number("global_batch", GLOBAL) or 1,
            precision=precision,
            optimizer="sgd" if self.arguments.value("--optimizer") == "sgd" else "adamw",
            attention=attention,
            duration_tokens=None,
            learning_rate=0.0,
            weight_decay=0.0,
            gradient_clipping=0.0,
        )

    def _precision(self) -> str:
        names = ("--fp8-format",) if self.is_lm else ("--fp8-hybrid", "--fp8-e4m3")
        options = {**dict.fromkeys(names, "fp8"), "--bf16": "bf16", "--fp16": "fp16"}
        given = next((name for name in options if self.arguments.has(name)), None)
        if given is not None or self.arguments.sure(*options):
            self.facts.known.add("precision")
        if given is None:
            return "fp32"
        self.places["precision"] = self.arguments.locate(given)
        return options[given]

    def _attention(self) -> str:
        backend = self.arguments.value("--attention-backend")
        if backend is not None:
            self.places["attention"] = self.arguments.locate("--attention-backend")
        flash = self.facts.flag("attention", *_FLASH)
        if self.is_lm and not flash:  # Transformer Engine picks a fused kernel by itself
            fused = self.arguments.value("--transformer-impl", "transformer_engine") == "transformer_engine"
            flash = backend in ("flash", "fused", "auto") or (backend is None and fused)
        return "flash" if flash else "unfused"

    def _cluster(self) -> Cluster:
        cluster = self.submission.cluster
        if cluster is not None:
            self.facts.known.add("cluster")
        return cluster or _NOWHERE

    def _gpus(self, pins: Pins, model: Model) -> int:
        """The GPUs; unknown, a number that every size divides, so that hints leave none out for it."""
        gpus = gpus_of(self.submission, self.arguments)
        whole = model_parallel(self.arguments)
        if gpus and whole:
            self.facts.known.add("gpus")
            return gpus
        sizes = (pins.tensor or 1) * (pins.pipeline or 1) * (pins.context or 1) * (pins.expert or 1)
        return sizes * model.heads * model.layers


#: Machines of which nothing is known; the rules that ask for them don't speak.
_NOWHERE: Final = Cluster(
    name="unknown machines",
    provider=None,
    accelerator=Accelerator(
        name="unknown",
        vendor="nvidia",
        generation="unknown",
        memory_bytes=inf,
        memory_bytes_per_s=inf,
        flops_per_s={},
        achievable_fraction=None,
        link_bytes_per_s=inf,
        pcie_bytes_per_s=inf,
        source="",
    ),
    accelerators_per_node=720_720,  # divided by every number up to 16, so that hints leave none out for it
    intra_node="nvswitch",
    link_domain=1,
    network="unknown",
    network_bytes_per_s_per_node=inf,
    host_memory_bytes=None,
    cpu_cores=None,
    local_nvme_bytes=None,
    price_per_node_hour=None,
    source="",
)
