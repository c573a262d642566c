"""Plans and programs built by hand, so that the launchers' tests need neither loader nor search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dsgen.catalog.records import Accelerator, Model
from dsgen.estimate.layout import Layout
from dsgen.estimate.ledgers import Memory, StepTime, Throughput
from dsgen.job.records import Cluster, Job, Launch, Origin, Output, Pins, Training
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.programs.program import ArgumentGroup, ConfigPath, Program, RenderedFile
from dsgen.search.plan import Plan
from tests.jobs import NO_UNCERTAINTY

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

A100 = Accelerator(
    name="a100-80gb-sxm",
    vendor="nvidia",
    generation="ampere",
    memory_bytes=80e9,
    memory_bytes_per_s=2e12,
    flops_per_s={"bf16": 312e12},
    achievable_fraction=None,
    link_bytes_per_s=300e9,
    pcie_bytes_per_s=32e9,
    source="by hand",
)


def cluster(*, gpus_per_node: int = 8, cpu_cores: int | None = 96, vendor: str = "nvidia") -> Cluster:
    """An Azure ND A100 v4 cluster, or one of its shape."""
    return Cluster(
        name="azure/standard_nd96amsr_a100_v4",
        provider="azure",
        accelerator=replace(A100, vendor=vendor),
        accelerators_per_node=gpus_per_node,
        intra_node="nvswitch",
        link_domain=8,
        network="infiniband",
        network_bytes_per_s_per_node=200e9,
        host_memory_bytes=1900 * 2**30,
        cpu_cores=cpu_cores,
        local_nvme_bytes=None,
        price_per_node_hour=None,
        source="by hand",
    )


def model() -> Model:
    """A small GPT."""
    return Model(
        name="tiny",
        family="gpt2",
        layers=2,
        hidden=64,
        heads=4,
        kv_heads=4,
        head_dim=16,
        ffn=256,
        vocab=512,
        max_positions=128,
        gated_mlp=False,
        tied_embeddings=True,
        position_embedding="learned",
        source="by hand",
    )


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
    """A plan whose figures are zero, and its times a second: launchers read the job and the layout only."""
    job = Job(
        name=name,
        framework=FRAMEWORKS[framework],
        deepspeed_version=(0, 19, 8),
        model=model(),
        cluster=cluster(gpus_per_node=gpus_per_node, cpu_cores=cpu_cores, vendor=vendor),
        gpus=gpus,
        training=Training(
            sequence_length=128,
            global_batch=gpus,
            precision="bf16",
            optimizer="adamw",
            attention="flash",
            duration_tokens=None if steps is None else float(steps * gpus * 128),
            learning_rate=1e-4,
            weight_decay=0.1,
            gradient_clipping=1.0,
        ),
        pins=Pins(),
        headroom=0.08,
        launch=Launch(
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
    )


def program(script: str = "train.py", hostile: tuple[str, ...] = HOSTILE) -> Program:
    """A DeepSpeed program; the user's arguments, `hostile`, follow `--data`."""
    return Program(
        script=script,
        groups=(
            ArgumentGroup(comment="Configuration.", arguments=("--deepspeed_config", ConfigPath("ds_config.json"))),
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
    groups = tuple(g for g in value.groups if not any(isinstance(a, ConfigPath) for a in g.arguments))
    return replace(value, files=(), groups=groups)
