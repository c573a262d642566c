"""What continuous integration runs: the pre-commit hook, the GitHub Action and the steps of Azure
Pipelines.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.needs import builds_checkout, program

pytestmark = builds_checkout
ROOT = Path(__file__).parent.parent.parent
BROKEN = (
    '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, '
    '"gradient_accumulation_steps": 4}\n'
)
GOOD = BROKEN.replace("30", "32")


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A checkout with a broken config."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "ds_config.json").write_text(BROKEN, encoding="utf-8")
    return tmp_path


def ran(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A step's script, as a runner starts it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
    )


def steps_of(document: Any) -> dict[str, dict[str, Any]]:
    """Steps by name, those under a template's condition included."""
    found: dict[str, dict[str, Any]] = {}
    for step in document:
        for name, value in step.items():
            if name.startswith("${{"):
                found |= steps_of(value)
        found[str(step.get("name") or step.get("displayName"))] = step
    return found


@pytest.mark.integration
@pytest.mark.parametrize(
    "arguments",
    [
        ["vendor.github-actions", "action.yml"],
        [
            "vendor.azure-pipelines",
            "--data-transform",
            "azure-pipelines",
            "azure-pipelines/validate.yml",
        ],
        ["vendor.github-workflows", ".github/workflows/ci.yml"],
    ],
    ids=lambda arguments: arguments[-1],
)
def test_files_keep_to_their_schemas(arguments: list[str]) -> None:
    """The action, the template and the workflow keep to the schemas that their services publish."""
    tool = program("check-jsonschema") or "check-jsonschema"
    done = subprocess.run(
        [tool, "--builtin-schema", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_annotates_and_fails(jobs: Path) -> None:
    """Its last step prints workflow commands and fails on an error; the step before writes SARIF
    and doesn't.
    """
    steps = steps_of(
        yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    )
    told = ran(
        steps["Annotate"]["run"],
        jobs,
        CHECKED="\n jobs\n",
        ARGUMENTS="--select BATCH --fail-on error",
    )
    assert told.returncode == 1 and told.stdout.startswith(
        "::error file=jobs/ds_config.json,line=1,"
    )
    written = ran(
        steps["Write the findings as SARIF"]["run"],
        jobs,
        CHECKED="jobs",
        ARGUMENTS="",
        SARIF="a b.sarif",
    )
    assert written.returncode == 0 and '"BATCH001"' in (jobs / "a b.sarif").read_text(
        encoding="utf-8"
    )
    (jobs / "jobs" / "ds_config.json").write_text(GOOD, encoding="utf-8")
    assert ran(steps["Annotate"]["run"], jobs, CHECKED="jobs", ARGUMENTS="").returncode == 0


def test_inputs_are_data(jobs: Path) -> None:
    """Inputs reach the shell by the environment, so that none is run as a command."""
    document = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert not [step for step in document["runs"]["steps"] if "${{" in step.get("run", "")]
    steps = steps_of(document["runs"]["steps"])
    ran(steps["Annotate"]["run"], jobs, CHECKED="jobs; touch made $(touch made)", ARGUMENTS="")
    assert not (jobs / "made").exists()


def test_the_template_annotates_and_fails(jobs: Path) -> None:
    """The last step for Azure Pipelines prints its commands and fails on an error; the step before
    doesn't.
    """
    steps = steps_of(
        yaml.safe_load((ROOT / "azure-pipelines/validate.yml").read_text(encoding="utf-8"))["steps"]
    )
    told = ran(steps["Annotate"]["bash"], jobs, CHECKED="jobs", ARGUMENTS=" --select BATCH ")
    assert told.returncode == 1
    assert told.stdout.startswith(
        "##vso[task.logissue type=error;sourcepath=jobs/ds_config.json;linenumber=1;"
    )
    script = steps["Write the findings as SARIF"]["bash"]
    assert ran(script, jobs, CHECKED="jobs", ARGUMENTS=" ", SARIF="dsgen.sarif").returncode == 0


def copy_checkout(folder: Path, parts: Collection[str] = ()) -> None:
    """Copy this checkout, or some parts of it, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a checkout of git")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and (not parts or name.split("/")[0] in parts):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def steps_of_workflow() -> list[str]:
    """The commands of the workflow's job that runs on every Python."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    return [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]


def test_the_workflow_names_what_there_is() -> None:
    """The folders that the workflow tests are in the checkout, and what it installs is an extra of
    setup.cfg.
    """
    install, test = steps_of_workflow()
    folders = [word for word in test.split() if word.startswith("tests/")]
    assert len(folders) >= 5
    assert [folder for folder in folders if not list((ROOT / folder).rglob("test_*.py"))] == []
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    [extra] = re.findall(r"\.\[(\w+)\]", install)
    assert extra in setup["options.extras_require"]


def test_make_quick_names_what_there_is() -> None:
    """The tests that `make quick` runs are in the checkout."""
    [listed] = re.findall(
        r"^QUICK := \$\(addprefix tests/,(.*?)\)",
        (ROOT / "Makefile").read_text("utf-8"),
        re.M | re.S,
    )
    names = listed.replace("\\", " ").split()
    assert len(names) > 5
    assert [name for name in names if not (ROOT / "tests" / name).exists()] == []


@pytest.mark.integration
def test_the_workflow_installs_what_its_tests_import(tmp_path: Path) -> None:
    """In a fresh environment the workflow's own steps find every test, with nothing but what they
    install.
    """
    install, test = steps_of_workflow()
    uv, env, fresh = [sys.executable, "-m", "uv"], tmp_path / "env", tmp_path / "checkout"
    copy_checkout(fresh)
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(env)], check=True)
    environment = {**os.environ, "PATH": f"{env / 'bin'}:{os.environ['PATH']}"}
    for name in ("PYTHONPATH", "DSGEN_REQUIRE_ALL"):  # the workflow has neither
        environment.pop(name, None)
    assert install.startswith("pip install ")
    install = (
        f"{shlex.join(uv)} {install} --quiet --python {shlex.quote(str(env / 'bin' / 'python'))}"
    )
    for command in (install, f"{test} --collect-only -q -n 0"):
        done = subprocess.run(
            ["bash", "-c", command], cwd=fresh, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert int(re.findall(r"(\d+)/\d+ tests collected", done.stdout)[0]) > 1000


@pytest.mark.integration
def test_pre_commit_runs_the_hook(tmp_path: Path) -> None:
    """The real pre-commit installs the hook from a clone of this repository, and stops a commit of
    a broken config.
    """

    def git(*arguments: str, folder: Path) -> None:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)

    hooks, work = tmp_path / "hooks", tmp_path / "work"
    copy_checkout(hooks, _PACKAGED)
    work.mkdir()
    for folder in (hooks, work):
        git("init", "--quiet", folder=folder)
    git("add", ".", folder=hooks)
    git("commit", "--quiet", "-m", "all", folder=hooks)
    (work / "ds_config.json").write_text(BROKEN, encoding="utf-8")
    (work / "notes.json").write_text("{}\n", encoding="utf-8")
    git("add", ".", folder=work)
    revision = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=hooks, text=True).strip()
    config = {"repos": [{"repo": str(hooks), "rev": revision, "hooks": [{"id": "dsgen-validate"}]}]}
    (work / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files"]
    first = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
    assert first.returncode == 1 and "[BATCH001]" in first.stdout, first.stdout + first.stderr
    (work / "ds_config.json").write_text(GOOD, encoding="utf-8")
    second = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
    assert second.returncode == 0, second.stdout + second.stderr


_PACKAGED = {
    ".pre-commit-hooks.yaml",
    "LICENSE",
    "README.md",
    "generator",
    "pyproject.toml",
    "man",
    "schemas",
    "setup.cfg",
    "setup.py",
    "templates",
}
