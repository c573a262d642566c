"""Speed: the cold command beside the bare import of its dependencies, the search alone, and peak
memory.

`python -m benchmarks.speed` prints the figures of RESULTS.md. Run it where `dsgen` is installed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: What `dsgen plan` imports that dsgen did not write.
# dsgen no longer needs jsonschema: it stays in the yardstick, so that ratios can be compared.
DEPENDENCIES = "import click, click_default_group, yaml, jsonschema, numpy"
RUNS = 7
EXAMPLES = Path(__file__).parent.parent / "examples"
SEARCH = """
import json, resource, sys, time
import dsgen
job = dsgen.load_job(sys.argv[1], overrides=json.loads(sys.argv[2]))
times = []
for _ in range(5):
    start = time.process_time()
    result = dsgen.search(job)
    times.append(time.process_time() - start)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([sorted(times)[2], result.considered, result.feasible, peak]))
"""


#: pip compiles what it installs, so modules are not compiled anew at every start.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


def wall_s(command: list[str]) -> float:
    """Wall time of one run."""
    start = time.perf_counter()
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=os.sep,
        env=ENVIRONMENT,
    )
    return time.perf_counter() - start


def cold_command() -> None:
    """`dsgen plan --gpus 1024` and the imports it can't do without, in turn."""
    dsgen = shutil.which("dsgen", path=str(Path(sys.executable).parent)) or "dsgen"
    command, bare = [dsgen, "plan", "--gpus", "1024"], [sys.executable, "-c", DEPENDENCIES]
    wall_s(command), wall_s(bare)
    pairs = [(wall_s(command), wall_s(bare)) for _ in range(RUNS)]
    ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"| `dsgen plan --gpus 1024`, cold | {ours:.2f} s |")
    print(f"| bare import of its dependencies | {theirs:.2f} s |")
    print(f"| ratio (median of {RUNS} pairs; the aim is under 4) | {ratio:.1f} |")
    print(f"| peak memory of the command | {peak:.0f} MB |")


def search_alone() -> None:
    """The search on one core: considered layouts, processor time, rate."""
    cases = {
        "default job, 1,024 GPUs": ("gpt3-175b-azure", {}),
        "default job, 16,384 GPUs": (
            "gpt3-175b-azure",
            {"gpus": 16384, "training.global_batch": 16384},
        ),
        "Llama 3.1 405B, 16,384 GPUs": ("llama-3.1-405b-h100", {}),
        "DeepSeek-V3, 2,048 GPUs": ("deepseek-v3", {}),
    }
    for label, (example, overrides) in cases.items():
        spec = str(EXAMPLES / f"{example}.yaml")
        command = [sys.executable, "-c", SEARCH, spec, json.dumps(overrides)]
        printed = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=os.sep
        ).stdout
        seconds, considered, feasible, peak = json.loads(printed)
        print(
            f"| search, {label} | {seconds:.3f} s: {considered:,} layouts considered, "
            f"{feasible:,} feasible,"
            f" {considered / seconds / 1e6:.0f} million a second; {peak:.0f} MB |"
        )
    # A published planner on this class of machine, for scale: Calculon, two cores.
    print(
        "| Calculon, for scale | 560,000 layouts in 227 s on two cores: "
        f"{560_000 / 227:,.0f} a second |"
    )


def validate_cold() -> None:
    """`dsgen validate` on a folder of ten files, and on one very large file of each kind."""
    dsgen = shutil.which("dsgen", path=str(Path(sys.executable).parent)) or "dsgen"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, path in (
            ("a folder of ten files", _ten_files(folder / "ten")),
            ("a DeepSpeed config of 16,000 values", _large_config(folder / "large.json")),
            ("a launch script of 20,000 lines", _large_script(folder / "large.sh")),
        ):
            command = [dsgen, "validate", str(path), "--gpus", "64", "--fail-on", "never"]
            wall_s(command)
            seconds = statistics.median(wall_s(command) for _ in range(RUNS))
            print(f"| `dsgen validate`, {label}, cold | {seconds:.2f} s |")


def _ten_files(folder: Path) -> Path:
    """Files of one job of a user: three launch scripts, three configs, a spec, arguments, two more
    configs.
    """
    folder.mkdir()
    golden = EXAMPLES.parent / "tests" / "golden"
    for job in ("bloom-176b", "mt-nlg-530b", "gpt-neox-20b-vms"):
        for path in sorted((golden / job).iterdir()):
            if path.name in ("ds_config.json", "launch.sbatch", "launch.sh", "arguments.txt"):
                shutil.copy(path, folder / f"{job}-{path.name}")
    shutil.copy(EXAMPLES / "bloom-176b.yaml", folder / "job.yaml")
    return folder


def _large_config(path: Path) -> Path:
    """A DeepSpeed config with a list of 10,000 numbers and 2,000 keys that DeepSpeed doesn't
    know.
    """
    config = {
        "train_batch_size": 64,
        "zero_optimization": {"stage": 2},
        "curriculum": list(range(10_000, 20_000)),
        **{f"key_{index:06}": {"enabled": True, "value": index * 1.5} for index in range(2_000)},
    }
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")
    return path


def _large_script(path: Path) -> Path:
    """A script with 20,000 lines of assignments, commands, conditions and options."""
    block = """
if [ "$RANK" -eq 0 ]; then
  echo "step {0} of $TOTAL" >> "$LOG_DIR/log_{0}.txt"   # where it went
fi
VALUE_{0}=$((VALUE * 8 + {0}))
ARGS+=(--option-{0} "$VALUE_{0}" --name "run {0}")
for name in a b c; do cp -r "$SOURCE/$name" "$TARGET/$name.{0}" || exit 1; done
export PATH_{0}="${{PREFIX:-/opt}}/bin:$PATH_{0}"
"""
    lines = ["#!/bin/bash", "#SBATCH --nodes=8", "#SBATCH --gres=gpu:8"]
    for index in range(20_000 // block.count("\n")):
        lines += block.format(index).strip("\n").split("\n")
    lines.append('srun torchrun --nnodes=8 --nproc-per-node=8 train.py "${ARGS[@]}"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Print the table."""
    print("| what | measured |")
    print("|---|---|")
    cold_command()
    search_alone()
    validate_cold()


if __name__ == "__main__":
    main()
