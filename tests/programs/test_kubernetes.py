"""The Kubernetes launcher, against the schemas that the controllers' projects publish."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsgen import load_job, search
from dsgen.job.records import Output
from dsgen.programs.launchers import LAUNCHERS, launch_files
from dsgen.programs.program import Resume
from dsgen.render import render
from tests.jobs import job
from tests.programs.cluster_schemas import validator
from tests.programs.hand_built import HOSTILE, expected_arguments, plan, program, without_files
from tests.workers import HANGS_S

KINDS = ("PyTorchJob", "TrainJob", "JobSet")
OPTIONS: tuple[dict[str, object], ...] = (
    {},
    {
        "namespace": "training",
        "image": "ghcr.io/me/train:1",
        "image_pull": ["registry"],
        "queue": "team",
    },
    {
        "resources": ["rdma/ib=8", "cpu=96", "memory=512Gi"],
        "gpu_resource": "nvidia.com/mig-1g.10gb",
        "restarts": 0,
    },
    {"volumes": ["data:/data:ro", "runs:/runs"], "shm_size": "8Gi", "service_account": "trainer"},
    {"node_selector": ["a/b=c", "d="], "tolerations": ["k", "k=v:NoSchedule", "k:NoExecute"]},
    {"variables_from": ["hf-secret/token:HF_TOKEN"]},
    {
        "labels": ["team=nlp", "a/b="],
        "annotations": ["i.io/x=a: b=c"],
        "host_network": True,
        "priority_class": "high",
    },
)


def launch(kind: str = "PyTorchJob", **job: Any) -> dict[str, dict[str, Any]]:
    """The documents of the `job.yaml` of a hand-built plan, by kind."""
    options = {"kind": kind, **job.pop("options", {})}
    (file,) = launch_files(plan("kubernetes", options=options, **job), program())[:1]
    return {part["kind"]: part for part in yaml.safe_load_all(file.text)}


def containers(job: Any) -> list[dict[str, Any]]:
    """What has the command: a TrainJob's trainer, or the containers of the pods."""
    if isinstance(job, dict):
        here = [job] if "command" in job else []
        return here + [found for value in job.values() for found in containers(value)]
    return [found for item in job for found in containers(item)] if isinstance(job, list) else []


def pods(job: Any) -> list[dict[str, Any]]:
    """Every specification of pods, also where it is a patch."""
    if isinstance(job, dict):
        here = [job] if "containers" in job else []
        return here + [found for value in job.values() for found in pods(value)]
    return [found for item in job for found in pods(item)] if isinstance(job, list) else []


def expanded(text: str, variables: dict[str, str]) -> str:
    """What Kubernetes makes of a word: `$(NAME)` is a variable's value where it is one, `$$` is
    `$`.
    """
    return re.sub(
        r"\$(?:\$|\(([^)]*)\))",
        lambda m: "$" if m[0] == "$$" else variables.get(m[1], m[0]),
        text,
        flags=re.DOTALL,
    )


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options) or "plain")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gpus", [4, 8, 1024])
def test_the_published_schema_accepts_the_job(
    kind: str, options: dict[str, object], gpus: int
) -> None:
    """The custom resource definition has every key, with its type, whatever the options."""
    job = launch(kind, options=options, environment={"A": HOSTILE[2]}, gpus=gpus)[kind]
    assert [error.message for error in validator("kubernetes", kind).iter_errors(job)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_arrives_unchanged(kind: str) -> None:
    """After Kubernetes has expanded variables in words, the script gets every argument; so do
    variables their value.
    """
    for found in containers(launch(kind, environment={"B": HOSTILE[0], "C": "$$(B)$"})[kind]):
        words = [expanded(word, {"rm -rf ~": "owned", "B": "owned"}) for word in found["command"]]
        assert words == ["torchrun", "train.py", *expected_arguments("/etc/dsgen/ds_config.json")]
        values = {entry["name"]: entry.get("value", "") for entry in found["env"]}
        assert expanded(values["B"], {"rm -rf ~": "owned"}) == HOSTILE[0]
        assert expanded(values["C"], {"B": "owned"}) == "$$(B)$"


@pytest.mark.parametrize(
    "word",
    ["1e-5", "y", "No", "0o7", "1_000", "0x1f", "12:30", ".inf", "-1", "~", "null", "=", "<<"],
)
def test_text_is_text_to_every_parser(word: str) -> None:
    """What a YAML parser in Go takes for a number or a truth value is in quotes."""
    (file,) = launch_files(plan("kubernetes"), program(hostile=(word,)))[:1]
    assert f"- '{word}'\n" in file.text


@pytest.mark.parametrize("kind", KINDS)
def test_every_volume_that_is_mounted_is_there(kind: str) -> None:
    """Mounts name volumes of their pod, the configuration files among them; without files there is
    no ConfigMap.
    """
    parts = launch(kind, options=OPTIONS[3])
    assert parts["ConfigMap"]["data"] == {"ds_config.json": "{}\n"}
    for pod in pods(parts[kind]):
        named = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
        assert {mount["name"] for mount in mounts.values()} == set(named)
        assert named["config"]["configMap"]["name"] == parts["ConfigMap"]["metadata"]["name"]
        assert mounts["/data"]["readOnly"] and "readOnly" not in mounts["/runs"]
        assert named["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
    (file,) = launch_files(plan("kubernetes", options={"kind": kind}), without_files(program()))[:1]
    assert [part["kind"] for part in yaml.safe_load_all(file.text)] == [kind]


def test_every_node_has_a_pod() -> None:
    """A master and its workers, the nodes of a TrainJob, or the pods of an indexed job are as many
    as the nodes.
    """
    specs = launch()["PyTorchJob"]["spec"]
    assert [role["replicas"] for role in specs["pytorchReplicaSpecs"].values()] == [1, 127]
    assert (specs["nprocPerNode"], specs["runPolicy"]["activeDeadlineSeconds"]) == ("8", 172800)
    assert [
        role["replicas"]
        for role in launch(gpus=8)["PyTorchJob"]["spec"]["pytorchReplicaSpecs"].values()
    ] == [1]
    trainer = launch("TrainJob")["TrainJob"]["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (128, 8)
    (job,) = launch("JobSet")["JobSet"]["spec"]["replicatedJobs"]
    assert (job["template"]["spec"]["parallelism"], job["template"]["spec"]["completions"]) == (
        128,
        128,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_is_named_and_never_written(kind: str) -> None:
    """A variable of a secret has a reference to its key in place of a value."""
    (found, *_) = containers(launch(kind, options=OPTIONS[5])[kind])
    (token,) = [entry for entry in found["env"] if entry["name"] == "HF_TOKEN"]
    assert token == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hf-secret", "key": "token"}},
    }


def test_a_pod_is_not_told_of_the_hosts_interfaces() -> None:
    """What names an interface of the node is left out, unless the spec says it; what is for its
    devices is there.
    """
    names = [entry["name"] for entry in containers(launch()["PyTorchJob"])[0]["env"]]
    assert "NCCL_SOCKET_IFNAME" not in names and "NCCL_IB_PCI_RELAXED_ORDERING" in names
    stated = launch(environment={"NCCL_SOCKET_IFNAME": "net1"})["PyTorchJob"]
    assert {"name": "NCCL_SOCKET_IFNAME", "value": "net1"} in containers(stated)[0]["env"]


@pytest.mark.parametrize(
    "name", ["gpt3-175b", "GPT 3 (175B)", "3b", "-", "é", "a" * 80, "a" * 39 + "-b"]
)
def test_names_are_labels(name: str) -> None:
    """Whatever the job's name, the resource's is a label as of DNS, short enough for the names of
    its pods.
    """
    made = launch(name=name)["PyTorchJob"]["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", made) and len(made) <= 45


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_checkpoint_is_found_when_the_job_starts(kind: str, tmp_path: Path) -> None:
    """A script that has to be told of its last checkpoint gets the newest whole one, and its
    arguments unchanged.
    """
    runs = tmp_path / "my $(runs)"
    for step, state in ((8, "{}"), (20, "{}\n"), (100, None), (200, "")):
        (runs / f"checkpoint-{step}").mkdir(parents=True)
        if state is not None:
            (runs / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    resume = Resume(option="--go-on", folder=str(runs), prefix="checkpoint-")
    output = Output(checkpoints=str(runs))
    made = plan("kubernetes", options={"kind": kind}, framework="huggingface", output=output)
    (file,) = launch_files(made, replace(program(), resume=resume))[:1]
    torchrun = tmp_path / "torchrun"
    torchrun.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    torchrun.chmod(0o755)
    jobs = [part for part in yaml.safe_load_all(file.text) if part["kind"] == kind]
    for found in containers(jobs):
        words = [
            expanded(word, {"rm -rf ~": "owned", "runs": "owned"}) for word in found["command"]
        ]
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        said = subprocess.run(
            words, env=environment, capture_output=True, text=True, check=True
        ).stdout
        expected = ["train.py", *expected_arguments("/etc/dsgen/ds_config.json")]
        assert said.split("\0")[:-1] == [*expected, "--go-on", str(runs / "checkpoint-20")]


@pytest.mark.parametrize(
    ("resources", "gpus", "told"), [([], 16, True), (["rdma/ib=8"], 16, False), ([], 8, False)]
)
def test_a_missing_device_of_the_network_is_told(
    resources: list[str], gpus: int, told: bool
) -> None:
    """Pods on several nodes without a device for RDMA or EFA are told of it, and one node needs
    none.
    """
    text = launch_files(plan("kubernetes", options={"resources": resources}, gpus=gpus), program())[
        0
    ].text
    assert ("No device of the network is requested" in text) == told


@pytest.mark.parametrize(
    ("network", "provider", "named"),
    [
        ("efa", "aws", "such as vpc.amazonaws.com/efa=N"),
        ("roce", None, "such as rdma/hca_shared_devices_a=1."),
        ("roce", "gcp", "it."),
        ("ethernet", None, "it."),
    ],
)
def test_the_device_is_that_of_the_nodes_network(
    network: str, provider: str | None, named: str
) -> None:
    """The note names EFA's device on AWS, that of the shared device plugin for InfiniBand, and none
    where it's open.
    """
    made = plan("kubernetes", gpus=16)
    cluster = replace(made.job.cluster, network=network, provider=provider)
    text = launch_files(replace(made, job=replace(made.job, cluster=cluster)), program())[0].text
    told = " ".join(line.strip("# ") for line in text.splitlines() if line.startswith("#"))
    assert f"launch.kubernetes.resources names {'it, ' * (named != 'it.')}{named}" in told


def test_cores_and_memory_are_requested_where_they_are_known() -> None:
    """Pods request nine tenths of what clouds let pods have of a known node, unless the spec has
    them.
    """
    known = {"cpu_cores": 192, "host_memory_bytes": 2048 * 2**30}
    made = plan("kubernetes", gpus=8)
    # GKE keeps most memory (47.7 of 2,048 GiB, and 0.1 before it evicts), AKS most cores (2.02 of
    # 192).
    for cores, memory, gpus in ((170, "1800Gi", 8), (85, "900Gi", 4)):
        job = replace(made.job, gpus=gpus, cluster=replace(made.job.cluster, **known))
        (file,) = launch_files(replace(made, job=job), program())[:1]
        (main, *_) = containers(list(yaml.safe_load_all(file.text)))
        assert main["resources"]["requests"] == {
            "nvidia.com/gpu": gpus,
            "cpu": cores,
            "memory": memory,
        }
        assert main["resources"]["limits"] == {"nvidia.com/gpu": gpus}
        assert {"name": "OMP_NUM_THREADS", "value": "21"} in main["env"]
    bare = replace(
        made.job, cluster=replace(made.job.cluster, cpu_cores=None, host_memory_bytes=None)
    )
    assert "first to be evicted" in launch_files(replace(made, job=bare), program())[0].text
    for cpu, threads in (("96", "12"), ("12000m", "1")):
        asked = plan("kubernetes", gpus=8, options={"resources": [f"cpu={cpu}", "memory=512Gi"]})
        text = launch_files(asked, program())[0].text
        assert "evicted" not in text
        (main, *_) = containers(list(yaml.safe_load_all(text)))
        assert {"name": "OMP_NUM_THREADS", "value": threads} in main["env"]


def test_the_header_says_what_the_image_and_the_volumes_need() -> None:
    """A path of the script is called relative only where it is; data on no mounted volume is named;
    so is a limit.
    """
    made = plan("kubernetes", gpus=16, options={"volumes": ["data:/data:ro"]})
    absolute = replace(program(), script="/opt/train.py")
    for path, told in (("/data/a", False), ("/other/a", True), ("org/set", False)):
        job = replace(made.job, data=replace(made.job.data, path=(path,)))
        changed = replace(made, job=job)
        (file,) = launch_files(changed, absolute)[:1]
        head = re.sub(r"\n# ", " ", file.text)
        assert (f"data.path {path} is on no mounted volume" in head) == told
        notes = [*LAUNCHERS["kubernetes"].lost(changed)]
        assert any(f"data.path {path}" in note for note in notes) == told
        assert "The image has to have /opt/train.py and what it imports." in head
        assert (
            "backoffLimit counts the restarts of every pod: 3 of the job × 2 pods, and one." in head
        )
    assert "train.py, a path from its working directory, and" in re.sub(
        r"\n# ", " ", launch_files(made, program())[0].text
    )


@pytest.mark.parametrize("kind", KINDS)
def test_labels_network_and_priority_are_where_they_act(kind: str) -> None:
    """Labels are the job's and its pods'; network and priority the pods', or a TrainJob's
    runtime's.
    """
    job = launch(kind, options={**OPTIONS[6], "queue": "team"})[kind]
    assert job["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "team",
        "team": "nlp",
        "a/b": "",
    }
    assert job["metadata"]["annotations"] == {"i.io/x": "a: b=c"}
    (text,) = {
        str({key: pod.get(key) for key in ("hostNetwork", "priorityClassName")})
        for pod in pods(job)
    }
    on_host = (
        {"hostNetwork": True, "priorityClassName": "high"}
        if kind != "TrainJob"
        else dict.fromkeys(("hostNetwork", "priorityClassName"))
    )
    assert text == str(on_host)
    assert str(job).count("'team': 'nlp'") > 1
    names = {entry["name"] for found in containers(job) for entry in found.get("env", ())}
    assert ("NCCL_SOCKET_IFNAME" in names) == (kind != "TrainJob")


@pytest.mark.parametrize("kind", KINDS)
def test_a_variable_of_a_secret_is_there_once(kind: str) -> None:
    """A variable that the environment and a secret have comes from the secret, and is written
    once.
    """
    options = {"variables_from": ["hf-secret/token:HF_HOME"]}
    for found in containers(launch(kind, options=options, environment={"HF_HOME": "/x"})[kind]):
        named = [entry for entry in found["env"] if entry["name"] == "HF_HOME"]
        assert [set(entry) for entry in named] == [{"name", "valueFrom"}]


def example(**changed: Any) -> dict[str, dict[str, Any]]:
    """The documents of the example on Kubernetes, which Megatron saves in, by kind."""
    job = load_job(
        "examples/llama-3-8b-kubernetes.yaml",
        overrides={k.replace("__", "."): v for k, v in changed.items()},
    )
    (text,) = (file.text for file in render(search(job).plans[0]) if file.path == "job.yaml")
    return {part["kind"]: part for part in yaml.safe_load_all(text)}


def test_every_pod_may_start_again_as_often_as_the_job() -> None:
    """Kubeflow sums up the restarts of all pods and ends the job at its limit: that allows for all
    of them.
    """
    options = {"launch__kubernetes__restarts": 5}
    assert example(**options)["PyTorchJob"]["spec"]["runPolicy"]["backoffLimit"] == 5 * 4 + 1
    assert launch(options={"restarts": 0})["PyTorchJob"]["spec"]["runPolicy"]["backoffLimit"] == 0
    often = example(launch__kubernetes__kind="JobSet", reliability__node_days_between_failures=1)[
        "JobSet"
    ]
    assert often["spec"]["failurePolicy"]["maxRestarts"] > 10  # 12 failures in three days


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_has_time_to_save(kind: str) -> None:
    """Where the script saves when it is told to stop, its pod has as long as that may take; or as
    long as is said.
    """
    for said, seconds in ((None, 180), (700, 700)):
        job = example(launch__kubernetes__kind=kind, launch__kubernetes__grace_seconds=said)[kind]
        assert {pod.get("terminationGracePeriodSeconds") for pod in pods(job)} == {seconds}
        assert [error.message for error in validator("kubernetes", kind).iter_errors(job)] == []
    assert "terminationGracePeriodSeconds" not in pods(launch(kind)[kind])[0]


@pytest.mark.parametrize(("saved", "status"), [(None, 143), (12, 143), ("last", 0)])
def test_a_pod_that_is_told_to_stop_lets_its_script_save(
    tmp_path: Path, saved: int | str | None, status: int
) -> None:
    """The pod's TERM goes to the script and not to torchrun; status 0 before the last step is saved
    is no success.
    """
    (container, *_) = containers(example(output__checkpoints=str(tmp_path))["PyTorchJob"])
    words = [expanded(word, {}) for word in container["command"]]
    last = words[words.index("--train-iters") + 1]
    step = last if saved == "last" else saved
    (tmp_path / "script").write_text(
        f"trap 'printf {step} >{tmp_path}/latest_checkpointed_iteration.txt; exit 0' TERM\n"
        f"touch {tmp_path}/started; for ((i = 0; i < 600; i++)); do sleep 0.1; done"
        if step
        else f"touch {tmp_path}/started; trap 'exit 0' TERM; for ((i = 0; i < 600; "
        "i++)); do sleep 0.1; done"
    )
    stand_in = f"#!/bin/bash\ntrap 'exit 9' TERM\nbash {tmp_path}/script &\nwait $!\n"
    (tmp_path / "torchrun").write_text(stand_in)
    (tmp_path / "torchrun").chmod(0o755)
    pod = subprocess.Popen(words, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    deadline = time.monotonic() + HANGS_S
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    pod.terminate()
    assert pod.wait(timeout=HANGS_S) == status


def test_a_pod_that_is_told_to_stop_before_its_script_runs_ends(tmp_path: Path) -> None:
    """While torchrun has no workers yet, as it imports PyTorch, the pod's TERM is its own."""
    (container, *_) = containers(example(output__checkpoints=str(tmp_path))["PyTorchJob"])
    (tmp_path / "torchrun").write_text(
        f"#!/bin/bash\ntouch {tmp_path}/started; exec sleep {2 * HANGS_S}\n"
    )
    (tmp_path / "torchrun").chmod(0o755)
    words = [expanded(word, {}) for word in container["command"]]
    pod = subprocess.Popen(words, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    deadline = time.monotonic() + HANGS_S
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    pod.terminate()
    assert pod.wait(timeout=HANGS_S) == 143


def test_a_long_command_of_a_train_job_is_in_two_lists() -> None:
    """A TrainJob takes 128 words in its command and as many arguments: the schema has both, the pod
    gets every word.
    """
    job = example(
        launch__kubernetes__kind="TrainJob", launch__arguments=[f"--flag-{n}" for n in range(110)]
    )["TrainJob"]
    assert [error.message for error in validator("kubernetes", "TrainJob").iter_errors(job)] == []
    trainer = job["spec"]["trainer"]
    words = [*trainer["command"], *trainer["args"]]
    assert len(words) > 128
    assert words[-1] == "--flag-109"


def test_pods_of_a_rack_need_a_compute_domain() -> None:
    """Where the plan counts on NVLink between nodes, the file and the next steps say what pods need
    for it.
    """
    keys = {
        "model": "llama-3.1-8b",
        "gpus": 16,
        "launch__target": "kubernetes",
        "launch__script": "a.py",
    }
    for cluster, told in (("gcp/a4x-highgpu-4g", True), ("gcp/a4-highgpu-8g", False)):
        (made,) = search(job(**keys, cluster=cluster), top=1).plans
        assert any("between 4 nodes" in note for note in LAUNCHERS["kubernetes"].lost(made)) == told
