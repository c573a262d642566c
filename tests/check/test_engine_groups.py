"""DeepSpeed cuts the GPUs into groups, or refuses to, as the rules on sizes say: on a world that is
only pretended.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dsgen
from tests.needs import needs_deepspeed

pytestmark = [needs_deepspeed, pytest.mark.integration]


@pytest.fixture(name="groups")
def _groups() -> Iterator[object]:
    """DeepSpeed's groups with 16 ranks on torch's fake backend."""
    from dsgen.check.engine import _fake_world

    with _fake_world(16):
        from deepspeed.utils import groups

        groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = None
        yield groups
        groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = None


def rules_of(config: str, folder: pytest.TempPathFactory, **beside: int) -> set[str]:
    """The rules that a config breaks."""
    path = folder.mktemp("config") / "ds_config.json"
    path.write_text(config, encoding="utf-8")
    return {finding.rule for finding in dsgen.validate(path, **beside)}


@pytest.mark.parametrize("size", [2, 3, 6, 8, 16, 32])
def test_second_partitions(
    size: int, groups: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """DeepSpeed refuses a zero_hpz_partition_size exactly where ZERO026 does."""
    config = (
        f'{{"train_batch_size": 16, "zero_optimization": {{"stage": 3, '
        f'"zero_hpz_partition_size": {size}}}}}'
    )
    told = "ZERO026" in rules_of(config, tmp_path_factory, gpus=16)
    try:
        groups._create_zero_param_parallel_group(size)  # type: ignore[attr-defined]
    except AssertionError as problem:
        assert told, problem
    else:
        assert not told


@pytest.mark.parametrize("data", [1, 2, 3, 4, 5, 8])
def test_sequence_mesh(data: int, groups: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A mesh that doesn't fit the world, or leaves ranks out, is what SP007 tells of."""
    from torch.distributed.device_mesh import init_device_mesh

    config = (
        f'{{"train_batch_size": 16, "sequence_parallel_size": 4, "data_parallel_size": {data}}}'
    )
    told = "SP007" in rules_of(config, tmp_path_factory, gpus=16)
    try:
        mesh = init_device_mesh(
            "cpu", (data, 4), mesh_dim_names=("data_parallel", "sequence_parallel")
        )
    except RuntimeError as problem:
        assert told, problem
    else:
        assert told == (mesh.size() < 16)
