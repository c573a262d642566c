"""What a cluster's own peaks say against the memory ledger."""

from __future__ import annotations

from dataclasses import replace

from .ledgers import Memory


def corrected(ledger: Memory, factor: float) -> Memory:
    """`ledger` with what isn't model states (activations, logits, buffers) times `factor`.

    States follow from the optimizer and the precision; how much else a framework keeps depends on its version and
    kernels. What comes on top of the allocated peak (cached blocks, context, NCCL) stays as it is. One ledger or
    columns.
    """
    if factor == 1.0:
        return ledger
    states = ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes
    more = (factor - 1.0) * (ledger.allocated_bytes - states)
    return replace(
        ledger,
        activations_bytes=factor * ledger.activations_bytes,
        output_bytes=factor * ledger.output_bytes,
        buffers_bytes=factor * ledger.buffers_bytes,
        allocated_bytes=ledger.allocated_bytes + more,
        reserved_bytes=ledger.reserved_bytes + more,
        device_bytes=ledger.device_bytes + more,
        required_bytes=ledger.required_bytes + more,
    )
