"""Configs of `accelerate config`, in YAML or JSON, as `accelerate launch` reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, TypeGuard

from ...dataclass import dataclass
from ...findings import Finding
from ...numerals import python_float, read_whole
from ...text.document import FileText, Kind, YamlDocument

#: Texts that are read as on and off. Source: accelerate utils/other.py (str_to_bool) @ 1.15.0.
TRUE: Final = ("y", "yes", "t", "true", "on", "1")
FALSE: Final = ("n", "no", "f", "false", "off", "0")
STAGES: Final = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccelerateConfig(YamlDocument):
    """An accelerate config.

    Source of what its values mean: accelerate commands/launch.py, utils/launch.py @ 1.15.0.
    """

    document_kind: ClassVar[Kind] = "accelerate config"

    @property
    def uses_deepspeed(self) -> bool:
        """Return whether the processes run under DeepSpeed."""
        return self.value("distributed_type") == "DEEPSPEED"

    @property
    def machines(self) -> int:
        """The machines, one where nothing else is written."""
        return self.integer("num_machines") or 1

    @property
    def processes(self) -> int | None:
        """The processes of all machines."""
        value = self.value("num_processes")
        if self.machines == 1 and is_digits(value):  # then accelerate passes text on as well
            return read_whole(value)
        return self.integer("num_processes")

    @property
    def deepspeed(self) -> Mapping[str, object]:
        """The section of DeepSpeed's settings; empty where there is none."""
        return self.block("deepspeed_config")

    @property
    def config_file(self) -> object:
        """The DeepSpeed config that the section names, which then has all the settings."""
        return self.deepspeed.get("deepspeed_config_file")

    @property
    def zero_stage(self) -> int | None:
        """The section's ZeRO stage, 2 where it has none; accelerate converts text.

        None where that is no stage.
        """
        value = self.deepspeed.get("zero_stage")
        if value is None:
            return 2
        return next((stage for stage in STAGES if str(value) == str(stage)), None)

    @property
    def launcher(self) -> object:
        """The launcher by which DeepSpeed reaches the other machines."""
        return self.deepspeed.get("deepspeed_multinode_launcher", "pdsh")


def is_digits(value: object) -> TypeGuard[str]:
    """Return whether this is text that holds a number of reasonable size."""
    return isinstance(value, str) and read_whole(value, 9) is not None


def is_true(value: object) -> bool:
    """Return whether accelerate reads a flag as true."""
    return str(value).lower() in TRUE


def number_of_text(value: object) -> float | None:
    """A number, also one that is written as text, as accelerate passes both on; None for "auto"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    return python_float(str(value))


def read_file(file: FileText) -> Iterator[AccelerateConfig | Finding]:
    """The config that a file is, and what is wrong with its text."""
    yield from file.yaml().findings
    yield AccelerateConfig(source=file.yaml())
