"""Score the estimate of memory against ms-swift's examples: `python -m benchmarks.fine_tuning
[ROOT]`.

The authors wrote above many of their commands what nvidia-smi showed, as `# 8 * 65GiB`.
`data/fine_tuning.csv` has those that fine-tune a language model with Megatron-Core: each as a spec,
with the card of the next size. No constant of the estimate is from them. Adapters are ms-swift's:
of Megatron's fused layers, and of each expert one. Where samples aren't packed, a micro-batch is
counted with the most tokens that it may have; not among them are short samples in large batches,
and models without a head.

ROOT is a checkout of ms-swift: what `dsgen init --from` reads of every command there that has such
a comment is estimated as well, with what it says that it doesn't plan.

**Source**: modelscope/ms-swift @ 3602360a, examples; swift/megatron/utils/utils.py
(`find_all_linears`: grouped linear layers, an adapter an expert),
swift/megatron/arguments/megatron_args.py (defaults: the distributed optimizer, sums in fp32).
"""

from __future__ import annotations

import csv
import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import dsgen
from dsgen.draft import carry_over, draft_run, find_runs
from dsgen.findings import InvalidJob
from dsgen.job.records import Adapters, Job, Lora
from dsgen.units import GIB

ROWS: Final = Path(__file__).with_name("data") / "fine_tuning.csv"
_PEAK: Final = re.compile(r"\b([0-9]{1,2}) ?\* ?([0-9]{2,3}) ?Gi?B\b")
#: Cards by the most GiB that a process can have of them.
_CARDS: Final = (
    (23, "rtx-4090"),
    (45, "l40s"),
    (80, "h100-80gb-sxm"),
    (96, "h20-96gb"),
    (141, "h200-141gb-sxm"),
)
_NEAR: Final = 0.2
_RATE: Final = "network_gbits_per_s_per_node"


def rows() -> Iterator[dict[str, str]]:
    """The published runs."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def job_of(spec: Mapping[str, Any]) -> Job:
    """The job of a row's spec; adapters with ms-swift's Megatron are those of no framework here."""
    training = dict(spec["training"])
    stated = training.pop("lora", None)
    job = dsgen.load_job({**spec, "training": training})
    if stated is None:
        return job

    lora = Lora(
        rank=stated["rank"],
        alpha=stated["alpha"],
        modules=(stated["modules"],),
        base="unquantized",
    )
    framework = replace(job.framework, adapters=Adapters(of_fused=True, of_experts="each"))
    return replace(job, framework=framework, training=replace(job.training, mode="lora", lora=lora))


def shown_gib(job: Job) -> float:
    """What nvidia-smi shows of the fullest card, in GiB."""
    return float(dsgen.estimate(job).memory.device_bytes) / GIB


def errors() -> dict[str, float]:
    """The relative error of every row, by its case."""
    return {
        row["case"]: shown_gib(job_of(json.loads(row["spec_json"]))) / float(row["peak_gib"]) - 1
        for row in rows()
    }


def commands(root: Path) -> Iterator[tuple[Path, int, float]]:
    """The scripts of a checkout with GPUs and peak in their first comment, and these numbers.

    80 GiB is the card's size, and no peak.
    """
    for path in sorted((root / "examples").rglob("*.sh")):
        match = _PEAK.search(path.read_text("utf-8")[:400])
        if match is not None and match[2] != "80" and "ascend" not in path.parts:
            yield path, int(match[1]), float(match[2])


def drafted(path: Path, gpus: int, peak: float) -> tuple[float | None, list[str]]:
    """What nvidia-smi would show of a command as `init --from` reads it, and what that leaves out.

    None where there is no spec of it.
    """
    card = next(name for size, name in _CARDS if peak <= size)
    cluster = {"accelerator": card, "accelerators_per_node": gpus, _RATE: 400}
    configs = {row["case"]: json.loads(row["spec_json"])["model"] for row in rows()}
    model = next((m for case, m in configs.items() if path.as_posix().endswith(case)), None)
    answers: dict[str, object] = {"cluster": cluster, "gpus": gpus}
    if isinstance(model, dict):  # which the catalog hasn't
        answers["model"] = model

    _, found = find_runs([path])
    if not found:
        return None, ["no launch is read"]
    draft = draft_run(found[0], found[1:], answers)
    outcome = carry_over(draft)
    left = [f"{each}".partition(": ")[2] for each in draft.left if "planned" in f"{each}"]
    if draft.get("model") is None:
        return None, ["the catalog has no model of that name", *left]
    try:
        return shown_gib(dsgen.load_job(draft.spec)), left
    except InvalidJob:
        return None, [finding.message for finding in outcome.findings]


def main(root: Path | None) -> None:
    """Print the errors."""
    packed = {row["case"]: row["packed"] == "1" for row in rows()}
    found = errors()
    for case, error in found.items():
        print(f"{error:+7.1%}  {case}{'' if packed[case] else ' (at most)'}")
    sizes = [abs(error) for error in found.values()]
    bias = statistics.mean(found.values())
    print(f"{len(sizes)} rows: mean {statistics.mean(sizes):.1%}, bias {bias:+.1%}")
    if root is None:
        return

    print("\nas `dsgen init --from` reads the commands")
    near = planned = 0
    for path, gpus, peak in commands(root):
        shown, left = drafted(path, gpus, peak)
        name = path.relative_to(root / "examples").as_posix()
        if shown is None or left:
            told = "" if shown is None else f"{shown / peak - 1:+7.1%}"
            print(f"{told:>7}  {name}: {'; '.join(left)[:150]}")
            continue
        planned += 1
        near += abs(shown / peak - 1) <= _NEAR
        print(f"{shown / peak - 1:+7.1%}  {name}")
    print(f"{near} of {planned} that are planned as they are: within {_NEAR:.0%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
