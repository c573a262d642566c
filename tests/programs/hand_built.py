"""Plans and programs built by hand, so that the launchers' tests need neither loader nor search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dsgen.catalog.model import Model, model_of
from dsgen.estimate.layout import Layout
from dsgen.estimate.ledgers import Memory, StepTime, Throughput
from dsgen.job.records import Cluster, Job, JobLaunch, Origin, Output, Pins
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.programs.program import ArgumentGroup, ConfigPath, Program, RenderedFile
from dsgen.search.plan import Choice, Plan
from tests.jobs import NO_UNCERTAINTY
from tests.rules.jobs import A100, CLUSTER, SIZES, TRAINING

HOSTILE = (
    "$(rm -rf ~)",
    "`touch owned`",
    'it\'s "quoted" \\ twice\\',
    "two  spaces",
    "",
    "line\nbreak",
    "$HOME ${HOME} $'x'",
    "*",
    "~",
    "héllo ☃ %n %h 100%",
    "!history",
    "; exit 3 #",
    "${{inputs.ds_config}}",
    "-1",
    "{{ jinja }}",
)  #: strings that a careless launcher would run, expand, split or drop


def cluster(
    *, gpus_per_node: int = 8, cpu_cores: int | None = 96, vendor: str = "nvidia"
) -> Cluster:
    """An Azure ND A100 v4 cluster, or one of its shape."""
    return replace(
        CLUSTER,
        name="azure/standard_nd96amsr_a100_v4",
        provider="azure",
        accelerator=replace(A100, vendor=vendor),
        accelerators_per_node=gpus_per_node,
        link_domain=gpus_per_node,
        cpu_cores=cpu_cores,
    )


def model() -> Model:
    """A small GPT."""
    sizes = {
        "layers": 2,
        "hidden": 64,
        "heads": 4,
        "kv_heads": 4,
        "head_dim": 16,
        "ffn": 256,
        "vocab": 512,
    }
    return model_of(**{**SIZES, **sizes, "name": "tiny", "max_positions": 128})


def plan(
    target: str,
    *,
    gpus: int = 1024,
    name: str = "gpt3-175b",
    script: str = "train.py",
    gpus_per_node: int = 8,
    cpu_cores: int | None = 96,
    environment: Mapping[str, str] | None = None,
    time_limit_s: int | None = 48 * 3600,
    options: Mapping[str, object] | None = None,
    arguments: tuple[str, ...] = (),
    framework: str = "deepspeed",
    steps: int | None = None,
    output: Output | None = None,
    vendor: str = "nvidia",
) -> Plan:
    """A plan whose figures are zero, and its times a second: launchers read the job and the layout
    only.
    """
    job = Job(
        name=name,
        framework=FRAMEWORKS[framework],
        deepspeed_version=(0, 19, 8),
        model=model(),
        cluster=cluster(gpus_per_node=gpus_per_node, cpu_cores=cpu_cores, vendor=vendor),
        gpus=gpus,
        training=replace(
            TRAINING,
            sequence_length=128,
            global_batch=gpus,
            duration_tokens=None if steps is None else float(steps * gpus * 128),
        ),
        pins=Pins(),
        headroom=0.08,
        launch=JobLaunch(
            target=target,
            script=script,
            arguments=arguments,
            environment=environment or {},
            time_limit_s=time_limit_s,
            options=options or {},
        ),
        origin=Origin(path="dsgen.yaml"),
        output=output or Output(),
    )
    return Plan(
        job=job,
        layout=Layout(data=gpus),
        memory=Memory(**dict.fromkeys(Memory.__dataclass_fields__, 0)),
        step_time=StepTime(**dict.fromkeys(StepTime.__dataclass_fields__, 1.0)),
        throughput=Throughput(**dict.fromkeys(Throughput.__dataclass_fields__, 0.0)),
        uncertainty=NO_UNCERTAINTY,
        choice=Choice(decides_s=0.0, fits=True, out_of_memory_chance=0.0, evidence="none"),
    )


def program(script: str = "train.py", hostile: tuple[str, ...] = HOSTILE) -> Program:
    """A DeepSpeed program; the user's arguments, `hostile`, follow `--data`."""
    return Program(
        script=script,
        groups=(
            ArgumentGroup(
                comment="Configuration.",
                arguments=("--deepspeed_config", ConfigPath("ds_config.json")),
            ),
            ArgumentGroup(comment="Model\n$(rm -rf ~)", arguments=("--layers", "2", "--flag")),
            ArgumentGroup(comment="Yours.", arguments=("--data", *hostile)),
        ),
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        files=(RenderedFile(path="ds_config.json", text="{}\n"),),
        notes=("The batch triple counts replicas.\nrm -rf / # not a command",),
    )


def expected_arguments(config: str, hostile: tuple[str, ...] = HOSTILE) -> list[str]:
    """What the script of `program` must see after its own name."""
    return ["--deepspeed_config", config, "--layers", "2", "--flag", "--data", *hostile]


def without_files(value: Program) -> Program:
    """The same program with no configuration files."""
    groups = tuple(
        g for g in value.groups if not any(isinstance(a, ConfigPath) for a in g.arguments)
    )
    return replace(value, files=(), groups=groups)
