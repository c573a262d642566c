"""Every rule on documents, in two tuples: those of files, and with them those of jobs and layouts, which need numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from . import across
from .azureml import (
    command as azureml_command,
)
from .azureml import (
    files as azureml_files,
)
from .azureml import (
    loading as azureml,
)
from .azureml import (
    processes as azureml_processes,
)
from .azureml import (
    service as azureml_service,
)
from .deepspeed import (
    accumulation as ds_accumulation,
)
from .deepspeed import (
    activation as ds_activation,
)
from .deepspeed import (
    auto as ds_auto,
)
from .deepspeed import (
    autocast as ds_autocast,
)
from .deepspeed import (
    batch as ds_batch,
)
from .deepspeed import (
    choices as ds_choices,
)
from .deepspeed import (
    compile as ds_compile,
)
from .deepspeed import (
    compression as ds_compression,
)
from .deepspeed import (
    cycles as ds_cycles,
)
from .deepspeed import (
    data as ds_data,
)
from .deepspeed import (
    data_types as ds_data_types,
)
from .deepspeed import (
    elastic as ds_elastic,
)
from .deepspeed import (
    experts as ds_experts,
)
from .deepspeed import (
    nvme as ds_nvme,
)
from .deepspeed import (
    offload as ds_offload,
)
from .deepspeed import (
    one_bit as ds_one_bit,
)
from .deepspeed import (
    optimizer as ds_optimizer,
)
from .deepspeed import (
    optimizer_params as ds_optimizer_params,
)
from .deepspeed import (
    parallel as ds_parallel,
)
from .deepspeed import (
    parse as ds_parse,
)
from .deepspeed import (
    precision as ds_precision,
)
from .deepspeed import (
    relations as ds_relations,
)
from .deepspeed import (
    removed as ds_removed,
)
from .deepspeed import (
    running as ds_running,
)
from .deepspeed import (
    scheduler as ds_scheduler,
)
from .deepspeed import (
    sequence as ds_sequence,
)
from .deepspeed import (
    types as ds_types,
)
from .deepspeed import (
    warmup as ds_warmup,
)
from .deepspeed import (
    zenflow as ds_zenflow,
)
from .deepspeed import (
    zero as ds_zero,
)
from .deepspeed import (
    zero_advice as ds_zero_advice,
)
from .deepspeed import (
    zero_limits as ds_zero_limits,
)
from .deepspeed import (
    zeropp as ds_zeropp,
)
from .huggingface import (
    accelerate,
    accelerate_deepspeed,
    accelerate_launch,
    accelerate_machines,
)
from .huggingface import (
    arguments as huggingface_arguments,
)
from .huggingface import (
    configs as huggingface,
)
from .huggingface import (
    job as huggingface_job,
)
from .huggingface import (
    match as huggingface_match,
)
from .huggingface import (
    schedule as huggingface_schedule,
)
from .launching import environment, hostfiles, launch_lines, launch_ranks, launch_torchrun, launchers, nccl
from .megatron import (
    batch as megatron_batch,
)
from .megatron import (
    config as megatron_config,
)
from .megatron import (
    environment as megatron_environment,
)
from .megatron import (
    experts as megatron_experts,
)
from .megatron import (
    megatron_deepspeed,
    megatron_lm,
    memory_places,
)
from .megatron import (
    memory as megatron_memory,
)
from .megatron import (
    options as megatron_options,
)
from .megatron import (
    shape as megatron_shape,
)
from .megatron import (
    stages as megatron_stages,
)
from .rule import DocumentRule
from .slurm import (
    choices as slurm_choices,
)
from .slurm import (
    directives as slurm_directives,
)
from .slurm import (
    files as slurm_files,
)
from .slurm import (
    gpus as slurm_gpus,
)
from .slurm import (
    nodes as slurm_nodes,
)
from .slurm import (
    options as slurm,
)
from .slurm import (
    resources as slurm_resources,
)
from .slurm import (
    script as slurm_script,
)
from .slurm import (
    steps as slurm_steps,
)
from .slurm import (
    text as slurm_text,
)
from .slurm import (
    variables as slurm_variables,
)

#: Every rule but those on jobs, layouts and memory, which `as_job` and `fits` apply to launch scripts and configs.
FILE_RULES: Final[tuple[DocumentRule, ...]] = (
    *ds_parse.RULES,
    *ds_types.RULES,
    *ds_auto.RULES,
    *ds_batch.RULES,
    *ds_removed.RULES,
    *ds_relations.RULES,
    *ds_choices.RULES,
    *ds_elastic.RULES,
    *ds_compression.RULES,
    *ds_precision.RULES,
    *ds_zero.RULES,
    *ds_one_bit.RULES,
    *ds_optimizer.RULES,
    *ds_parallel.RULES,
    *ds_activation.RULES,
    *ds_nvme.RULES,
    *ds_data_types.RULES,
    *ds_warmup.RULES,
    *ds_zero_advice.RULES,
    *ds_accumulation.RULES,
    *ds_autocast.RULES,
    *ds_compile.RULES,
    *ds_cycles.RULES,
    *ds_data.RULES,
    *ds_experts.RULES,
    *ds_offload.RULES,
    *ds_optimizer_params.RULES,
    *ds_running.RULES,
    *ds_scheduler.RULES,
    *ds_sequence.RULES,
    *ds_zenflow.RULES,
    *ds_zero_limits.RULES,
    *ds_zeropp.RULES,
    *launchers.RULES,
    *memory_places.RULES,
    *launch_torchrun.RULES,
    *launch_ranks.RULES,
    *launch_lines.RULES,
    *hostfiles.RULES,
    *environment.RULES,
    *nccl.RULES,
    *slurm.RULES,
    *slurm_choices.RULES,
    *slurm_directives.RULES,
    *slurm_files.RULES,
    *slurm_gpus.RULES,
    *slurm_nodes.RULES,
    *slurm_resources.RULES,
    *slurm_script.RULES,
    *slurm_steps.RULES,
    *slurm_text.RULES,
    *slurm_variables.RULES,
    *azureml.RULES,
    *azureml_service.RULES,
    *azureml_files.RULES,
    *azureml_processes.RULES,
    *azureml_command.RULES,
    *huggingface_match.RULES,
    *huggingface.RULES,
    *huggingface_arguments.RULES,
    *huggingface_schedule.RULES,
    *huggingface_job.RULES,
    *accelerate.RULES,
    *accelerate_deepspeed.RULES,
    *accelerate_launch.RULES,
    *accelerate_machines.RULES,
    *megatron_options.RULES,
    *megatron_shape.RULES,
    *megatron_stages.RULES,
    *megatron_batch.RULES,
    *megatron_lm.RULES,
    *megatron_memory.RULES,
    *megatron_experts.RULES,
    *megatron_environment.RULES,
    *megatron_deepspeed.RULES,
    *megatron_config.RULES,
    *across.RULES,
)

if TYPE_CHECKING:
    DOCUMENT_RULES: tuple[DocumentRule, ...]


def __getattr__(name: str) -> Any:
    """`DOCUMENT_RULES`, every rule, when it is asked for: the rules on layouts need numpy."""
    if name != "DOCUMENT_RULES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .megatron import as_job, fits

    globals()[name] = (*FILE_RULES, *as_job.RULES, *fits.RULES)
    return globals()[name]
