"""Rules on a job: on its GPUs, nodes and hosts, and on its training (precision, attention,
optimizer, adapters) against accelerator, model and framework.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ...catalog import closest
from ...estimate.adapters import ALL_LINEAR, ATTENTION, has_known_modules
from ...estimate.rates import constants
from ...findings import ERROR, WARNING, Violations
from ...job.records import Job
from ...job.schema import launch_keys
from ...rule import InFiles
from ...text.wording import counted, dots
from ..planned import IN_ALL, adapted_jobs, composed_jobs, jobs
from ..violations import (
    accelerate,
    deepspeed,
    deepspeed_0_19_8,
    derived,
    megatron_lm,
    neighbours,
    torch,
    transformers,
    violation,
)

_wide_jobs: Final = jobs.where(lambda job: not job.engine.computes_narrowly)


@jobs.rule(
    "CAL001", ERROR, "silent", derived("a factor of a constant that isn't there would be lost")
)
def calibration_names_constants(job: Job) -> Violations:
    """A calibration's factors are of constants that the time model has.
    Prevents: The factor would be lost, and the estimate with it: the model has renamed or dropped
    the constant since.
    Fix: run dsgen calibrate with the same runs and this version
    """
    unknown = [name for name, _ in job.calibration.factors if name not in constants()]
    if unknown:
        near = closest(unknown[0], constants())
        message = f"unknown constant {unknown[0]} in the calibration {job.calibration.source}"
        hint = "run `dsgen calibrate` again"
        if near:
            hint = f"did you mean `{near}`? or {hint}"
        yield violation(job, "/calibration", message, hint)


@jobs.rule(
    "NODE003", ERROR, "launcher", derived("torchrun starts the same number of ranks on every node")
)
def gpus_fill_nodes(job: Job) -> Violations:
    """A job on more than one node uses whole nodes.
    Prevents: Torchrun waits for ranks that never come, until the rendezvous times out.
    Fix: set gpus to a multiple of a node's, or set `nodes`"""
    node = job.cluster.accelerators_per_node
    if job.gpus > node and job.gpus % node:
        message = (
            f"{job.gpus} GPUs don't fill nodes of {node}: the last one would have {job.gpus % node}"
        )
        yield violation(
            job, "/gpus", message, f"use {job.says('gpus', *neighbours(node, job.gpus))}"
        )


@jobs.rule(
    "NODE004",
    ERROR,
    "init",
    derived("NVIDIA's MIG user guide: no peer-to-peer across GPU instances"),
)
def slices_work_alone(job: Job) -> Violations:
    """A job uses one MIG slice: NCCL has no path between slices, without NVLink and peer-to-peer.
    Prevents: NCCL fails at its first collective: there is no path between the slices.
    Fix: set gpus to 1, or use whole accelerators"""
    accelerator = job.cluster.accelerator
    if accelerator.is_slice and job.gpus > 1:
        reason = "MIG has no NVLink and no peer-to-peer between slices"
        message = f"{job.gpus} slices ({accelerator.name}) cannot work together: {reason}"
        yield violation(
            job, "/gpus", message, f"use {job.says('gpus', 1)}, or a cluster of whole accelerators"
        )


@jobs.rule("NODE005", ERROR, "init", derived("collectives between nodes need a network"))
def nodes_are_connected(job: Job) -> Violations:
    """A job on more than one node has a network between them.
    Prevents: NCCL fails or falls back to a network a thousand times too slow.
    Fix: use at most the gpus of one node, or a cluster with a network"""
    if job.nodes > 1 and job.cluster.network_bytes_per_s_per_node <= 0:
        message = (
            f"{job.gpus} GPUs need {job.nodes} nodes of {job.cluster.name}, which has no "
            "network between nodes"
        )
        fewer = job.says("gpus", f"{job.cluster.accelerators_per_node} or fewer")
        hint = f"use {fewer}, or set cluster.network_gbits_per_s_per_node if there is one"
        yield violation(job, "/cluster", message, hint)


_FILES_WITH_PRECISION: Final = InFiles(kinds=IN_ALL.kinds, facts=("precision", "accelerator"))


@jobs.rule("PREC002", ERROR, "init", deepspeed("runtime/engine.py:1679"), _FILES_WITH_PRECISION)
def hardware_computes_precision(job: Job) -> Violations:
    """The accelerator supports the precision of the job.
    Prevents: DeepSpeed stops at start: the type is not supported on your device; elsewhere it runs,
    many times slower.
    Fix: set training.precision to fp16 on Volta, bf16 from Ampere on, fp8 from Hopper on, nvfp4
    from Blackwell on
    """
    accelerator, precision = job.cluster.accelerator, job.training.precision
    if not accelerator.supports(precision):
        able = [p for p in ("bf16", "fp16", "fp32") if accelerator.supports(p)]
        message = f"{job.says('precision', precision)} is not supported by {accelerator.name}"
        message += f" ({accelerator.generation})"
        yield violation(job, "/training/precision", message, f"use {job.says('precision', *able)}")


@jobs.rule(
    "PREC033",
    ERROR,
    "init",
    derived("Transformer Engine 2.9, pytorch/quantization.py, check_mxfp8_support"),
)
def hardware_scales_blocks(job: Job) -> Violations:
    """MXFP8 needs an accelerator that scales blocks of 32 itself: Blackwell.
    Prevents: Transformer Engine stops: device compute capability 10.0 or higher required for MXFP8
    execution.
    Fix: set training.fp8_recipe to blockwise on Hopper
    """
    accelerator, recipe = job.cluster.accelerator, job.training.fp8_recipe
    recipes = accelerator.generation.fp8_recipes  # without any, PREC002 refuses fp8 itself
    if recipes and recipe not in recipes:
        message = f"{job.says('fp8_recipe', recipe)} is not supported by {accelerator.name}"
        message += f" ({accelerator.generation})"
        hint = f"use {job.says('fp8_recipe', recipes[-1])}"
        yield violation(job, "/training/fp8_recipe", message, hint)


@_wide_jobs.rule(
    "PREC020", WARNING, "silent", derived("DeepSpeed's configuration has fp16 and bf16 blocks only")
)
def framework_computes_fp8(job: Job) -> Violations:
    """FP8 needs Transformer Engine's layers, which the Megatrons have; ordinary ones compute in
    bf16, as they are planned.
    Prevents: No error: the job computes in bf16, at half the speed of fp8.
    Fix: set training.precision to bf16, or use framework: megatron-lm
    """
    if job.training.precision == "fp8":
        fp8, framework = job.says("precision", "fp8"), job.says("framework", job.framework)
        message = f"{fp8} is planned as bf16 with {framework}: only the script's own layers can "
        message += "compute in fp8"
        hint = f"use {job.says('precision', 'bf16')}, or {job.says('framework', 'megatron-lm')}"
        yield violation(job, "/training/precision", message, hint)


@jobs.rule(
    "ATT001",
    ERROR,
    "training",
    derived("FlashAttention-2's README"),
    InFiles(facts=("attention", "accelerator")),
)
def hardware_runs_flash_attention(job: Job) -> Violations:
    """FlashAttention-2 runs on Ampere or later.
    Prevents: FlashAttention-2 stops at the first forward pass: it only supports Ampere GPUs or
    newer.
    Fix: set training.attention to unfused
    """
    accelerator = job.cluster.accelerator
    if job.training.attention == "flash" and not accelerator.generation.flash_attention:
        flash, generation = job.says("attention", "flash"), accelerator.generation.name.title()
        message = (
            f"{flash} does not run on {accelerator.name}: FlashAttention-2 needs Ampere or "
            f"later, not {generation}"
        )
        yield violation(
            job, "/training/attention", message, f"use {job.says('attention', 'unfused')}"
        )


@jobs.rule(
    "ATT002",
    ERROR,
    "init",
    "huggingface/transformers models/deepseek_v4/modeling_deepseek_v4.py and "
    "models/hy_v4/modeling_hy_v4.py @ 5.23.0 (`_supports_flash_attn`, `_supports_sdpa`)",
)
def model_has_flash_attention(job: Job) -> Violations:
    """Transformers has more than eager attention for the model.
    Prevents: transformers stops while it loads the model, which does not support Flash Attention 2.
    Fix: set training.attention to unfused
    """
    if job.training.attention == "flash" and job.model.is_eager:
        flash, model = job.says("attention", "flash"), job.model
        message = f"{flash} is not there for {model.name}: transformers has eager attention alone"
        unfused = job.says("attention", "unfused")
        yield violation(job, "/training/attention", message, f"use {unfused}")


@jobs.rule(
    "ATT003",
    ERROR,
    "training",
    "Dao-AILab/flash-attention README (all head dimensions up to 256)",
)
def flash_attention_takes_heads(job: Job) -> Violations:
    """FlashAttention-2 takes the heads of every layer.
    Prevents: FlashAttention-2 stops at the first forward pass: it only supports head dimensions of
    at most 256.
    Fix: set training.attention to unfused
    """
    training, generation, model = job.training, job.cluster.accelerator.generation, job.model
    if training.attention != "flash" or not generation.flash_attention or model.is_eager:
        return  # ATT001 and ATT002 refuse it
    if not generation.runs_flash(model.widest_head):
        message = (
            f"{job.says('attention', 'flash')} does not run with the heads of {model.name}: "
            f"FlashAttention-2 takes up to {generation.flash_head_dim} elements, "
            f"not {model.widest_head}"
        )
        unfused = job.says("attention", "unfused")
        yield violation(job, "/training/attention", message, f"use {unfused}")


@jobs.rule(
    "HOST001",
    ERROR,
    "launcher",
    derived("the launch script starts one torchrun on each host of its hostfile"),
)
def hosts_are_the_nodes(job: Job) -> Violations:
    """As many hosts are named as the job has nodes, each once.
    Prevents: The launch script stops, or starts more ranks on a host than it has GPUs.
    Fix: name as many different hosts as nodes, or set launch.shell.hostfile to a file that is
    written later
    """
    hosts, where = job.launch.options.get("hosts"), f"/launch/{job.launch.target}/hosts"
    if not isinstance(hosts, (list, tuple)):
        return
    gpus_of_hosts = len(hosts) * job.cluster.accelerators_per_node
    # An elastic job may start on fewer GPUs than its most.
    is_within_elastic = bool(job.elastic) and job.elastic[0] <= gpus_of_hosts <= job.elastic[-1]
    twice = [host for host, times in Counter(hosts).items() if times > 1]
    if twice:
        message = f"{twice[0]} is named {hosts.count(twice[0])} times in {len(hosts)} hosts"
        yield violation(job, where, message, f"name {job.nodes} different hosts")
    elif len(hosts) != job.nodes and not is_within_elastic:
        named = f"{counted(len(hosts), 'host')} {'is' if len(hosts) == 1 else 'are'} named"
        message = (
            f"{named}, but {counted(job.gpus, 'GPU')} are {counted(job.nodes, 'node')} "
            f"of {job.cluster.name}"
        )
        hint = f"name {job.nodes}, or use {job.says('gpus', gpus_of_hosts)}"
        yield violation(job, where, message, hint)


@jobs.rule(
    "HOST002",
    WARNING,
    "launcher",
    derived("ssh and pdsh are told the hosts; no scheduler gives them"),
)
def several_nodes_have_hosts(job: Job) -> Violations:
    """On plain machines, the hosts of a job on several nodes are named, or the file that will name
    them.
    Prevents: The launch script stops at once: no file names the hosts to connect to.
    Fix: set launch.shell.hosts, or launch.shell.hostfile to a file that is written later
    """
    options, section = job.launch.options, f"launch.{job.launch.target}"
    named = options.get("hosts") or options.get("hostfile")
    if job.nodes > 1 and not named and "hosts" in launch_keys(job.launch.target):
        message = (
            f"no hosts are named, but {job.gpus} GPUs are {job.nodes} nodes of {job.cluster.name}"
        )
        hint = (
            f"use --set '{section}.hosts=[node-0, node-1, ...]' with {job.nodes} hosts, or --set "
            f"{section}.hostfile=FILE"
        )
        yield violation(
            job, "/launch/target", message, f"{hint} for a file that launch.sh reads when it starts"
        )


_KERNEL: Final = "ops/csrc/quantization/pt_binding.cpp:154"
#: The first DeepSpeed that converts bf16 weights before its quantizing kernel, which reads fp16.
FIRST_THAT_QUANTIZES_BF16: Final = (0, 19, 6)


def _quantized_keys(job: Job) -> Iterator[str]:
    """The keys of ZeRO++'s quantized communication that the job sets."""
    for key in ("quantized_weights", "quantized_gradients"):
        if getattr(job.training, key):
            yield key


@jobs.rule(
    "ZERO087",
    ERROR,
    "silent",
    derived("zero_quantized_weights and _gradients are keys of DeepSpeed's config"),
)
def quantized_communication_is_deepspeeds(job: Job) -> Violations:
    """Quantized weights and gradients are DeepSpeed's.
    Prevents: No error: other frameworks have no such option, and nothing would be quantized.
    Fix: remove the key, or use a framework that runs on DeepSpeed"""
    if job.engine.has_buckets:
        return
    for key in _quantized_keys(job):
        message = (
            f"training.{job.says(key, True)} is not available with "
            f"{job.says('framework', job.framework)}"
        )
        hint = f"remove it, or use {job.says('framework', 'deepspeed')}"
        yield violation(job, f"/training/{key}", message, hint)


@jobs.rule(
    "ZERO088",
    ERROR,
    "silent",
    deepspeed_0_19_8(f"runtime/zero/partition_parameters.py:893; {_KERNEL}"),
)
def quantized_values_are_half(job: Job) -> Violations:
    """Gradients are quantized from fp16, and weights from fp16, or from bf16 since DeepSpeed
    0.19.6.
    Prevents: Values that are silently wrong: the kernels read the bits of other types as fp16.
    Fix: set training.precision to fp16, or remove quantized_gradients
    """
    precision = job.training.precision
    is_bf16 = precision in ("bf16", "fp8")  # DeepSpeed itself computes fp8 jobs in bf16
    converts_weights = is_bf16 and job.deepspeed_version >= FIRST_THAT_QUANTIZES_BF16
    for key in _quantized_keys(job):
        if precision == "fp16" or (key == "quantized_weights" and converts_weights):
            continue
        both = f"training.{job.says(key, True)} with {job.says('precision', precision)}"
        message = f"{both}: DeepSpeed {dots(job.deepspeed_version)} reads the bits as fp16"
        hint = f"use {job.says('precision', 'fp16')}, or remove {key}"
        yield violation(job, f"/training/{key}", message, hint)


def _narrow_states(job: Job) -> list[tuple[str, str]]:
    """The keys of state types that are set and not fp32, with their values."""
    types = [(key, getattr(job.training, key)) for key in ("moment_dtype", "master_dtype")]
    return [(key, dtype) for key, dtype in types if dtype not in (None, "fp32")]


@jobs.rule(
    "OPT042",
    ERROR,
    "silent",
    derived("only Megatron-LM's --use-precision-aware-optimizer sets them; FSDP2 has no masters"),
)
def framework_has_state_types(job: Job) -> Violations:
    """Optimizer states other than fp32 need Megatron-LM, 8-bit Adam of the Trainer, or FSDP2's pure
    bf16 (master_dtype: same).
    Prevents: No error: the optimizer's states would be fp32, and the job could run out of memory.
    Fix: remove moment_dtype and master_dtype, or use framework: megatron-lm"""
    for key, dtype in _narrow_states(job):
        is_pure_bf16 = dtype == "same"
        is_available = job.engine.shards_masters if is_pure_bf16 else job.engine.chooses_types
        if is_available:
            continue
        message = (
            f"{job.says(key, dtype)} is not available with {job.says('framework', job.framework)}"
        )
        remedy = job.says("framework", "megatron-lm")
        if is_pure_bf16:
            remedy = f"training.{job.says('sharding', 'fsdp2')} with framework: huggingface"
        hint = f"use {job.says(key, 'fp32')}, or {remedy}"
        yield violation(job, f"/training/{key}", message, hint)


@composed_jobs.rule(
    "OPT043",
    ERROR,
    "init",
    megatron_lm("core/optimizer/optimizer_config.py (use_precision_aware_optimizer)"),
)
def precision_aware_optimizer_is_adam(job: Job) -> Violations:
    """Optimizer states other than fp32 need Adam.
    Prevents: Megatron-LM stops at start on an assertion: its precision-aware optimizer is Adam
    only.
    Fix: set training.optimizer to adamw, or remove moment_dtype and master_dtype
    """
    for key, dtype in _narrow_states(job):
        optimizer = job.training.optimizer
        if optimizer in ("sgd", "muon"):
            message = (
                f"{job.says(key, dtype)} with {job.says('optimizer', optimizer)}: the "
                "optimizer has to be Adam"
            )
            hint = f"use {job.says('optimizer', 'adamw')}, or {job.says(key, 'fp32')}"
            yield violation(job, f"/training/{key}", message, hint)


@composed_jobs.rule(
    "PREC036",
    ERROR,
    "silent",
    "NVIDIA/TransformerEngine transformer_engine/common/recipe/__init__.py (fp8_dpa); "
    "NVIDIA/Megatron-LM megatron/core/fp8_utils.py:733-752 @ core_v0.19.0",
)
def attention_in_fp8_has_fp8(job: Job) -> Violations:
    """Attention in fp8 needs products in fp8, scaled by maxima or in blocks of 32, and a fused
    kernel.
    Prevents: No error: the recipe hands nothing to attention, which stays in 16 bits.
    Fix: set training.precision to fp8, and fp8_recipe to mxfp8, tensorwise or delayed
    """
    training = job.training
    if not training.fp8_attention:
        return
    wrong = list[tuple[str, str, str]]()  # key, value, and the value that it needs
    if training.precision != "fp8":
        wrong.append(("precision", training.precision, "fp8"))
    elif training.fp8_recipe == "blockwise":  # the one recipe without attention
        wrong.append(("fp8_recipe", "blockwise", "tensorwise"))
    if training.attention != "flash":
        wrong.append(("attention", training.attention, "flash"))
    for key, value, wanted in wrong:
        message = f"{job.says('fp8_attention', True)} with {job.says(key, value)} has no effect"
        hint = f"use {job.says(key, wanted)}, or remove fp8_attention"
        yield violation(job, "/training/fp8_attention", message, hint)


@jobs.rule("PREC031", ERROR, "silent", megatron_lm("training/arguments.py (--fp8-param-gather)"))
def fp8_parameters_need_fp8(job: Job) -> Violations:
    """Weights in 8 or 4 bits, and a recipe of fp8's scales, need Megatron-LM and products in as
    few.
    Prevents: The option has no effect without such products, or the framework has none: weights
    stay in 16 bits.
    Fix: set training.precision to fp8 with framework: megatron-lm, or remove fp8_parameters and
    fp8_recipe
    """
    training = job.training
    for key, setting, precisions in (
        ("fp8_parameters", training.fp8_parameters, ("fp8", "nvfp4")),
        ("fp8_recipe", training.fp8_recipe, ("fp8",)),
    ):
        if setting in (False, "delayed"):  # the defaults
            continue
        shown = job.says(key, setting)
        if not job.engine.chooses_types:
            message = f"{shown} with {job.says('framework', job.framework)} has no effect"
            hint = f"use {job.says('framework', 'megatron-lm')}, or remove {key}"
            yield violation(job, f"/training/{key}", message, hint)
        if training.precision not in precisions:
            message = f"{shown} with {job.says('precision', training.precision)} has no effect"
            hint = f"use {job.says('precision', 'fp8')}, or remove {key}"
            yield violation(job, f"/training/{key}", message, hint)


#: The first Megatron-Core with a buffer for weights in NVFP4.
FIRST_WITH_4BIT_WEIGHTS: Final = (0, 17)


@jobs.rule(
    "PREC037",
    ERROR,
    "init",
    "NVIDIA/Megatron-LM megatron/core/optimizer/distrib_optimizer.py:403-447 @ core_v0.19.0: a "
    "4-bit weight has no shard that the precision-aware optimizer could hold; "
    "core/distributed/param_and_grad_buffer.py @ core_v0.17.1, the first with a buffer for them",
)
def four_bit_weights_have_masters(job: Job) -> Violations:
    """Weights in 4 bits alone need Megatron-Core 0.17, and fp32 copies that the optimizer updates.
    Prevents: Earlier releases lay them into a buffer of 16 bits; with other copies the optimizer
    gets None for a weight.
    Fix: set megatron_version to 0.17.1 or later and remove master_dtype, or remove fp8_parameters
    """
    training = job.training
    if training.precision != "nvfp4" or not training.fp8_parameters:
        return
    weights = f"{job.says('fp8_parameters', True)} with {job.says('precision', 'nvfp4')}"
    if job.megatron_version < FIRST_WITH_4BIT_WEIGHTS:
        message = f"{weights} needs Megatron-LM 0.17.1, not {dots(job.megatron_version)}"
        hint = "use megatron_version 0.17.1 or later, or remove fp8_parameters"
        yield violation(job, "/training/fp8_parameters", message, hint)
    if training.master_dtype is not None:
        message = f"{weights} and {job.says('master_dtype', training.master_dtype)} is refused"
        hint = "remove master_dtype or fp8_parameters"
        yield violation(job, "/training/master_dtype", message, hint)


@jobs.rule("PREC035", ERROR, "silent", megatron_lm("transformer/transformer_config.py (fp4)"))
def nvfp4_needs_megatron_lm(job: Job) -> Violations:
    """Products in NVFP4 need Megatron-LM, which alone gets the options for them.
    Prevents: No error: the other files would have the job compute in 16 bits.
    Fix: set framework to megatron-lm, or training.precision to bf16"""
    if job.training.precision == "nvfp4" and not job.framework.computes_nvfp4:
        framework = job.says("framework", job.framework)
        message = f"{job.says('precision', 'nvfp4')} is not available with {framework}"
        hint = f"use {job.says('framework', 'megatron-lm')}, or {job.says('precision', 'bf16')}"
        yield violation(job, "/training/precision", message, hint)


@jobs.rule(
    "OPT044", ERROR, "init", derived("bitsandbytes' AdamW is the Trainer's --optim adamw_bnb_8bit")
)
def framework_has_8bit_adam(job: Job) -> Violations:
    """Adam in 8 bits needs the Hugging Face Trainer.
    Prevents: DeepSpeed stops at start: it has no optimizer of that name.
    Fix: set training.optimizer to adamw, or use framework: huggingface"""
    if job.training.optimizer == "adamw-8bit" and job.engine.scripted:
        message = (
            f"{job.says('optimizer', 'adamw-8bit')} is not available with "
            f"{job.says('framework', job.framework)}"
        )
        hint = f"use {job.says('optimizer', 'adamw')}, or {job.says('framework', 'huggingface')}"
        yield violation(job, "/training/optimizer", message, hint)


@jobs.rule("OPT047", ERROR, "init", derived("the files that are written have Muon with Megatron"))
def framework_has_muon(job: Job) -> Violations:
    """Muon is planned with Megatron-LM alone.
    Prevents: DeepSpeed's Muon needs a model whose parameters say which of them it takes; a Megatron
    without it stops at start.
    Fix: set training.optimizer to adamw, or use framework: megatron-lm"""
    if job.training.optimizer == "muon" and not job.engine.has_muon:
        message = (
            f"{job.says('optimizer', 'muon')} is not available with "
            f"{job.says('framework', job.framework)}"
        )
        hint = f"use {job.says('optimizer', 'adamw')}, or {job.says('framework', 'megatron-lm')}"
        yield violation(job, "/training/optimizer", message, hint)


@composed_jobs.rule(
    "OPT048", ERROR, "init", megatron_lm("core/optimizer/__init__.py:770 (fp16) @ core_v0.19.0")
)
def muon_takes_no_fp16(job: Job) -> Violations:
    """Muon runs in bf16, fp8 or fp32.
    Prevents: ValueError: emerging optimizer with fp16 is not supported.
    Fix: set training.precision to bf16"""
    if job.training.optimizer == "muon" and job.training.precision == "fp16":
        message = f"{job.says('optimizer', 'muon')} with {job.says('precision', 'fp16')} is refused"
        hint = f"use {job.says('precision', 'bf16')}, or {job.says('optimizer', 'adamw')}"
        yield violation(job, "/training/optimizer", message, hint)


@jobs.rule("BRG004", ERROR, "silent", derived("the mode decides which recipe and which files"))
def mode_suits_the_job(job: Job) -> Violations:
    """A mode is Megatron-Bridge's, and so are weights: sft and lora need a folder of them.
    Prevents: AssertionError: PEFT requires a pretrained checkpoint path; or the run trains from
    scratch, or all weights, where adapters were meant.
    Fix: set training.weights to a folder of Hugging Face weights, and mode: lora for adapters
    """
    training, mode = job.training, job.says("mode", job.training.mode)
    if not job.framework.recipes:
        # What a job without `mode` and `weights` has.
        default_mode = "pretrain" if training.lora is None else "lora"
        set_keys = ["mode"] if training.mode != default_mode else []
        if training.weights:
            set_keys.append("weights")
        for key in set_keys:
            message = f"training.{key} is not available with {job.says('framework', job.framework)}"
            hint = f"remove it, or use {job.says('framework', 'megatron-bridge')}"
            yield violation(job, f"/training/{key}", message, hint)
        return

    if training.mode != "pretrain" and training.weights is None:
        hint = "set training.weights to a folder of Hugging Face weights"
        yield violation(job, "/training/mode", f"{mode} has no weights to go on from", hint)
    elif training.mode == "pretrain" and training.weights is not None:
        message = f"{mode} begins from scratch, not from training.weights"
        hint = f"remove training.weights, or use {job.says('mode', 'sft')}"
        yield violation(job, "/training/weights", message, hint)
    if training.mode != "lora" and training.lora is not None:
        hint = f"remove training.lora, or use {job.says('mode', 'lora')}"
        yield violation(job, "/training/mode", f"{mode} with training.lora", hint)


@jobs.rule(
    "LORA001", ERROR, "silent", derived("adapters are peft's, which wraps models of transformers")
)
def lora_needs_the_trainer(job: Job) -> Violations:
    """LoRA is trained with the Hugging Face Trainer, or with Megatron-Bridge.
    Prevents: No error: other launch files have no adapters, and the whole model would be trained.
    Fix: set framework to huggingface or megatron-bridge, or remove training.lora"""
    if job.training.lora is not None and job.framework.adapters is None:
        message = f"training.lora is not available with {job.says('framework', job.framework)}"
        others = job.says("framework", "huggingface", "megatron-bridge")
        hint = f"use {others}, or remove training.lora"
        yield violation(job, "/training/lora", message, hint)


@adapted_jobs.rule(
    "LORA002", ERROR, "init", derived("peft's LoraConfig names modules by the model's own names")
)
def lora_needs_known_modules(job: Job) -> Violations:
    """A model for LoRA has linear layers named as in Llama: none fused, and no router, indexer or
    state space among them.
    Prevents: peft stops at start on names that the model lacks, or other layers than the estimated
    ones get adapters.
    Fix: use a model of a family with q_proj, k_proj, v_proj and o_proj, or remove training.lora
    """
    if job.training.lora is not None and not has_known_modules(job.model):
        message = (
            f"the linear layers of {job.model.name} ({job.model.family}) are not planned for LoRA"
        )
        hint = (
            "use a model whose layers are named as in Llama, such as llama, qwen3 or mistral, "
            "or remove training.lora"
        )
        yield violation(job, "/training/lora", message, hint)


_EXPERTS_ARE_TENSORS: Final = (
    "models/mixtral/modeling_mixtral.py, MixtralExperts: parameters of three dimensions"
)


@adapted_jobs.rule("LORA003", ERROR, "silent", transformers(_EXPERTS_ARE_TENSORS))
def lora_modules_exist(job: Job) -> Violations:
    """Every module with adapters is a linear layer of the model; routed experts are none.
    Prevents: No error: names that the model lacks get no adapter, unless none is left.
    Fix: name modules that the model has in training.lora.modules"""
    lora = job.training.lora
    if lora is None or lora.modules in ((ALL_LINEAR,), (ATTENTION,)):
        return
    if not has_known_modules(job.model):
        return
    kinds = job.model.stack.kinds
    names = list(dict.fromkeys(each.name for layer in kinds for each in layer.projections))
    missing = [name for name in lora.modules if name not in names]
    if missing:
        experts = ""
        if job.model.experts:
            experts = f", whose {job.model.experts} routed experts are no linear layers"
        message = f"{', '.join(missing)}: no linear layer of {job.model.name}{experts}"
        yield violation(
            job,
            "/training/lora/modules",
            message,
            f"use modules: [{', '.join(names)}], or some of these",
        )


@adapted_jobs.rule("LORA004", ERROR, "silent", transformers(_EXPERTS_ARE_TENSORS))
def four_bits_need_linear_layers(job: Job) -> Violations:
    """A base in 4 bits is a dense model.
    Prevents: No error: bitsandbytes quantizes linear layers only, the experts stay in 16 bits and
    fill the memory.
    Fix: set training.lora.base to unquantized
    """
    if job.training.lora is not None and job.training.lora.base == "4bit" and job.model.experts:
        message = (
            f"base: 4bit leaves the {job.model.experts} experts a layer of "
            f"{job.model.name} in 16 bits"
        )
        yield violation(job, "/training/lora/base", message, "use base: unquantized")


@adapted_jobs.rule(
    "LORA005", ERROR, "silent", derived("peft computes adapters in the weights' type")
)
def lora_has_no_fp8(job: Job) -> Violations:
    """LoRA is trained in bf16, fp16 or fp32, not in fp8.
    Prevents: No error: adapters and quantized layers replace the model's own layers, so that
    nothing computes in fp8.
    Fix: set training.precision to bf16
    """
    if job.training.lora is not None and job.training.is_narrow:
        said = job.says("precision", job.training.precision)
        message = f"training.lora with {said} computes in 16 bits"
        yield violation(job, "/training/precision", message, f"use {job.says('precision', 'bf16')}")


#: Jobs that FSDP2 shards, which gathers parameters unit by unit.
units_jobs: Final = jobs.where(lambda job: job.engine.sharding == "units")
#: The first release whose `--fsdp` is FSDP2.
FIRST_WITH_FSDP2: Final = (5, 10)
#: Optimizers of the Trainer's own that update parameters cut over ranks.
_TRAINER_OPTIMIZERS: Final = ("adamw", "adamw-8bit", "sgd")


@units_jobs.rule(
    "FSDP010", ERROR, "init", transformers("src/transformers/training_args.py:2826 (version)")
)
def trainer_has_fsdp2(job: Job) -> Violations:
    """FSDP2 by the Trainer's arguments needs transformers 5.10 or later.
    Prevents: The Trainer's parser refuses --fsdp without a value, or FSDP1 runs: it is the default
    of earlier releases.
    Fix: set transformers_version to 5.10 or later, or training.sharding to deepspeed
    """
    if job.transformers_version < FIRST_WITH_FSDP2:
        version = dots(job.transformers_version)
        message = f"{job.says('sharding', 'fsdp2')} is not available with transformers {version}"
        hint = f"use transformers 5.10 or later, or {job.says('sharding', 'deepspeed')}"
        yield violation(job, "/training/sharding", message, hint)


@units_jobs.rule(
    "FSDP011", ERROR, "init", transformers("src/transformers/training_args.py (OptimizerNames)")
)
def trainer_has_optimizer(job: Job) -> Violations:
    """With FSDP2 the optimizer is one of the Trainer's own: adamw, adamw-8bit or sgd.
    Prevents: The Trainer has no optimizer of that name; others are DeepSpeed's.
    Fix: set training.optimizer to adamw, or training.sharding to deepspeed"""
    optimizer = job.training.optimizer
    if optimizer not in _TRAINER_OPTIMIZERS:
        message = (
            f"{job.says('optimizer', optimizer)} is not available with "
            f"{job.says('sharding', 'fsdp2')}"
        )
        optimizers = job.says("optimizer", *_TRAINER_OPTIMIZERS)
        hint = f"use {optimizers}, or {job.says('sharding', 'deepspeed')}"
        yield violation(job, "/training/optimizer", message, hint)


@units_jobs.rule(
    "FSDP013", ERROR, "training", torch("distributed/fsdp/_fully_shard/_fsdp_state.py:223 (2.13)")
)
def units_share_no_weights(job: Job) -> Violations:
    """Layers that FSDP2 shards share no weights with one another.
    Prevents: ValueError: Parameter is shared with a parameter already managed by another FSDP
    group, in the first forward pass.
    Fix: set training.sharding to deepspeed"""
    if any(layer.borrowed for layer in job.model.stack.kinds):
        said = job.says("sharding", "fsdp2")
        message = (
            f"{job.model.name} has layers that share weights, and {said} shards each by itself"
        )
        yield violation(
            job, "/training/sharding", message, f"use {job.says('sharding', 'deepspeed')}"
        )


@units_jobs.rule(
    "FSDP012", ERROR, "silent", accelerate("utils/fsdp_utils.py:813 (fsdp2_prepare_model)")
)
def pure_bf16_is_bf16(job: Job) -> Violations:
    """Training without fp32 weights (master_dtype: same) is bf16's, of all weights.
    Prevents: fp16 without a scaler of the loss has gradients that are zero; peft makes adapters in
    fp32 whatever the model's type.
    Fix: set training.precision to bf16, and remove training.lora, or remove master_dtype
    """
    training = job.training
    if training.master_dtype != "same":
        return
    without_masters = job.says("master_dtype", "same")
    with_masters = job.says("master_dtype", "fp32")
    if training.precision != "bf16":
        message = f"{without_masters} with {job.says('precision', training.precision)}"
        hint = f"use {job.says('precision', 'bf16')}, or {with_masters}"
        yield violation(job, "/training/master_dtype", message, hint)
    elif training.lora is not None:
        message = f"{without_masters} with training.lora, whose adapters are fp32"
        yield violation(job, "/training/master_dtype", message, f"use {with_masters}")
