"""Compare `dsgen validate` with transformers on arguments: `python -m
benchmarks.agreement_huggingface`.

Each of a number of seeded pairs of TrainingArguments and a DeepSpeed config is asked of
transformers, on a CPU and in this process: the arguments are built, which processes the config, and
the config is finalised for a run, while `dsgen.validate` reads the same as files. They agree where
both refuse a pair, or neither does, and where the keys that transformers calls mismatched are those
that we do.
"""

from __future__ import annotations

import json
import logging
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

import dsgen
from dsgen.findings import Finding, Severity

SEED: Final = 20261121
PAIRS: Final = 600
STEPS: Final = 1000  # of a run without max_steps
_MATCHED: Final = frozenset({"HF001", "HF002", "HF039"})
_PRODUCT: Final = "BATCH001"  # DeepSpeed's own, of a config with all three counts of a batch
#: Errors that come later than what is done here: Trainer's own checks, the data loader.
_LATER: Final = frozenset({"HF004", "HF005", "HF006", "HF028", "HF037"})

#: Arguments and what they are given; the first of each is quiet.
ARGUMENTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "per_device_train_batch_size": (4, 8, 0),
    "gradient_accumulation_steps": (2, 1),
    "learning_rate": (1e-5, 5e-5),
    "weight_decay": (0.0, 0.1),
    "adam_beta2": (0.999, 0.95),
    "max_grad_norm": (1.0, 0.5),
    "bf16": (True, False),
    "fp16": (False, True),
    "bf16_full_eval": (False, True),
    "fp16_full_eval": (False, True),
    "eval_strategy": ("no", "steps", "epoch", "never"),
    "save_strategy": ("steps", "epoch", "best", "no"),
    "logging_strategy": ("steps", "epoch"),
    "load_best_model_at_end": (False, True),
    "save_steps": (500, 400, 0.5, 2.5),
    "eval_steps": (500, 200, 0.1, 300),
    "logging_steps": (10, 0, 1.5),
    "warmup_steps": (0, 100, -1, 0.1),
    "max_steps": (-1, 1000, 50),
    "lr_scheduler_type": ("linear", "reduce_lr_on_plateau", "cosin", "greedy"),
    "optim": ("adamw_torch", "adamw_tourch"),
    "dataloader_num_workers": (0, 2),
    "dataloader_prefetch_factor": (None, 2),
    "torch_empty_cache_steps": (None, 10, 0),
    "auto_find_batch_size": (False, True),
    "evaluation_strategy": (None, "steps"),
    "warmup_ratio": (None, 0.1),
}
CONFIG: Final[Mapping[str, tuple[Any, ...]]] = {
    "train_micro_batch_size_per_gpu": ("auto", 4, 8),
    "gradient_accumulation_steps": ("auto", 2, 4),
    "train_batch_size": ("auto", 8, 64),
    "gradient_clipping": ("auto", 1.0, 0.5),
    "bf16": ({"enabled": "auto"}, {"enabled": True}, {"enabled": False}, None),
    "fp16": (None, {"enabled": "auto"}, {"enabled": True}),
    "zero_optimization": ({"stage": 2}, {"stage": 3}, {"stage": 0}, None),
    "optimizer": (
        None,
        {
            "type": "AdamW",
            "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
        },
        {
            "type": "AdamW",
            "params": {"lr": 1e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
        },
        {"type": "AdamW", "params": {"lr": "1e-5", "betas": [0.9, 0.95]}},
    ),
    "scheduler": (
        None,
        {
            "type": "WarmupDecayLR",
            "params": {"total_num_steps": 1000, "warmup_num_steps": 100, "warmup_max_lr": 1e-5},
        },
        {
            "type": "WarmupDecayLR",
            "params": {"total_num_steps": "auto", "warmup_num_steps": "auto"},
        },
    ),
}


def pairs(count: int, seed: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Arguments and configs, mostly quiet, each with a few that aren't."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        made.append((_some(ARGUMENTS, rng, 0.02, 0.6), _some(CONFIG, rng, 0.1, 1.0)))
    return made


def _some(
    pool: Mapping[str, tuple[Any, ...]], rng: random.Random, odd: float, share: float
) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for name, values in pool.items():
        value = rng.choice(values[1:]) if rng.random() < odd else values[0]
        if value is not None and (value is not values[0] or rng.random() < share):
            chosen[name] = value
    return chosen


def transformers_says(
    arguments: Mapping[str, Any], config: Mapping[str, Any], folder: Path, world_size: int = 1
) -> str | None:
    """Why transformers refuses a pair; None where it takes it."""
    import transformers
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    (folder / "ds_config.json").write_text(json.dumps(config), encoding="utf-8")

    class Model:
        """Model that the config is finalised for."""

        config = transformers.PretrainedConfig(hidden_size=64)

    class Arguments(transformers.TrainingArguments):
        """Arguments of one process of `world_size`."""

        @property
        def world_size(self) -> int:
            return world_size

    try:
        real = Arguments(
            **arguments,
            output_dir=str(folder / "out"),
            deepspeed=str(folder / "ds_config.json"),
            use_cpu=True,
            report_to="none",
        )
        steps = real.max_steps if real.max_steps > 0 else STEPS
        processed = real.hf_deepspeed_config
        if real.auto_find_batch_size:  # as Trainer does, once it knows a batch size that fits
            processed = HfTrainerDeepSpeedConfig(processed.config)
            processed.trainer_config_process(real, auto_find_batch_size=True)
        processed.trainer_config_finalize(real, Model(), steps)
    except Exception as problem:  # whatever it raises keeps the job from training
        return f"{type(problem).__name__}: {' '.join(str(problem).split())}"
    return None


def compare_all(count: int = PAIRS, *, seed: int = SEED) -> tuple[Counter[str], list[str]]:
    """Return how often each outcome came, and every disagreement."""
    counts: Counter[str] = Counter()
    unexplained: list[str] = []
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as name:
        warnings.simplefilter("ignore")
        folder = Path(name)
        for arguments, config in pairs(count, seed):
            refusal = transformers_says(arguments, config, folder)
            written = {**arguments, "output_dir": "out", "deepspeed": "ds_config.json"}
            (folder / "train.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
            found = [
                item
                for item in dsgen.validate(folder, gpus=1)
                if _is_ours(item) or item.rule == _PRODUCT
            ]
            outcome = _outcome(refusal, found)
            counts[outcome] += 1
            if outcome == "disagree":
                said = "; ".join(f"{item.rule} {item.message}" for item in found) or "nothing"
                unexplained.append(
                    f"{arguments} {config}: transformers says {refusal}; we say {said}"
                )
    logging.disable(logging.NOTSET)
    return counts, unexplained


def _is_ours(finding: Finding) -> bool:
    """Errors of these rules, and what is a warning because a script may set another default or have
    another trainer.
    """
    return finding.rule.startswith("HF") and (
        finding.severity is Severity.ERROR or finding.rule in _MATCHED | {"HF023", "HF025"}
    )


def _outcome(refusal: str | None, found: list[Finding]) -> str:
    now = [item for item in found if item.rule not in _LATER]
    if refusal is None:
        return "disagree" if now else "refused later" if found else "both take"
    theirs = {key for key, _, _ in re.findall(r"- ds ([\w.]+)=(.*?) vs hf (\w+)", refusal)}
    if not theirs:
        return "both refuse" if found else "disagree"
    ours = {item.message.partition(":")[0] for item in found if item.rule in _MATCHED}
    ours |= {"train_batch_size"} & theirs if any(item.rule == _PRODUCT for item in found) else set()
    return "both refuse, key by key" if ours == theirs else "disagree"


def main() -> int:
    """Print the counts and every disagreement."""
    counts, unexplained = compare_all()
    print(", ".join(f"{outcome}: {number}" for outcome, number in sorted(counts.items())))
    print(f"unexplained disagreements: {len(unexplained)}")
    print("\n".join(unexplained))
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
