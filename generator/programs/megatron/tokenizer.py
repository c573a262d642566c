"""The tokenizer of a job for Megatron-LM and Megatron-DeepSpeed: its kind, and what it reads."""

from __future__ import annotations

from functools import partial
from typing import Final

from ...catalog import closest
from ...findings import ERROR, Violations
from ...job.arguments import argument_values, gives
from ...job.records import Job
from ...rules.planned import composed_jobs, fixed_jobs
from ...rules.violations import megatron_deepspeed, megatron_lm, violation
from .options import LM, PROJECTS, TOKENIZERS, flavour_of, option_table

#: The projects' names for a tokenizer of transformers.
_OF_TRANSFORMERS: Final = frozenset(project.tokenizer for project in PROJECTS.values())
#: What the libraries of Megatron-LM's tokenizers import. Source: core_v0.16.1 pyproject.toml, the
#: extra `mlm`.
_IMPORTED: Final = {
    "HuggingFaceTokenizer": "transformers",
    "HFTokenizer": "transformers",
    "SentencePieceTokenizer": "sentencepiece",
    "GPTSentencePieceTokenizer": "sentencepiece",
    "Llama2Tokenizer": "sentencepiece",
    "TikTokenizer": "tiktoken",
}
_TIK, _PATTERN = "TikTokenizer", "--tiktoken-pattern"
_TYPE: Final = "--tokenizer-type"


def tokenizer_type(job: Job) -> str | None:
    """Return the kind of tokenizer that the job names, else the one that reads what it gives.

    Returns `None` where several may.
    """
    tokenizer = job.data.tokenizer
    if tokenizer.type is not None or not tokenizer.given:
        return tokenizer.type
    if tokenizer.path is not None and tokenizer.path.endswith(".model"):
        return "GPTSentencePieceTokenizer"
    if tokenizer.path is not None:
        return _of_any_model(job)
    return "GPT2BPETokenizer" if tokenizer.merges_file is not None else None


def _of_any_model(job: Job) -> str:
    """The program's name for a tokenizer of transformers."""
    return PROJECTS[flavour_of(job) or LM].tokenizer


def packages(job: Job) -> dict[str, str]:
    """Return the package that reads the job's tokenizer, in any version."""
    in_arguments = argument_values(job.launch.arguments, _TYPE)
    kind = in_arguments[0] if in_arguments else tokenizer_type(job)
    return {_IMPORTED[kind]: "any"} if kind in _IMPORTED else {}


@composed_jobs.rule(
    "TOK001", ERROR, "init", megatron_lm("training/arguments.py (--tokenizer-type)")
)
@fixed_jobs.rule(
    "TOK003", ERROR, "init", megatron_deepspeed("megatron/arguments.py (--tokenizer-type)")
)
def tokenizer_kind_is_known(job: Job) -> Violations:
    """The kind of a tokenizer is one that the program has.
    Prevents: error: argument --tokenizer-type: invalid choice
    Fix: set data.tokenizer.type to one of the program's kinds"""
    kind, where = job.data.tokenizer.type, "/data/tokenizer/type"
    flavour = flavour_of(job) or LM
    option = option_table(flavour).get(_TYPE) if kind is not None else None
    kinds = tuple(map(str, option.choices)) if option else ()
    if kind is not None and kind not in kinds:
        likely = None if kind in _OF_TRANSFORMERS else closest(kind, kinds)
        hint = f"use type: {likely or _of_any_model(job)}, or another of {', '.join(kinds)}"
        yield violation(job, where, f"`type: {kind}` is no tokenizer of {job.framework}", hint)


@composed_jobs.rule(
    "TOK002",
    ERROR,
    "init",
    "NVIDIA/Megatron-LM megatron/training/tokenizer/tokenizer.py:21 @ core_v0.16.1",
)
@fixed_jobs.rule("TOK004", ERROR, "init", megatron_deepspeed("megatron/tokenizer/tokenizer.py:14"))
def tokenizer_has_its_files(job: Job) -> Violations:
    """A tokenizer comes with the files that its kind reads: a path, or a vocabulary and merges.
    Prevents: AssertionError: args.vocab_file is not None
    Fix: set data.tokenizer.path, or vocab_file and merges_file"""
    if not job.data.tokenizer.given or gives(job.launch.arguments, _TYPE):
        return
    kind, place = tokenizer_type(job), "/data/tokenizer"
    if kind is None:
        message = "a vocabulary alone doesn't say which kind of tokenizer reads it"
        hint = "add type: BertWordPieceCase, or merges_file for GPT2BPETokenizer"
        yield violation(job, place, message, hint)
        return
    has_option = partial(gives, job.launch.arguments)
    options = {
        key: job.framework.options[f"data.tokenizer.{key}"][0] for key in TOKENIZERS.get(kind, ())
    }
    lacking = [
        key
        for key, option in options.items()
        if getattr(job.data.tokenizer, key) is None and not has_option(option)
    ]
    if kind == _TIK and flavour_of(job) == LM and not has_option(_PATTERN):
        hint = f"add {_PATTERN} v2 to launch.arguments"
        yield violation(job, place, f"{_TIK} reads {_PATTERN}, which is missing", hint)
    if lacking:
        examples = {"path": "path: /data/tokenizer", "vocab_file": "vocab_file: /data/vocab.json"}
        added = ", ".join(examples.get(key, "merges_file: /data/merges.txt") for key in lacking)
        message = (
            f"{kind} reads {' and '.join(TOKENIZERS[kind])}; {' and '.join(lacking)} is missing"
        )
        yield violation(job, place, message, f"add {added}")
