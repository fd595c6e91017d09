"""Megatron Core with the external data loader: killed twice, resumed on other numbers of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ordeal import Life, Ordeal

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

import millrace.megatron  # noqa: E402
from millrace import MisuseError  # noqa: E402


def test_every_microbatch_is_trained_once(
    ordeal: Callable[..., Ordeal], tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = ordeal("train_megatron.py", at=tmp_path_factory.mktemp("whole")).run([Life(1)])
    losses: List[float] = whole.losses()
    assert losses[-1] < losses[0] - 0.5, "the model does not learn"
    ordeal("train_megatron.py").run().judge(losses, tolerance=1e-5)  # Megatron's loss is in single precision


class OneBatch:
    """What an Iterator takes of a loader."""

    def __init__(self, coordinates: Dict[str, int]) -> None:
        self.coordinates = coordinates

    def __next__(self) -> Any:
        class Batch:
            microbatch = 0

        return Batch()


def test_other_groups_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from megatron.core import parallel_state as mpu

    for name, value in {
        "get_tensor_model_parallel_rank": 1, "get_tensor_model_parallel_world_size": 2, "get_context_parallel_rank": 1,
        "get_context_parallel_world_size": 2, "get_data_parallel_rank": 3, "get_pipeline_model_parallel_rank": 0,
        "get_pipeline_model_parallel_world_size": 1,
    }.items():  # fmt: skip
        monkeypatch.setattr(mpu, name, lambda value=value: value)
    iterator = millrace.megatron.Iterator(OneBatch({"tp": 1, "cp": 1, "dp": 3, "pp": 0}))  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match=r"parallelism: \{tp: 4, pp: 1\}.*without cp"):
        next(iterator)


def test_a_state_is_found_in_the_file_of_any_rank(tmp_path: Path) -> None:
    where = tmp_path / "iter_0000004" / "mp_rank_00"
    where.mkdir(parents=True)
    torch.save({"dataloader_state_dict": {"step": 4}}, where / "train_dataloader_dprank001.pt")
    assert millrace.megatron.read_state(tmp_path) == {"step": 4}
    with pytest.raises(FileNotFoundError, match="--dataloader-save"):
        millrace.megatron.read_state(where / "none")
    torch.save([1], where / "train_dataloader_dprank000.pt")
    with pytest.raises(ValueError, match="no dataloader_state_dict"):
        millrace.megatron.read_state(tmp_path)
