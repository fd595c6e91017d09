"""torchtitan's loader contract: a `BaseDataLoader` over one rank's batches.

    config = Trainer.Config(..., dataloader=millrace.torchtitan.DataLoader.Config(path="run"))

torchtitan saves the loader in its checkpoint under `dataloader`. The state is equal on all ranks, and the checkpoint
resumes on another number of ranks. Written for torchtitan 0.3.0."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Tuple

from torchtitan.components.dataloader import BaseDataLoader

from ._adapters import end_run
from ._batch import Batch
from ._errors import MisuseError
from ._loader import connect
from ._state import in_one_string

__all__ = ["DataLoader"]

log = logging.getLogger("millrace")


class DataLoader(BaseDataLoader):
    """Yields `({"input", "positions"}, labels)` for each microbatch. `labels` are shifted already, -100 is ignored.

    torchtitan builds the attention masks of documents from `positions`. Its `training.local_batch_size` and
    `training.seq_len` are the mixture's `micro_batch_size` and `sequence_length`, and one of its steps takes one step
    of the run: `training.global_batch_size` is the mixture's `global_batch_size`."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """`path` as in `millrace.connect`: a run directory, or the socket of a rank."""

        path: Optional[str] = None

    def __init__(
        self,
        config: "DataLoader.Config",
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: int,
        local_batch_size: int,
        tokenizer: Any = None,
        snapshot_every_n_steps: Optional[int] = None,
    ) -> None:
        self.loader = connect(config.path, tensors="torch", keys="torchtitan")
        self._place = dp_rank, dp_world_size
        self._shape = local_batch_size, seq_len
        self._warned = False

    def __iter__(self) -> Iterator[Tuple[Dict[str, Any], Any]]:
        checked = False
        for batch in self.loader:
            if not checked:
                self._check(batch)
                checked = True
            yield self.split(batch)

    def split(self, batch: Batch) -> Tuple[Dict[str, Any], Any]:
        """Return a batch as torchtitan's inputs and labels."""
        inputs = dict(batch)
        return inputs, inputs.pop("labels")

    def state_dict(self) -> Dict[str, Any]:
        """Return the state after the last yielded batch, as one string: torch.distributed.checkpoint loads only keys
        that a state has before it is loaded."""
        state = self.loader.state_dict()
        if "microbatch" in state and not self._warned:
            self._warned = True
            log.warning(
                "the checkpoint is inside step %d of the run, after %d of its microbatches: torchtitan's steps have "
                "another number of microbatches. Set training.global_batch_size to the mixture's global_batch_size",
                state["step"], state["microbatch"],
            )  # fmt: skip
        return in_one_string(state)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Start from a state. An empty one is ignored, as in torchtitan's own loader."""
        if state_dict:
            self.loader.load_state_dict(state_dict)

    def close(self) -> None:
        """Leave the run. If the run's last batch was yielded, its last step counts as consumed."""
        end_run(self.loader)
        self.loader.close()

    def _check(self, batch: Batch) -> None:
        """Raise MisuseError if torchtitan expects another rank or another shape than the run has."""
        topology, at = self.loader.topology, self.loader.coordinates
        if (at["dp"], topology["dp"]) != self._place:
            raise MisuseError(
                f"torchtitan's data-parallel rank {self._place[0]} of {self._place[1]} reads rank {at['dp']} of "
                f"{topology['dp']}: give `parallelism:` of the mixture file the sizes of torchtitan's, and each "
                "process the socket of its rank"
            )
        if topology["cp"] > 1:
            raise MisuseError(
                "the mixture file has cp > 1 and torchtitan slices sequences itself: count its context-parallel ranks "
                "as `tp` in `parallelism:`, so that each gets whole sequences"
            )
        if "input" not in batch:
            raise MisuseError(
                "this pipeline stage gets no tokens, and torchtitan hands them to every stage: leave `middle_stages` "
                "out of the mixture file"
            )
        shape = tuple(batch["input"].shape)
        if shape != self._shape:
            raise MisuseError(
                f"a batch has the shape {json.dumps(shape)} and torchtitan expects {json.dumps(self._shape)}: set "
                f"micro_batch_size: {self._shape[0]} and sequence_length: {self._shape[1]} in the mixture file"
            )
