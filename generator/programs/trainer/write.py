"""A script around the Hugging Face Trainer: its arguments, and the file that says how states are
sharded, a ds_config or FSDP2's config.

The Trainer compares its own arguments with DeepSpeed's JSON and refuses any difference. Both have
the same numbers, rather than "auto", so that DeepSpeed and any validator can read the file.

**Source**: transformers 5.23, integrations/deepspeed.py, `HfTrainerDeepSpeedConfig`; accelerate
1.15, accelerator.py, `_prepare_deepspeed`, and parallelism_config.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from ...catalog.layers.indexer import Indexer
from ...dataclass import dataclass
from ...estimate.adapters import ALL_LINEAR, adapter_parameters, module_names, text_modules
from ...estimate.layout import Layout, Recompute
from ...estimate.states import has_no_masters
from ...job.arguments import argument_values, gives
from ...job.records import Adapters, Checkpoints, Framework, Job, Need
from ...search.plan import Plan
from ...text.wording import dots
from ..deepspeed import write as ds_config
from ..deepspeed.engine import release
from ..deepspeed.options import EIGHT_BIT, PLANNED
from ..program import Program, RenderedFile, Resume, Value, group, holds, make_program
from . import fsdp
from .engine import ENGINE, FSDP2
from .table import DEEPSPEED, KEPT, ROWS, Row, groups_of
from .table import FSDP2 as FSDP2_ROWS

#: Options of TrainingArguments, and of the example scripts of transformers and trl, by the key of
#: the spec that they say.
OPTIONS: Final = {
    "data.path": ("--dataset_name", "--train_file"),
    "data.tokenizer.path": ("--tokenizer_name",),
    **{row.key: (row.option,) for row in ROWS if row.key.startswith("output.")},
    "output.resume": ("--resume_from_checkpoint",),
}
NEEDS: Final = (
    Need(what="data", key="data.path", words=("data", "train_file", "corpus")),
    Need(
        what="model or tokenizer",
        key="data.tokenizer",
        hint="set data.tokenizer.path, or add --model_name_or_path to launch.arguments",
        words=("model", "tokenizer"),
    ),
    # Source: transformers 5.23, examples/pytorch/*/run_*.py, ModelArguments, which make a new model
    # of --config_name or --model_type; trl's scripts, ModelConfig.
    Need(
        what="model",
        key="launch.arguments",
        options=("--model_name_or_path", "--config_name", "--model_type"),
        hint="add --model_name_or_path to launch.arguments",
        words=("model",),
        scripts=("run_*.py", "sft*.py", "dpo*.py", "kto*.py", "grpo*.py", "reward_modeling.py"),
        replaces="data.tokenizer",
    ),
    Need(
        what="folder for checkpoints",
        key="output.checkpoints",
        words=("output", "save_dir", "checkpoint", "ckpt"),
    ),
)
_TRL: Final = ("sft.py", "dpo.py", "kto.py", "reward_modeling.py")
#: Options of the example scripts for the length of a sequence.
#: Source: transformers 5.23, examples/pytorch/language-modeling; trl 0.24, SFTConfig and its kin.
_LENGTHS: Final = {
    **dict.fromkeys(("run_clm.py", "run_fim.py"), "--block_size"),
    **dict.fromkeys(("run_mlm.py", "run_plm.py"), "--max_seq_length"),
    **dict.fromkeys(_TRL, "--max_length"),
}
#: Endings of files for --train_file (examples/pytorch/language-modeling/run_clm.py takes all but
#: .jsonl, which is no dataset of the Hub either).
_FILES: Final = (".csv", ".json", ".jsonl", ".txt")
_ATTENTION: Final = "--attn_implementation"
_REPORT: Final = "--report_to"


def _packages(job: Job) -> dict[str, str]:
    """The packages that transformers imports for the arguments, and for what the plan expects of
    the script.

    **Source**: transformers 5.23, utils/import_utils.py, is_flash_attn_2_available,
    is_liger_kernel_available, is_bitsandbytes_available; trainer_optimizer.py (torchao);
    torch/utils/tensorboard/__init__.py; of trl the version that was read.
    """
    training, script = job.training, PurePosixPath(job.launch.script).name
    attention = argument_values(job.launch.arguments, _ATTENTION) or ("flash",)
    has_4bit_weights = training.lora is not None and training.lora.base == "4bit"
    has_8bit_states = training.optimizer == EIGHT_BIT
    by_torchao = has_8bit_states and job.engine.shards_masters

    packages: dict[str, str] = {}
    takes_flash = _takes_flash(job) and job.cluster.accelerator.vendor != "intel"
    if takes_flash and attention[0].startswith("flash"):
        packages["flash-attn"] = ">=2.3.3"
    if has_4bit_weights or (has_8bit_states and not by_torchao):
        packages["bitsandbytes"] = ">=0.46.1"
    if by_torchao:
        packages["torchao"] = ">=0.4"
    if training.kernels == "fused":
        packages["liger-kernel"] = ">=0.3.0"
    if "tensorboard" in _reports(job):
        packages["tensorboard"] = ">=1.15"
    if script in _TRL:
        packages["trl"] = "0.24"
    return packages


def _reports(job: Job) -> tuple[str, ...]:
    """Where the Trainer reports to: its arguments, else TensorBoard if the job has a log folder."""
    stated = argument_values(job.launch.arguments, _REPORT)
    if stated:
        return stated
    return ("tensorboard",) if job.output.logs is not None else ()


def _takes_flash(job: Job) -> bool:
    """Whether attention is FlashAttention, which can't mask out what an indexer didn't choose.

    **Source**: transformers 5.23, modeling_deepseek_v32.py, `_supports_flash_attn`.
    """
    return job.training.attention == "flash" and job.model.part(Indexer) is None


def _attention(job: Job, layout: Layout) -> str:
    """The attention that the plan counts on."""
    # torch's context parallelism, which gathers keys and values, has its own attention
    is_torchs = job.engine.context == "gather" and layout.context > 1
    if _takes_flash(job) and not is_torchs:
        return "flash_attention_2"
    # Ulysses takes no `eager`
    return "sdpa" if layout.context > 1 or job.training.attention == "flash" else "eager"


def _resume(job: Job) -> Resume | None:
    """The option by which a job that starts again is told of its last checkpoint.

    The launch files look for the checkpoint: the Trainer doesn't by itself.

    **Source**: transformers 5.23, training_args.py, resume_from_checkpoint ("not directly used by
    Trainer"), and examples/pytorch/language-modeling/run_clm.py, which hands it to train;
    trainer.py, _save_checkpoint, writes trainer_state.json after model and optimizer.
    """
    folder, option = job.output.checkpoints, "--resume_from_checkpoint"
    if folder is None or not job.output.resume:
        return None
    if gives(job.launch.arguments, option, "--output_dir"):  # the user's own folder or path
        return None
    return Resume(option=option, folder=folder, prefix="checkpoint-")


def _ulysses(job: Job, layout: Layout) -> Mapping[str, str]:
    """The variables by which accelerate sets Ulysses up.

    A replica's size is left at 1: accelerate leaves the world's division to DeepSpeed when Ulysses
    is on.
    """
    if layout.context == 1:
        return {}
    return {
        "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
        "PARALLELISM_CONFIG_SP_BACKEND": "deepspeed",
        "PARALLELISM_CONFIG_SP_SIZE": str(layout.context),
        "PARALLELISM_CONFIG_SP_SEQ_LENGTH": str(job.training.sequence_length),
        "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE": "false",
        "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION": _attention(job, layout),
    }


def _ulysses_notes(job: Job, layout: Layout) -> Iterator[str]:
    """Notes on DeepSpeed's tensor and sequence parallelism."""
    yield from ds_config.autotp_notes(job, layout, "the Trainer and DeepSpeed count")
    if layout.context == 1:
        return
    # Source: deepspeed 0.19.8, runtime/sequence_parallel/ulysses_sp.py,
    # UlyssesSPDataLoaderAdapter.refill
    yield (
        "Each batch has to hold position_ids (0, 1, ... of each sequence), or Ulysses "
        "refuses it: neither the "
        "Trainer nor accelerate adds them."
    )
    yield (
        "train_batch_size is left out: DeepSpeed derives "
        f"{layout.global_batch * layout.tensor}, while the Trainer "
        f"would insist on {layout.context} times that, since it counts every rank "
        "of a Ulysses group."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """What a way of sharding adds to the Trainer's files."""

    rows: Mapping[str, tuple[Row, ...]]  #: arguments, by the comment above them
    file: Callable[[Job, Layout], RenderedFile]
    environment: Callable[[Job, Layout], Mapping[str, str]]
    notes: Callable[[Job, Layout], Iterator[str]]
    #: why quantized weights have to be stored in a type that is computed with, for a note
    cut_base: str


_BY_DEEPSPEED: Final = Sharding(
    rows=DEEPSPEED,
    # Without a mesh or an mpu, as when the model is built under zero.Init, this is what divides the
    # world.
    file=lambda job, layout: ds_config.rendered(job, ds_config.script_config(job, layout, {})),
    environment=_ulysses,
    notes=_ulysses_notes,
    cut_base="ZeRO-3 can shard no other storage type",
)
_BY_FSDP2: Final = Sharding(
    rows=FSDP2_ROWS,
    file=fsdp.rendered,
    environment=fsdp.environment,
    notes=fsdp.notes,
    cut_base="FSDP2 leaves integers whole on every GPU",
)


def notes(job: Job, layout: Layout, sharding: Sharding = _BY_DEEPSPEED) -> tuple[str, ...]:
    """Notes on what isn't in TrainingArguments, and on numbers that look wrong but aren't."""
    script = PurePosixPath(job.launch.script).name
    counted_on = []
    if script not in _LENGTHS:
        counted_on.append(f"sequences of {job.training.sequence_length} tokens")
    if script not in _TRL and not gives(job.launch.arguments, _ATTENTION):
        counted_on.append(f"attn_implementation={_attention(job, layout)}")
    texts = []
    if counted_on:
        texts.append(
            f"The plan counts on {' and '.join(counted_on)}, which the script sets: "
            "TrainingArguments can't."
        )
    texts += sharding.notes(job, layout)
    texts += _adapter_notes(job, layout, sharding)
    if _resume(job) is not None:
        texts.append(
            "To resume, the script must call trainer.train(resume_from_checkpoint=PATH), with the "
            "option of that name, "
            "which the launch file sets to the last whole checkpoint, or with what "
            "transformers.trainer_utils.get_last_checkpoint finds in output_dir."
        )
    if job.training.precision == "fp8":
        texts.append(
            "fp8: the Trainer runs in bf16, as the plan counts; the model's own layers "
            "(Transformer Engine) must compute in fp8."
        )
    return tuple(texts)


def _adapter_notes(job: Job, layout: Layout, sharding: Sharding) -> Iterator[str]:
    """Notes on what the script has to do for adapters, of which TrainingArguments knows nothing.

    **Source**: peft 0.21, tuners/lora/config.py, LoraConfig, and
    docs/source/accelerate/deepspeed.md; transformers 5.23, utils/quantization_config.py,
    BitsAndBytesConfig; bitsandbytes 0.50.
    """
    lora = job.training.lora
    if lora is None:
        return
    targets = f'"{ALL_LINEAR}"'
    if lora.modules != (ALL_LINEAR,):
        targets = f"[{', '.join(f'{name!r}' for name in module_names(job))}]"
    pattern = text_modules(job)
    if pattern is not None:
        targets = f"r'{pattern}'"
    yield (
        "LoRA: the script must wrap the model by peft's get_peft_model with "
        f"LoraConfig(r={lora.rank}, "
        f"lora_alpha={lora.alpha}, target_modules={targets}, lora_dropout=0, bias='none', "
        "task_type='CAUSAL_LM'): "
        f"{adapter_parameters(job):,} parameters are trained."
    )
    if layout.recompute == Recompute.FULL:
        yield (
            "With gradient checkpointing the script must call "
            "model.enable_input_require_grads() before training."
        )
    if lora.base == "4bit":
        kind = "float16" if job.training.precision == "fp16" else "bfloat16"
        yield (
            "QLoRA: the script must load the model with BitsAndBytesConfig(load_in_4bit=True, "
            "bnb_4bit_quant_type='nf4'"
            f", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.{kind}, "
            f"bnb_4bit_quant_storage=torch.{kind}); {sharding.cut_base}."
        )


def _script_options(job: Job, layout: Layout) -> dict[str, Value]:
    """Options of example scripts that aren't TrainingArguments; none that the spec gives itself."""
    arguments, data = job.launch.arguments, job.data
    script = PurePosixPath(job.launch.script).name
    options: dict[str, Value] = {}
    for path in data.path[:1]:
        option = "--train_file" if path.endswith(_FILES) else "--dataset_name"
        if not holds(arguments, path):
            options[option] = path
    if data.tokenizer.path is not None and not holds(arguments, data.tokenizer.path):
        options["--tokenizer_name"] = data.tokenizer.path
    gives_length = gives(arguments, "--block_size", "--max_length", "--max_seq_length")
    if script in _LENGTHS and not gives_length:
        options[_LENGTHS[script]] = job.training.sequence_length
    if script in _TRL:
        options[_ATTENTION] = _attention(job, layout)
    lora = job.training.lora
    if script in _TRL and lora is not None:  # options of trl's ModelConfig
        modules = (ALL_LINEAR,) if lora.modules == (ALL_LINEAR,) else tuple(module_names(job))
        pattern = text_modules(job)
        modules = modules if pattern is None else (pattern,)  # trl takes one word for a pattern
        options |= {"--use_peft": "true", "--lora_r": lora.rank, "--lora_alpha": lora.alpha}
        options |= {"--lora_dropout": 0, "--lora_target_modules": modules}
    return options


def program(plan: Plan, sharding: Sharding = _BY_DEEPSPEED) -> Program:
    """The Trainer script, its arguments and the JSON they agree with."""
    job, layout = plan.job, plan.layout
    groups = [
        group(comment, {row.option: row.value(plan) for row in rows})
        for comment, rows in groups_of(sharding.rows)
    ]
    script = PurePosixPath(job.launch.script).name
    if has_no_masters(job) and script in ("run_clm.py", *_TRL):
        groups.insert(-1, group("the type that weights have and keep", {"--dtype": "bfloat16"}))
    comment = "data and tokenizer, by the options of the example scripts of transformers"
    groups.insert(-1, group(comment, _script_options(job, layout)))
    if _reports(job):  # by default nothing is reported
        groups.append(
            group("logs for TensorBoard, in TENSORBOARD_LOGGING_DIR", {_REPORT: _reports(job)})
        )
    logs = {"TENSORBOARD_LOGGING_DIR": job.output.logs} if job.output.logs is not None else {}
    return make_program(
        job,
        groups,
        environment={**logs, **sharding.environment(job, layout)},
        files=(sharding.file(job, layout),),
        notes=notes(job, layout, sharding),
        resume=_resume(job),
    )


_WITH_DEEPSPEED: Final = Framework(
    name="huggingface",
    engine=ENGINE,
    # Source: huggingface/transformers @ 5.23.0 src/transformers/training_args.py and setup.py, the
    # extra `torch`; huggingface/accelerate @ 1.15.0 src/accelerate/accelerator.py
    versions={"transformers": "", "accelerate": "1.15.0", "torch": ">=2.6"},  # by the job below
    first_with_ulysses=(0, 18, 2),  # has what accelerate calls
    goes_on_from_weights=True,
    adapters=Adapters(),
    script="train.py",
    only={
        "cross_entropy": "unfused",
        "dispatcher": "alltoall",
        "cuda_graphs": "none",
        "fp8_attention": False,
        "mtp_depths": 0,
    },
    # Source: transformers 5.23, training_args.py, save_strategy (steps by default);
    # trainer_callback.py, DefaultFlowCallback, which then saves after the last step as well.
    saves_nothing=("--save_strategy", "no"),
    options=OPTIONS,
    decides={row.option: row.key for row in ROWS if row.key.startswith(("training.", "layout."))},
    planned=PLANNED,
    in_environment=frozenset({"output.logs"}),
    needs=NEEDS,
    packages=lambda job: {
        "transformers": dots(job.transformers_version),
        **_packages(job),
        **release(job),
    },
    cross_entropy="unfused",
    loss_traffic_bytes={"unfused": 32},
    kernels_per_layer=40,
    checkpoints=Checkpoints(folder="checkpoint-"),
    keeps=KEPT,
    program=program,
)
_WITH_FSDP2: Final = replace(
    _WITH_DEEPSPEED,
    engine=FSDP2,
    sharding="fsdp2",
    # torch 2.7 is the first that leaves parameters out, as accelerate does with quantized ones.
    versions={"transformers": "", "accelerate": "1.15.0", "torch": ">=2.7"},
    only={**_WITH_DEEPSPEED.only, "gradient_dtype": "same"},
    planned={},
    packages=lambda job: {"transformers": dots(job.transformers_version), **_packages(job)},
    program=lambda plan: program(plan, _BY_FSDP2),
)
FRAMEWORK: Final = replace(_WITH_DEEPSPEED, sharding="deepspeed", shardings={"fsdp2": _WITH_FSDP2})
