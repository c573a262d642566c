"""DeepSpeed's engine refuses what the rules on its configs say, takes what they let pass, and
ignores what they say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsgen.check.rules.run import all_file_rules
from dsgen.findings import Severity
from tests.case import read_case
from tests.needs import needs_deepspeed
from tests.workers import answers

WORKER = Path(__file__).parents[1] / "engine_start_worker.py"

#: Rules whose bad case the engine refuses, with a part of what it says. The good case starts and
#: takes two steps.
REFUSED = {
    "PREC010": "Master weights feature requires ZeRO-2 Offload",
    "PREC012": "conflicts with the enabled precision mode",
    "PREC013": "unsupported mix of model_dtype",
    "PREC021": "must have the same dtype",
    "PREC023": "is not a valid DtypeEnum",
    "PREC026": "Cannot enable both torch autocast and zero quantized weights",
    "ZERO008": '"nvme_path" in DeepSpeed Config cannot be None',
    "ZERO015": "allgather_bucket_size must be a multiple of",
    "ZERO016": "pre-scale gradients is not yet supported with ZeRO-2",
    "ZERO017": "gradient_predivide_factor != 1.0 is not yet supported with ZeRO-3",
    "ZERO018": "The deprecated version of ZeRO Stage 1 is not supported",
    "ZERO021": "You are using an untested ZeRO Optimizer",
    "ZERO029": "reduce_scatter should also be enabled",
    "ZERO034": "Muon and reduce scatter cannot be used together",
    "ZERO036": "managed_gradient_accumulation=False supports ZeRO overlap_comm only",
    "ZERO048": "compute_grad_norm=false requires gradient_clipping=0",
    "ZERO057": "Zenflow must be used with cpu offload",
    "ZERO058": "select_interval would be overwritten",
    "ZERO059": "Select interval must be greater or equal to update interval",
    "ZERO060": "should be used with overlap_comm",
    "ZERO063": "unexpected keyword argument 'bias_correction'",
    "OPT001": "'max_grad_norm' is not supported as an optimizer parameter",
    "OPT004": "sgd is not a supported DeepSpeed Optimizer",
    "OPT009": "DeepSpeed does not recognize LR scheduler",
    "OPT011": "warmup_num_steps must be a positive integer",
    "OPT018": "zero stage 2 requires an optimizer",
    "OPT021": "unexpected keyword argument 'beta1'",
    "OPT025": "not supported between instances of",
    "OPT026": "IndexError",
    "OPT028": "argument after ** must be a mapping",
    "OPT029": "DeepSpeedZeroOptimizer is not an Optimizer",
    "OPT030": "unexpected keyword argument 'warmup_max_lr'",
    "OPT012": "missing 1 required positional argument: 'total_num_steps'",
    "OPT031": "missing 1 required positional argument: 'cycle_max_lr'",
    "OPT035": "lr_range_test_step_size must be a positive integer",
    "OPT036": "cycle_first_step_size must be positive",
    "OPT039": "ZeroDivisionError",
    "VER003": "OneBitAdam is not a supported DeepSpeed Optimizer",
    "MOE009": "score_func must be one of",
    "MOE010": "comm_max_tokens_per_rank must be a positive integer",
    "ACT001": "Contiguous Checkpointing is only available with partitioned activations",
    "ACT002": "Must specify the number of layers",
    "DATA007": "NotImplementedError",
    "PARSE009_engine": "'>' not supported between instances of 'str' and 'float'",
    "PARSE017_engine": "'>' not supported between instances of 'NoneType' and 'float'",
}

#: Good cases that stop on this machine for a reason of the test's own: no operator is compiled, so
#: offloaded states are torch's, which ZenFlow and 16-bit master weights don't take, and NVMe needs
#: one.
STOPS_LATER = {
    "PREC010": "Current ZeRO-Offload:True",
    "ZERO008": "operator pin_memory is not compiled",
    "ZERO057": "'torch_adam'",
    "ZERO058": "'torch_adam'",
    "ZERO059": "'torch_adam'",
    "ZERO060": "'torch_adam'",
    "ZERO063": "'torch_adam'",
}

#: Rules whose bad case runs, but not as it is written: what the engine says of itself then, and of
#: the good case.
IGNORED: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "OPT003": ({"clipping": 1.0}, {"clipping": 1.0}),
    "OPT005": ({"rate": 0.001}, {"rate": 0.0001}),
    "OPT006": ({"optimizer": "AdamW"}, {"optimizer": "Adam"}),
    "OPT013": ({"warmup": "log"}, {"warmup": "linear"}),
    "OPT014": (
        {"highest_rate": 0.0003},
        {"highest_rate": 0.0003},
    ),  # the lr that is 0.0001 and, in the good one, 0
    "OPT019": ({"optimizer": "AdamW"}, {"optimizer": "AdamW"}),
    "OPT023": ({"rate": 0.0}, {"rate": 0.0001}),
    "OPT024": ({"rate": 0.001}, {"rate": 0.0001}),
    "OPT027": ({"schedule": None}, {"schedule": "WarmupDecayLR"}),
    "OPT032": ({"highest_rate": 0.001}, {"highest_rate": 0.0001}),
    "OPT037": ({"second_beta": 0.99}, {"second_beta": 0.95}),
    "PREC025": ({"autocast": "None"}, {"autocast": "torch.bfloat16"}),
    "ZERO045": ({"stage": 0}, {"stage": 2}),
    "ZERO043": ({"stage": 0, "optimizer": "AdamW"}, {"stage": 1}),
    "ZERO019": ({"stage": 3}, {"stage": 3}),
    "MON002": ({"timed": True}, {"timed": False}),
    "DATA005": ({"curriculum": True}, {"curriculum": True}),
}
#: Bad cases only: the good one needs more than one process.
IGNORED_ALONE: dict[str, dict[str, object]] = {
    "TP007": {"autotp": 0},
    "MON006": {"monitored": False},
}


@pytest.fixture(scope="module")
def starts() -> dict[tuple[str, str], dict[str, Any]]:
    """What the engine says of every case, all of them in one process."""
    both = [(case, part) for case in (*REFUSED, *IGNORED) for part in ("bad", "good")]
    both += [(case, "bad") for case in IGNORED_ALONE]
    configs = [json.loads(getattr(read_case(case), part)["ds_config.json"]) for case, part in both]
    return dict(zip(both, answers(WORKER, configs), strict=True))


@needs_deepspeed
@pytest.mark.integration
@pytest.mark.parametrize("case", REFUSED)
def test_the_engine_refuses_what_the_rule_says(
    case: str, starts: dict[tuple[str, str], dict[str, Any]]
) -> None:
    """The engine stops at the bad case with the rule's reason, and not at the good one, which takes
    two steps.
    """
    bad, good = starts[case, "bad"]["error"], starts[case, "good"]["error"]
    assert REFUSED[case] in (bad or "nothing: it runs")
    if case in STOPS_LATER:
        assert STOPS_LATER[case] in good
        assert REFUSED[case] not in good or case == "PREC010"
    else:
        assert good is None


@needs_deepspeed
@pytest.mark.integration
@pytest.mark.parametrize("case", IGNORED)
def test_the_engine_ignores_what_the_rule_says(
    case: str, starts: dict[tuple[str, str], dict[str, Any]]
) -> None:
    """The engine runs the bad case in another way than it is written, and the good one as it is
    written.
    """
    for part, expected in zip(("bad", "good"), IGNORED[case], strict=True):
        told = starts[case, part]
        assert told["error"] is None
        assert {name: told[name] for name in expected} == pytest.approx(expected)


@needs_deepspeed
@pytest.mark.integration
@pytest.mark.parametrize("case", IGNORED_ALONE)
def test_the_engine_ignores_what_needs_a_switch(
    case: str, starts: dict[tuple[str, str], dict[str, Any]]
) -> None:
    """The engine runs the bad case without what its block is for."""
    told = starts[case, "bad"]
    assert {name: told[name] for name in IGNORED_ALONE[case]} == IGNORED_ALONE[case]


def test_refused_configs_are_errors() -> None:
    """A rule whose bad case the engine refuses whatever the script does is an error."""
    severities = {rule.id: rule.severity for rule in all_file_rules()}
    conditional = {"ACT002"}  # the script may say what the config leaves out
    assert {
        case for case in REFUSED if severities[case.partition("_")[0]] is not Severity.ERROR
    } == conditional
