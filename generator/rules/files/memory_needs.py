"""What runs need of memory, where arguments, or a config with a model and a cluster, suffice to estimate it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

from ...documents.inferred_config import inferred_from_configs
from ...documents.inferred_run import InferredRun, inferred_runs
from ...documents.submission import Submission
from ...estimate.layout import Layout
from ...estimate.ledgers import Memory
from ...estimate.memory import memory
from ...job.records import Job
from ..layout.pins import known_values, layout_of
from ..rule import subject

#: What the estimate of a Megatron run can't do without.
_NEEDED: Final = frozenset(
    [
        *("cluster", "gpus", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "experts", "sequence"),
        *("micro_batch", "gradient_accumulation", "tensor", "pipeline", "context", "expert", "virtual_pipeline"),
        *("sequence_parallel", "zero_stage", "recompute", "offload", "precision", "attention"),
    ]
)
#: Options that need less memory in ways that the estimate doesn't follow, or make another model.
_BEYOND: Final = (
    *("--recompute-modules", "--fine-grained-activation-offloading", "--cpu-offloading-num-layers"),
    *("--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype", "--grad-reduce-in-bf16"),
    *("--multi-latent-attention", "--moe-layer-freq", "--heterogeneous-layers-config-path", "--hybrid-layer-pattern"),
    *("--freeze-all-layers", "--optimizer-offload-fraction", "--rampup-batch-size", "--memory-centric-tiled-linear"),
    *("--num-experts-teacher", "--random-ltd", "--lora-rank"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """An inferred run with its layout and ledger."""

    run: InferredRun
    layout: Layout
    ledger: Memory
    planned: bool  #: whether the submission has a job spec, whose plan has compared the stages by their time

    @property
    def job(self) -> Job:
        """The run's job."""
        return self.run.job

    @property
    def on_host(self) -> bool:
        """Whether what is offloaded goes to host memory."""
        return self.whole or "host offload" in self.run.facts

    @property
    def whole(self) -> bool:
        """Whether all that the run needs is counted; of a config alone, model states and little more is."""
        return self.run.run is not None


@subject("DeepSpeed config", "launch script", "AzureML job", "Megatron arguments")
def needs(submission: Submission) -> Iterator[Need]:
    """Every run of the submission whose memory can be estimated."""
    runs = list(inferred_runs(submission))
    countable = filter(_is_countable, runs) if runs else inferred_from_configs(submission)
    for run in countable:
        known = known_values(run.job)
        if all(field.name in known for field in fields(Layout)):
            layout = layout_of(known)
            if not runs or _fits_integers(run.job, layout):
                planned = submission.job is not None
                yield Need(run=run, layout=layout, ledger=memory(run.job, layout), planned=planned)


def _is_countable(inferred: InferredRun) -> bool:
    """Whether the arguments have all that the estimate of a Megatron run needs, and nothing that it doesn't follow."""
    beyond = inferred.run is None or any(map(inferred.run.may_have, _BEYOND))
    return inferred.facts >= _NEEDED and not beyond and not inferred.job.model.is_moe


def _fits_integers(job: Job, layout: Layout) -> bool:
    """Whether all sizes together fit the 64 bits that numpy counts in."""
    model, training = job.model, job.training
    widths = model.hidden * (model.hidden + model.ffn) * model.heads * model.head_dim
    batch = training.sequence_length * layout.micro_batch * layout.gradient_accumulation
    return max(widths * model.layers, model.layers * model.hidden * model.heads * batch) < 2**62
