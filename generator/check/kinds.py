"""Tell what kind of document a file is.

Where the name shows the kind, it decides; else the keys or the lines of the file do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import PurePath
from typing import Final

from ..findings import Finding
from ..numerals import is_whole
from ..patterns import lazy_pattern
from ..programs.records import PROGRAMS
from ..submission.record import Signs, loaded
from ..text.document import Document, FileText, Kind

SCRIPTS: Final = frozenset({".sh", ".bash", ".sbatch", ".slurm", ".job", ".pbs", ".lsf"})
MAPPINGS: Final = frozenset({".json", ".hjson", ".yaml", ".yml"})
YAML: Final = frozenset({".yaml", ".yml"})
#: Names that DeepSpeed configs often have, and other files sometimes.
_DEEPSPEED_NAME: Final = lazy_pattern(
    r"(?:^|[^a-z0-9])(?:ds|deepspeed|zero[-_]?[0-9]?|z[0-3])(?:[^a-z]|$)"
)
#: Names that only configs have, unlike `deepspeed_results.json`: `ds_config`, `zero3`.
CONFIG_NAME: Final = lazy_pattern(
    r"(?:^|[^a-z0-9])(?:ds|deepspeed)[-_]?(?:conf|cfg|z|[0-9]+(?![a-z0-9])|\.)"
    r"|(?:^|[^a-z])zero[-_]?(?:stage)?[-_]?[0-9]"
)
_OUR_SPECS: Final = ("dsgen.yaml", "dsgen.yml")
SHEBANG: Final = lazy_pattern(r"#![^\n]*\b(?:ba|da|k|z)?sh\b")
#: A first line that names a program other than a shell with the grammar of sh: expect, csh, fish.
#: `#!/usr/bin` names none, and bash reads such a script where it is handed one.
_OTHER_SHEBANG: Final = lazy_pattern(
    r"#![ \t]*/(?![\w/]*\b(?:bin|env)[ \t]*(?:\n|\Z))"
    r"(?:(?![^\n]*sh\b)|[^\n]*\b(?:t?csh|fish)\b)"
)
#: Of Slurm, PBS, LSF, Moab, Cobalt and the Fujitsu scheduler.
DIRECTIVE: Final = lazy_pattern(rb"^#(?:SBATCH|PBS|BSUB|MSUB|COBALT|PJM)[ \t]+-", re.MULTILINE)
_HOST_LINE: Final = lazy_pattern(r"\s*\S+\s+slots\s*=", re.IGNORECASE)
#: Commands by which a text whose name tells no kind is taken for a launch script.
_SHOWS_SCRIPT: Final = lazy_pattern(r"\b(?:srun|torchrun|deepspeed|accelerate launch|mpirun)\b")
_MEGATRON_OPTIONS: Final = (
    "--num-layers",
    "--hidden-size",
    "--tensor-model-parallel-size",
    "--micro-batch-size",
)
#: An override of a config: `train.train_iters=500`.
_OVERRIDE_LINE: Final = lazy_pattern(r"[+~]{0,2}[a-z_]+(?:\.[a-z_0-9]+)+=")
_OPTION_LINE: Final = lazy_pattern(r"\s*--[a-z][\w-]*")
_ALIKE: Final = 0.8  # difflib's ratio from which a key counts as another one misspelt
_MOST_LINES: Final = 200  # that are looked at for a file's kind
MOST_CHARACTERS: Final = 100_000  # of these lines: a bound on time
#: How the file begins that git keeps in place of one that Git LFS stores.
_LFS_POINTER: Final = "version https://git-lfs.github.com/"
#: Keys that show a file of something else: a model's config, a tokenizer, a package, a run's log,
#: DeepSpeed's inference.
_KEYS_OF_OTHERS: Final = frozenset(
    {
        "added_tokens_decoder",
        "architectures",
        "dependencies",
        "enable_cuda_graph",
        "global_step",
        "injection_policy",
        "kernel_inject",
        "log_history",
        "model_type",
        "replace_method",
        "replace_with_kernel_inject",
        "step_time",
        "tokenizer_class",
        "weight_map",
    }
)


@cache
def _all_signs() -> Mapping[Kind, Signs]:
    """Return the keys that are signs of a kind, by the kind; some kinds have none."""
    return {name: kind.signs for name, kind in PROGRAMS.kinds.items() if kind.signs is not None}


def read_as(kind: Kind, file: FileText) -> Iterator[Document | Finding]:
    """Read the documents of a file of a kind, and findings on its text."""
    documents: Iterator[Document | Finding] = loaded(PROGRAMS.kinds[kind].reader)(file)
    return documents


def resembles(keys: frozenset[str], kind: Kind) -> bool:
    """Tell whether keys look like those of a kind, misspelt ones included.

    It takes half of the keys, or one that hardly any other kind has. A file without keys may be of
    any kind.
    """
    signs = _all_signs()[kind]
    matches = (get_close_matches(key, signs.every, n=1, cutoff=_ALIKE) for key in keys)
    meant = [match[0] for match in matches if match]
    return 2 * len(meant) >= len(keys) or not (signs.plain | signs.rare).isdisjoint(meant)


def tells_by_name(path: PurePath) -> bool:
    """Return whether a file's name alone shows that it is a document."""
    if is_script(path):
        return True
    is_yaml = path.suffix.lower() in YAML
    return not is_yaml and _DEEPSPEED_NAME.search(path.name.lower()) is not None


def is_script(path: PurePath) -> bool:
    """Return whether a file is a shell script by its name."""
    return path.suffix.lower() in SCRIPTS


def shows_shell(path: PurePath, content: str) -> bool:
    """Return whether a file is a shell script by its name, its first line or a directive."""
    is_shown = is_script(path) or SHEBANG.match(content) is not None
    return is_shown or DIRECTIVE.search(content.encode("utf-8", "replace")) is not None


def is_for_another(path: PurePath, content: str) -> bool:
    """Return whether a file is a script by its name, but its first line names no such shell."""
    return is_script(path) and _OTHER_SHEBANG.match(content) is not None


def may_be_hjson(path: PurePath, keys: frozenset[str]) -> bool:
    """Tell whether JSON that isn't strict is worth reading as HJSON, by its name or its keys.

    `keys` are the words of the text that look like keys.
    """
    if path.suffix.lower() == ".hjson" or _DEEPSPEED_NAME.search(path.name.lower()):
        return True
    signs = _all_signs()["DeepSpeed config"]
    return not keys.isdisjoint(signs.plain) or len(keys & signs.rare) > 1


def deepspeed_keys(keys: frozenset[str]) -> frozenset[str]:
    """Return those of the keys that a DeepSpeed config has at its top."""
    return keys & _all_signs()["DeepSpeed config"].every


def kind_of(
    path: PurePath, content: str, keys: frozenset[str], *, named: bool = False
) -> Kind | None:
    """The kind of the document at `path`; None where it is none.

    `keys` are its top-level keys, as far as they could be read. Where the user has `named` the
    file, any evidence is enough.
    """
    name, suffix = path.name.lower(), path.suffix.lower()
    if content.startswith(_LFS_POINTER):
        return None
    if name == ".deepspeed_env":
        return "environment file"
    if name in _OUR_SPECS:
        return "job spec"
    if is_for_another(path, content):
        return None

    is_mapping = suffix in MAPPINGS
    if suffix in SCRIPTS or (not is_mapping and SHEBANG.match(content)):
        return "launch script"
    if is_mapping:
        return _kind_of_mapping(name, keys, is_json=suffix not in YAML, named=named)
    if _is_hostfile(name, suffix, content):
        return "hostfile"
    return _kind_of_text(content, keys, named=named)


def _kind_of_mapping(name: str, keys: frozenset[str], *, is_json: bool, named: bool) -> Kind | None:
    """The kind of JSON or YAML, by its keys and, of JSON, its name."""
    has_deepspeed_name = is_json and _DEEPSPEED_NAME.search(name)
    if has_deepspeed_name and _all_signs()["DeepSpeed config"].enough(keys, plain_suffices=False):
        return "DeepSpeed config"  # even if keys of another kind are among its own

    kind = _kind_by_keys(keys, named=named)
    if kind is None and is_json and _is_named_deepspeed(name, keys):
        return "DeepSpeed config"
    return kind


def is_evidence(keys: frozenset[str]) -> bool:
    """Tell whether keys look like those of some kind, even if they aren't enough to be one."""
    if not keys.isdisjoint(_KEYS_OF_OTHERS):
        return False
    return any(signs.is_near(keys) for signs in _all_signs().values())


def _is_named_deepspeed(name: str, keys: frozenset[str]) -> bool:
    """Tell whether a JSON file whose keys show no kind is a DeepSpeed config by its name."""
    if not keys.isdisjoint(_KEYS_OF_OTHERS):
        return False
    if name.endswith(".hjson"):
        return True
    if not _DEEPSPEED_NAME.search(name):
        return False
    signs = _all_signs()["DeepSpeed config"]
    has_a_sign = not keys.isdisjoint(signs.plain) or signs.enough(keys, plain_suffices=False)
    return not keys or has_a_sign or CONFIG_NAME.search(name) is not None


def _kind_by_keys(keys: frozenset[str], *, named: bool) -> Kind | None:
    """The kind that has the most of its signs among `keys`, if they are enough.

    None where a key shows a file of something else. Of a file that is `named` little is enough.
    """
    if not keys.isdisjoint(_KEYS_OF_OTHERS):
        return None

    signs = _all_signs()
    best = max(signs, key=lambda kind: signs[kind].weight(keys))
    # Every key of a job spec is a common word, so one alone shows nothing.
    too_little = 1 if best == "job spec" else 0
    if named and signs[best].weight(keys) > too_little and resembles(keys, best):
        return best
    enough = [
        kind
        for kind in signs
        if signs[kind].enough(keys, plain_suffices=kind != "DeepSpeed config")
    ]
    return max(enough, key=lambda kind: signs[kind].weight(keys), default=None)


def _kind_of_text(content: str, keys: frozenset[str], *, named: bool) -> Kind | None:
    """The kind of a file whose name tells none, by its lines or its keys."""
    lines = _lines(content)
    if lines and all(map(_OPTION_LINE.match, lines[:5])):
        has_megatrons = any(line.lstrip().startswith(_MEGATRON_OPTIONS) for line in lines)
        return "Megatron arguments" if has_megatrons else None

    are_overrides = [_OVERRIDE_LINE.match(line) is not None for line in lines[:5]]
    if lines and sum(are_overrides) >= min(len(are_overrides), 4):  # one may be mistyped
        return "Megatron-Bridge overrides" if _sets_bridge(lines) else None

    if lines and _HOST_LINE.match(lines[0]):
        return "hostfile"
    # Specs come before scripts: a spec names a launcher as its framework, as in
    # `framework: deepspeed`.
    if _kind_by_keys(keys, named=False) == "job spec":
        return "job spec"
    if "#SBATCH" in content or _SHOWS_SCRIPT.search(content):
        return "launch script"
    return _kind_by_keys(keys, named=named)


def _sets_bridge(lines: list[str]) -> bool:
    """Tell whether overrides are Megatron-Bridge's: no other config has these sections together."""
    sections = {line.lstrip("+~").partition(".")[0] for line in lines}
    of_training = {"train", "checkpoint", "dataset", "optimizer"}
    return "model" in sections and not sections.isdisjoint(of_training)


def _is_hostfile(name: str, suffix: str, content: str) -> bool:
    """Tell whether a file is a hostfile: by its name, else by most of its lines."""
    if not name.startswith("hostfile"):
        return False
    if not suffix or is_whole(suffix[1:]):  # `hostfile`, `hostfile.2`
        return True
    lines = _lines(content)
    return 2 * sum(bool(_HOST_LINE.match(line)) for line in lines) > len(lines)


def _lines(content: str) -> list[str]:
    """The lines at a file's beginning that are neither blank nor comments."""
    lines = content[:MOST_CHARACTERS].splitlines()[:_MOST_LINES]
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
