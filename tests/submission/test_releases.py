"""Files are judged by the release that their repository names, and findings say which it is and
where it is named.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import dsgen
from dsgen.programs.releases import release_of

MICS = '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "mics_shard_size": 8}}'
TYPO = '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "overlap_com": true}}'
WARMING = (
    '{"train_batch_size": 8, "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", '
    '"params": {"lr": 1e-4}}, '
    '"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}}'
)
BARE = '{"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2}}'
SCRIPT = (
    "torchrun --nproc_per_node 8 train.py --output_dir out --evaluation_strategy steps "
    "--learning_rate 1e-4\n"
)


def found(tmp_path: Path, rule: str, files: dict[str, str]) -> list[tuple[str, str]]:
    """The severity and message of what a rule says of files written to a repository."""
    (tmp_path / ".git").mkdir()
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return [(f.severity.value, f.message) for f in dsgen.validate(tmp_path) if f.rule == rule]


@pytest.mark.parametrize(
    ("name", "text", "version", "exact"),
    [
        ("requirements.txt", "torch\ndeepspeed==0.9.5\n", (0, 9, 5), True),
        ("requirement.txt", "deepspeed[autotuning]~=0.14.0\n", (0, 14, 0), True),
        ("requirements/train.txt", "deepspeed>=0.9,<0.15\n", (0, 14, 99), False),
        ("pyproject.toml", 'deepspeed = "^0.12.6"\n', (0, 12, 6), True),
        ("pyproject.toml", 'dependencies = ["deepspeed == 0.12.6"]\n', (0, 12, 6), True),
        ("setup.py", "setup(install_requires=['deepspeed<=0.16.9'])\n", (0, 16, 9), False),
        ("environment.yml", "dependencies:\n  - pip:\n    - deepspeed==0.18.3\n", (0, 18, 3), True),
        ("uv.lock", '[[package]]\nname = "deepspeed"\nversion = "0.15.4"\n', (0, 15, 4), True),
        ("docker/Dockerfile", "RUN pip install torch deepspeed==0.14.4\n", (0, 14, 4), True),
        ("Dockerfile", "FROM deepspeed/deepspeed:v072_torch112_cu117\n", (0, 7, 2), True),
        (
            "Dockerfile",
            "RUN pip install git+https://github.com/microsoft/DeepSpeed.git@v0.10.1\n",
            (0, 10, 1),
            True,
        ),
        (
            "README.md",
            "Trained with [DeepSpeed](https://deepspeed.ai) v0.9.5 on 8 GPUs.\n",
            (0, 9, 5),
            False,
        ),
        (
            "requirements.txt",
            "git+https://github.com/HabanaAI/DeepSpeed.git@1.19.0\n",
            (0, 19, 8),
            False,
        ),
        (
            "train.py",
            "from deepspeed.compression.compress import init_compression\n",
            (0, 19, 6),
            False,
        ),
        ("megatron/__init__.py", "from deepspeed.compression import compress\n", (0, 19, 6), False),
    ],
)
def test_the_release_is_read_where_people_name_it(
    name: str, text: str, version: tuple[int, ...], exact: bool, tmp_path: Path
) -> None:
    """Pins, locks, images, prose and imports of what is gone name a release; only pins and tags
    name it exactly.
    """
    (tmp_path / ".git").mkdir()
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    release = release_of("deepspeed", str(tmp_path / "configs" / "ds.json"))
    assert release is not None
    assert (release.version, release.exact) == (version, exact)
    assert Path(name).name in release.where


@pytest.mark.parametrize(
    ("name", "lowest"),
    [("README.md", True), ("README.rst", True), ("INSTALL", True), ("INSTALL.sh", False)],
)
def test_of_several_releases_in_prose_the_oldest_counts(
    name: str, lowest: bool, tmp_path: Path
) -> None:
    """Prose that names two releases says which works, and which doesn't; what is installed is the
    newest of them.
    """
    text = "We ran deepspeed==0.9.5; deepspeed==0.14.0 hangs.\n"
    if name.endswith(".sh"):
        text = "pip install deepspeed==0.9.5\npip install deepspeed==0.14.0\n"
    (tmp_path / name).write_text(text)
    release = release_of("deepspeed", str(tmp_path / "ds.json"))
    assert release is not None
    assert (release.version, release.exact) == (
        ((0, 9, 5), False) if lowest else ((0, 14, 0), True)
    )


@pytest.mark.parametrize(
    "text",
    [
        "deepspeed\n",
        "deepspeed>=0.9.5\n",
        "# deepspeed==0.3.1\n",
        "Needs DeepSpeed 0.9.5 or later.\n",
        "at least DeepSpeed 0.9.5\n",
        "megatron-deepspeed==0.1.2\n",
    ],
)
def test_a_lower_bound_names_no_release(text: str, tmp_path: Path) -> None:
    """What leaves the newest release open, a comment and another program's name say nothing of the
    release.
    """
    (tmp_path / "requirements.txt").write_text(text)
    assert release_of("deepspeed", str(tmp_path / "ds.json")) is None


def test_the_nearest_file_names_the_release(tmp_path: Path) -> None:
    """Of the pins above a file the nearest counts, and one in the folder beside it does not."""
    (tmp_path / ".git").mkdir()
    for folder, pin in (("", "0.9.5"), ("a", "0.14.0"), ("b", "0.16.0")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "requirements.txt").write_text(f"deepspeed=={pin}\n")
    named = [
        release_of("deepspeed", str(tmp_path / name))
        for name in ("a/ds.json", "ds.json", "c/ds.json")
    ]
    assert [release.version for release in named if release] == [(0, 14, 0), (0, 9, 5), (0, 9, 5)]


@pytest.mark.parametrize(
    ("pin", "severity"),
    [
        ("deepspeed==0.9.5", "note"),
        ("git+https://github.com/HabanaAI/DeepSpeed.git@1.19.0", "note"),
        ("deepspeed>=0.9.5", "warning"),
        ("deepspeed==0.19.8", "error"),
    ],
)
def test_a_removed_key_is_judged_by_the_release(tmp_path: Path, pin: str, severity: str) -> None:
    """A removed key is an error where the requirements above the config name a release that refuses
    it, a note where they name one that accepts it, and a warning where they name none.
    """
    files = {"requirements.txt": f"torch\n{pin}\n", "scripts/zero3.json": MICS}
    assert [one for one, _ in found(tmp_path, "VER002", files)] == [severity]


def test_a_slip_is_an_error_in_each_release(tmp_path: Path) -> None:
    """An unknown key in zero_optimization is an error also where the repository pins an old
    DeepSpeed, or a fork.
    """
    files = {"requirements.txt": "deepspeed==0.9.5\n", "ds.json": TYPO}
    assert [one for one, _ in found(tmp_path, "PARSE005", files)] == ["error"]


def test_an_import_that_is_gone_means_an_older_release(tmp_path: Path) -> None:
    """A repository whose programs import what DeepSpeed no longer has isn't run with the release
    that refuses a key.
    """
    files = {
        "train.py": "from deepspeed.compression.compress import init_compression\n",
        "ds.json": MICS,
    }
    ((severity, message),) = found(tmp_path, "VER002", files)
    assert severity == "note"
    assert message.startswith("DeepSpeed 0.19.6 or older (train.py:1) accepts `mics_shard_size`")


@pytest.mark.parametrize(
    ("pin", "said"), [("0.14.0", []), ("0.19.4", ["requirements.txt:1"]), (None, [""])]
)
def test_rules_with_versions_judge_by_the_release(
    pin: str | None, said: list[str], tmp_path: Path
) -> None:
    """A rule that holds from a release on is silent below it, and says which release it judges by,
    and where.
    """
    files = {"ds.json": WARMING} | ({"requirements.txt": f"deepspeed=={pin}\n"} if pin else {})
    findings = found(tmp_path, "OPT011", files)
    assert [severity for severity, _ in findings] == ["error" if pin else "warning"] * len(said)
    for (_, message), where in zip(findings, said, strict=True):
        assert (f"judged by DeepSpeed {pin} ({where})" in message) == bool(pin)


def test_the_default_is_the_releases(tmp_path: Path) -> None:
    """What a key that is left out does is said for the release that the repository pins."""
    files = {"requirements.txt": "deepspeed==0.13.1\n", "ds.json": BARE}
    ((severity, message),) = found(tmp_path, "OPT003", files)
    assert severity == "note"
    assert "0 (no clipping) in DeepSpeed 0.13.1 (requirements.txt:1)" in message


@pytest.mark.parametrize(
    ("pin", "severity", "text"),
    [
        (
            "transformers==4.40.0",
            "note",
            "transformers 4.40.0 (requirements.txt:1) has the argument",
        ),
        (
            "transformers==4.50.0",
            "note",
            "transformers 4.50.0 (requirements.txt:1) has the argument",
        ),
        (
            "transformers==4.57.1",
            "error",
            "transformers 4.57.1 (requirements.txt:1) has no argument",
        ),
        ("transformers>=4.40", "warning", "transformers 5.23.0 has no argument"),
    ],
)
def test_arguments_are_judged_by_the_release(
    pin: str, severity: str, text: str, tmp_path: Path
) -> None:
    """An argument that transformers dropped is an error only where the release that is pinned
    lacks it, and a warning where none is pinned.
    """
    ((said, message),) = found(
        tmp_path, "HF023", {"requirements.txt": f"{pin}\n", "train.sh": SCRIPT}
    )
    assert said == severity
    assert text in message


@pytest.mark.parametrize(("pinned", "severity"), [("0.6.5", "note"), ("0.12.6", "error")])
def test_an_unknown_key_of_a_release_before_the_models(
    pinned: str, severity: str, tmp_path: Path
) -> None:
    """A key that no section has is a note where the release that is pinned is older than those that
    refuse it.
    """
    (tmp_path / "requirements.txt").write_text(f"deepspeed=={pinned}\n")
    config = '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "stage3_no_such_key": 1}}'
    (tmp_path / "ds_config.json").write_text(config)
    found = [finding for finding in dsgen.validate(tmp_path) if finding.rule == "PARSE005"]
    assert [finding.severity.value for finding in found] == [severity]
