"""Kubernetes jobs and SkyPilot tasks: which files are read, and the command of their nodes with
places in the file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dsgen
from dsgen.check.read import Reading, read_documents
from dsgen.programs.kubernetes.job import KubernetesJob
from dsgen.programs.skypilot.read import SkyPilotTask
from tests.case import BASES

JOB = (BASES / "pytorchjob.yaml").read_text()
TASK = (BASES / "skypilot.yaml").read_text()
OTHERS = {
    "a deployment": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: "
    "a}\nspec: {replicas: 2}\n",
    "a RayJob without GPUs": "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\nspec: "
    "{entrypoint: python train.py}\n",
    "a Volcano job": "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: "
    "{name: a}\nspec: {}\n",
    "Helm's template": JOB.replace("name: train", "name: {{ .Values.name }}"),
    "Helm's block": JOB.replace("  nprocPerNode", "  {{- if .Values.n }}\n  nprocPerNode"),
    "another version": JOB.replace("kubeflow.org/v1", "kubeflow.org/v1beta2"),
    "steps of another service": "resources: {cpu: 2}\nsetup: pip install x\nrun: python a.py\n",
}


#: A pod with GPUs that runs a command, and objects of each kind around such pods, with what is
#: read of them: pods, GPUs of each.
POD = """{containers: [{name: pytorch, image: i, command: [bash, -c, "python train.py"],
  resources: {limits: {nvidia.com/gpu: 8}}}]}"""
CPU = "{containers: [{name: head, image: i, command: [mpirun, -np, '16', python, train.py]}]}"
KINDS = {
    "MPIJob": (
        "kubeflow.org/v2beta1",
        "{slotsPerWorker: 8, mpiReplicaSpecs: {Launcher: {template: {spec: CPU}}, "
        "Worker: {replicas: 2, template: {spec: POD}}}}",
        2,
    ),
    "RayJob": (
        "ray.io/v1",
        "{entrypoint: python train.py, rayClusterSpec: {headGroupSpec: {template: {spec: CPU}}, "
        "workerGroupSpecs: [{groupName: gpus, replicas: 4, template: {spec: POD}}]}}",
        4,
    ),
    "RayCluster": (
        "ray.io/v1",
        "{headGroupSpec: {template: {spec: CPU}}, "
        "workerGroupSpecs: [{groupName: gpus, replicas: 4, template: {spec: POD}}]}",
        4,
    ),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        "{leaderWorkerTemplate: {size: 2, workerTemplate: {spec: POD}}}",
        None,
    ),
    "Job": (
        "batch.volcano.sh/v1alpha1",
        "{plugins: {pytorch: []}, tasks: [{name: master, replicas: 1, template: {spec: POD}}, "
        "{name: worker, replicas: 3, template: {spec: POD}}]}",
        4,
    ),
    "HyperPodPyTorchJob": (
        "sagemaker.amazonaws.com/v1",
        '{nprocPerNode: "8", replicaSpecs: [{name: pods, replicas: 2, template: {spec: POD}}]}',
        2,
    ),
    "ElasticJob": (
        "elastic.pytorch.org/v1alpha1",
        "{rdzvEndpoint: 'etcd:2379', minReplicas: 1, maxReplicas: 4, "
        "replicaSpecs: {Worker: {replicas: 2, template: {spec: POD}}}}",
        2,
    ),
    "ClusterTrainingRuntime": (
        "trainer.kubeflow.org/v1alpha1",
        "{template: {spec: {replicatedJobs: [{name: node, template: {spec: {parallelism: 2, "
        "template: {spec: POD}}}}]}}}",
        2,
    ),
}


def object_of(kind: str) -> str:
    """An object of a kind, as YAML in one line."""
    version, spec, _ = KINDS[kind]
    pods = spec.replace("POD", " ".join(POD.split())).replace("CPU", CPU)
    return f"{{apiVersion: {version}, kind: {kind}, metadata: {{name: a}}, spec: {pods}}}"


def in_block(kind: str) -> str:
    """The same with its first keys on lines of their own."""
    version, spec, _ = KINDS[kind]
    pods = spec.replace("POD", " ".join(POD.split())).replace("CPU", CPU)
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec:\n  {pods}\n"


HOLDERS = {
    "List": "apiVersion: v1\nkind: List\nitems:\n- {}\n",
    "AppWrapper": (
        "apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper\nmetadata: {{name: w}}\n"
        "spec:\n  components:\n  - template: {}\n"
    ),
}


def read(folder: Path, content: str) -> Reading:
    """What is read of a folder with this YAML file."""
    (folder / "job.yaml").write_text(content)
    return read_documents([folder])


def job_of(folder: Path, content: str) -> KubernetesJob:
    """The only job of a text."""
    (job,) = [one for one in read(folder, content).documents if isinstance(one, KubernetesJob)]
    return job


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_no_training_job_is_left_alone(what: str, tmp_path: Path) -> None:
    """Other resources, other versions and texts that a program makes YAML of are no documents."""
    assert read(tmp_path, OTHERS[what]).documents == []


def test_a_job_among_other_resources_is_read_with_its_places(tmp_path: Path) -> None:
    """Of several documents in a file the job is read, and its lines count as the file's do."""
    before = OTHERS["a deployment"] + "---  # the job\n"
    job = job_of(tmp_path, before + JOB + "---\nkind: Service\n")
    (launch,) = job.launches
    line = launch.script.locate(launch.calls[0].word).line
    assert (before + JOB).splitlines()[(line or 0) - 1].strip().startswith("command: [torchrun")
    assert (job.nodes, job.gpus) == (4, 8)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ('[torchrun, train.py, --a, "b c", "; x"]', ["--a", "b c", "; x"]),
        ("[/bin/bash, -c, 'cd /a && torchrun train.py --a \"b c\"']", ["--a", "b c"]),
        ("[sh, -ec]\n              args: [\"exec torchrun train.py --a 'b c'\"]", ["--a", "b c"]),
        ("[torchrun]\n              args: [train.py, '--a=$(DIR)/x']", ["--a=/data/x"]),
        (
            "[bash, -c, 'N=$$((1)); exec torchrun \"$@\"', bash, train.py, --a, 'b; c']",
            ["--a", "b; c"],
        ),
        ("[torchrun, train.py, '--a=$NODES']", [None]),
    ],
)
def test_the_command_is_what_the_container_starts(
    command: str, arguments: list[str | None], tmp_path: Path
) -> None:
    """Words are words, a shell's script is a script; variables of the container are known, others
    are not.
    """
    content = JOB.replace('[torchrun, train.py, --epochs, "3"]', command)
    content = content.replace(
        "- name: NCCL_DEBUG\n                  value: WARN",
        "- name: DIR\n                  value: /data",
    )
    (launch,) = job_of(tmp_path, content).launches
    assert launch.program is not None and launch.program.value == "train.py"
    assert [word.value for word in launch.arguments] == arguments


def test_the_environment_is_the_containers_and_the_controllers(tmp_path: Path) -> None:
    """Literal values are known; what the controller sets, or a secret has, is set to what can't be
    known.
    """
    secret = (
        "- {name: KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}\n               "
        " - name: NCCL_DEBUG"
    )
    (launch,) = job_of(tmp_path, JOB.replace("- name: NCCL_DEBUG", secret)).launches
    values = {name: assignment.value for name, assignment in launch.environment.items()}
    assert (values["NCCL_DEBUG"], values["KEY"], values["PET_NNODES"], values["MASTER_ADDR"]) == (
        "WARN",
        *[None] * 3,
    )
    workers = JOB.partition("    Worker:")[0].replace("    Master:", "    Worker:")
    (launch,) = job_of(tmp_path, workers).launches
    assert "PET_NNODES" in launch.environment and "PET_MASTER_ADDR" not in launch.environment


def test_pods_that_may_change_in_number_are_not_counted(tmp_path: Path) -> None:
    """An elastic job with two bounds has a number of nodes that can't be known."""
    elastic = "  elasticPolicy: {minReplicas: 1, maxReplicas: 8}\n  nprocPerNode"
    assert job_of(tmp_path, JOB.replace("  nprocPerNode", elastic)).nodes is None


@pytest.mark.parametrize(
    ("accelerators", "gpus"),
    [
        ("H100:8", 8),
        ("A100", 1),
        ("{H100: 4}", 4),
        ("{V100:1, A100:1}", None),
        ("[H100:8, A100:8]", None),
        ("$GPU:8", 8),
    ],
)
def test_a_task_is_read_with_its_nodes(accelerators: str, gpus: int | None, tmp_path: Path) -> None:
    """A task has its nodes, and the GPUs of each where there is no choice of them."""
    reading = read(tmp_path, TASK.replace("H100:8", accelerators))
    (task,) = [one for one in reading.documents if isinstance(one, SkyPilotTask)]
    (launch,) = task.launches
    assert (task.nodes, task.gpus, launch.script.locate(launch.calls[0].word).line) == (4, gpus, 11)
    assert {"NCCL_DEBUG", "SKYPILOT_NODE_RANK"} <= set(launch.environment)


def test_every_task_of_a_pipeline_is_read(tmp_path: Path) -> None:
    """A file of several tasks has them one by one; its header, which runs nothing, is no task."""
    reading = read(tmp_path, f"name: all\nexecution: parallel\n---\n{TASK}---\n{TASK}")
    assert [type(one) for one in reading.documents] == [SkyPilotTask, SkyPilotTask]
    assert reading.findings == []


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("kubernetes", {"kind": "PyTorchJob", "image": "a:1", "volumes": ["v:/out"]}),
        ("kubernetes", {"kind": "TrainJob", "image": "a:1", "volumes": ["v:/out"]}),
        ("kubernetes", {"kind": "JobSet", "image": "a:1", "volumes": ["v:/out"]}),
        ("skypilot", {"buckets": ["s3://b:/out"]}),
    ],
)
def test_a_config_within_the_job_is_compared_with_the_arguments(
    target: str, options: dict[str, object], tmp_path: Path
) -> None:
    """The DeepSpeed config of a ConfigMap, or of a here-document, is judged as a file is, at its
    place.
    """
    launch = {"target": target, "script": "/opt/train.py", target: options}
    job: dict[str, object] = {
        "framework": "huggingface",
        "model": "qwen2.5-0.5b",
        "cluster": "dgx-h100",
        "nodes": 2,
    }
    job |= {
        "training": {"sequence_length": 2048, "global_batch": 64},
        "output": {"checkpoints": "/out"},
    }
    made = dsgen.search(
        dsgen.load_job({**job, "data": {"path": "a.json"}, "launch": launch}), top=1
    )
    (text,) = [one.text for one in dsgen.render(made.plans[0]) if one.path.endswith(".yaml")]
    assert [*read(tmp_path, text).findings] == []
    assert [one.rule for one in dsgen.validate(tmp_path) if one.severity.value != "note"] == []
    (tmp_path / "job.yaml").write_text(re.sub(r'"lr": [\d.e-]+', '"lr": 0.5', text))
    (found,) = [one for one in dsgen.validate(tmp_path) if one.rule == "HF001"]
    lines = (tmp_path / "job.yaml").read_text().splitlines()
    assert lines[(found.where.line or 0) - 1][(found.where.column or 0) - 1 :] == "0.5,"


_MAP = """kind: ConfigMap
apiVersion: v1
metadata: {name: a}
data:
  ds.json: '{"train_micro_batch_size_per_gpu": 2}'
---
"""
_MOUNTING = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: t}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
          - name: pytorch
            image: i
            command: [torchrun, --nproc-per-node=8, train.py, --deepspeed, /etc/b/ds.json,
                      --output_dir, o, --per_device_train_batch_size, "4"]
            resources: {limits: {nvidia.com/gpu: 8}}
            volumeMounts: [MOUNT]
          - {name: sidecar, image: j, volumeMounts: [{name: a, mountPath: /etc/b}]}
          volumes: [VOLUME, {name: a, configMap: {name: a}},
                    {name: b, persistentVolumeClaim: {claimName: b}}]
    Worker:
      replicas: 1
      template:
        spec:
          containers: [{name: pytorch, image: i, volumeMounts: [{name: b, mountPath: /etc/b}]}]
          volumes: [{name: b, configMap: {name: a}}]
"""
_OF_MAP = "{name: c, configMap: {name: a}}"


@pytest.mark.parametrize(
    ("mount", "volume", "compared"),
    [
        pytest.param("{name: c, mountPath: /etc/b}", _OF_MAP, True, id="its folder"),
        pytest.param(
            "{name: c, mountPath: /etc/b/ds.json, subPath: ds.json}",
            _OF_MAP,
            True,
            id="the file alone",
        ),
        pytest.param("{name: c, mountPath: /etc/other}", _OF_MAP, False, id="another folder"),
        pytest.param(
            "{name: b, mountPath: /etc/b}",
            _OF_MAP,
            False,
            id="a claim, beside a container with the map",
        ),
        pytest.param(
            "{name: c, mountPath: /etc/b}",
            "{name: c, configMap: {name: a, items: [{key: ds.json, path: other.json}]}}",
            False,
            id="the file by another name",
        ),
    ],
)
def test_a_mounted_config_is_that_of_its_path(
    mount: str, volume: str, compared: bool, tmp_path: Path
) -> None:
    """Arguments are compared with the file that the container which trains mounts at the path that
    they name.
    """
    text = _MAP + _MOUNTING.replace("MOUNT", mount).replace("VOLUME", volume)
    (tmp_path / "job.yaml").write_text(text)
    assert ("HF001" in {one.rule for one in dsgen.validate(tmp_path)}) == compared


def test_names_of_volumes_may_be_anything(tmp_path: Path) -> None:
    """No rule fails where the name of a mount or a volume is no text."""
    text = _MOUNTING.replace("MOUNT", "{name: [c], mountPath: /etc/c}")
    (tmp_path / "job.yaml").write_text(text.replace("VOLUME", "{name: {d: e}, emptyDir: {}}"))
    assert "DSG001" not in {one.rule for one in dsgen.validate(tmp_path)}


@pytest.mark.parametrize("kind", KINDS)
def test_pods_of_every_kind_are_read(kind: str, tmp_path: Path) -> None:
    """Of each kind the pods, their GPUs and the command that trains are read."""
    job = job_of(tmp_path, in_block(kind))
    assert (job.nodes, job.gpus) == (KINDS[kind][2], 8)
    if kind != "RayCluster":  # whose pods start Ray, which is told to train later
        (launch,) = job.launches
        assert launch.calls[-1].program == "python"
    assert {finding.rule for finding in dsgen.validate(tmp_path)} <= {"KUB014"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_objects_in_objects_are_read(holder: str, kind: str, tmp_path: Path) -> None:
    """An object that a List or an AppWrapper holds is read as one that stands alone, with its
    places in the file.
    """
    alone = job_of(tmp_path, in_block(kind))
    held = job_of(tmp_path, HOLDERS[holder].format(object_of(kind)))
    assert (held.nodes, held.gpus) == (alone.nodes, alone.gpus)
    assert len(held.launches) == len(alone.launches)
    place = held.locate("metadata/name")
    assert place.pointer.endswith("/metadata/name") and place.pointer != "/metadata/name"


def test_a_training_without_gpus_is_read_in_an_object(tmp_path: Path) -> None:
    """A kind that always trains is read within an AppWrapper too, whatever it asks for."""
    pod = "{containers: [{name: pytorch, image: i, command: [python, train.py]}]}"
    spec = f"{{pytorchReplicaSpecs: {{Master: {{replicas: 2, template: {{spec: {pod}}}}}}}}}"
    job = f"{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {{name: a}}, spec: {spec}}}"
    assert job_of(tmp_path, HOLDERS["AppWrapper"].format(job)).nodes == 2


def test_a_job_in_a_list_is_held_against_its_definition(tmp_path: Path) -> None:
    """A key that a PyTorchJob doesn't have is found in a List, too, at its line."""
    lines = JOB.replace("nprocPerNode", "nprocPerNod").splitlines()
    (tmp_path / "job.yaml").write_text(
        "\n".join(["apiVersion: v1", "kind: List", "items:", f"- {lines[0]}"])
        + "".join(f"\n  {line}" for line in lines[1:])
        + "\n"
    )
    (finding,) = [one for one in dsgen.validate(tmp_path) if one.rule == "KUB001"]
    assert finding.where.line == 4 + next(
        n for n, line in enumerate(lines) if "nprocPerNod" in line
    )
