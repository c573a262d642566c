"""A Kubernetes job that trains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...facts.claims import Claim, claims_of_nodes
from ...facts.document import Kind
from ..launching.script import CommandDocument
from .pods import Role, trainers_of


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesJob(CommandDocument):
    """A PyTorchJob, TrainJob or JobSet; the command is that of its first pod that trains."""

    document_kind: ClassVar[Kind] = "Kubernetes job"
    in_image: ClassVar[bool] = True

    kind_of_job: str
    roles: tuple[Role, ...]  #: the pods

    @property
    def nodes(self) -> int | None:
        """The pods that train; None where their number can't be known, or may change."""
        elastic = self.block("spec/elasticPolicy")
        if elastic.get("minReplicas") != elastic.get("maxReplicas"):
            return None
        counts = [role.count for role in self.trainers]
        return sum(count for count in counts if count is not None) if counts and None not in counts else None

    @property
    def gpus(self) -> int | None:
        """The accelerators of each pod; None where they differ, or are not written."""
        found = {role.gpus for role in self.trainers}
        return found.pop() if len(found) == 1 else None

    @property
    def trainers(self) -> tuple[Role, ...]:
        """The pods that are one training; of a JobSet, whose jobs may do different things, those with most GPUs."""
        return trainers_of(self.roles, self.kind_of_job)

    def claims(self) -> Iterator[Claim]:
        """The nodes and GPUs that the job asks for."""
        at = next(((role.count_at, role.resources) for role in self.trainers), ("spec", "spec"))
        return claims_of_nodes(self.nodes, self.gpus, self.locate(at[0]), self.locate(at[1]))
