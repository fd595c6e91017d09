"""The real frameworks keep the metadata of a batch, and a loader refuses them if they would give wrong batches.

Each part runs where its framework is installed: `make test-adapters` installs all of them."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import millrace

STEPS, MICRO, ROWS, LENGTH = 4, 2, 2, 32
SHAPE = ("--steps", str(STEPS), "--microbatches", str(MICRO), "--rows", str(ROWS), "--length", str(LENGTH))
ORDER = [(step, micro) for step in range(STEPS) for micro in range(MICRO)]


def installed(name):
    return importlib.util.find_spec(name) is not None


def place(batch):
    return batch.step, batch.microbatch


def same(batch, other):
    assert type(other) is millrace.Batch and list(other) == list(batch)
    for name in (
        "step",
        "microbatch",
        "num_microbatches",
        "loss_tokens",
        "step_loss_tokens",
        "shapes",
        "segments",
        "slices",
    ):
        assert getattr(other, name) == getattr(batch, name)
    assert other.state_dict() == batch.state_dict() and other.digest == batch.digest
    return True


if installed("torch"):
    import torch

    class Wrapped(torch.utils.data.IterableDataset):
        def __init__(self, loader):
            self.loader = loader

        def __iter__(self):
            return iter(self.loader)

    @pytest.mark.parametrize("tensors", ["torch", "numpy"])
    def test_moving(house, tensors):
        house.start(*SHAPE)
        loader = millrace.connect(house.path(), tensors=tensors)
        batch = next(loader)
        for moved in (batch.to("cpu"), batch.to(torch.device("cpu"), non_blocking=True), batch.to(device="cpu")):
            assert same(batch, moved) and all(isinstance(t, torch.Tensor) for t in moved.values())
        meta = batch.to("meta")
        assert place(meta) == (0, 0) and meta["tokens"].device.type == "meta" and meta.segments == batch.segments

    def test_tensors_share_the_memory(house):
        house.start(*SHAPE, "--frames", "3")
        loader = millrace.connect(house.path(), tensors="torch")
        batch = next(loader)
        tokens, view = batch["tokens"], batch["tokens"][0, 3:5]
        assert tokens.dtype == torch.int64 and batch["loss_mask"].dtype == torch.float32
        before, third_and_fourth = batch.digest, view.tolist()
        tokens[0, 0] += 1
        assert batch.digest != before, "a copy was given"
        del batch, tokens
        assert loader.stats()["held_frames"] == 1 and view.tolist() == third_and_fourth
        del view
        assert loader.stats()["held_frames"] == 0

    def test_pinning(house):
        house.start(*SHAPE)
        batch = next(millrace.connect(house.path(), tensors="torch"))
        calls = []

        class Pinned(torch.Tensor):
            def pin_memory(self, *args):
                calls.append(1)
                return self.clone()

        pinned = batch.with_tensors({name: t.as_subclass(Pinned) for name, t in batch.items()})
        assert same(batch, pinned.pin_memory()) and len(calls) == len(batch)

    def test_pinning_by_torch(house):
        """torch's DataLoader(pin_memory=True) either asks the batch to pin itself, or rebuilds it, as older PyTorch
        does."""
        house.start(*SHAPE)
        batch = next(millrace.connect(house.path(), tensors="torch"))
        from torch.utils.data._utils.pin_memory import pin_memory

        class Pinned(torch.Tensor):
            def pin_memory(self, *args):
                return self.clone()

        pinned = pin_memory(batch.with_tensors({name: t.as_subclass(Pinned) for name, t in batch.items()}))
        assert type(pinned) is millrace.Batch and pinned.digest == batch.digest
        try:
            pinned.step
        except AttributeError as e:
            assert "batch.pin_memory()" in str(e)
        else:
            assert same(batch, pinned)

    def test_trees(house):
        house.start(*SHAPE)
        batch = next(millrace.connect(house.path(), tensors="torch"))
        from torch.utils import _pytree

        assert same(batch, _pytree.tree_map(lambda t: t.clone(), batch))
        assert same(batch, _pytree.tree_map(lambda t: t.clone(), {"a": [batch]})["a"][0])
        leaves, structure = _pytree.tree_flatten(batch)
        assert len(leaves) == len(batch) and structure == _pytree.tree_flatten(batch)[1]

    @pytest.mark.parametrize("tensors", ["auto", "numpy"])
    @pytest.mark.parametrize("wrap", [lambda loader: loader, Wrapped], ids=["itself", "wrapped"])
    def test_data_loader(house, tensors, wrap):
        """torch's DataLoader reads the loader, directly and inside a dataset of the user."""
        house.start(*SHAPE)
        loader = millrace.connect(house.path(), tensors=tensors)
        outer = torch.utils.data.DataLoader(wrap(loader), batch_size=None, num_workers=0)
        with pytest.raises(TypeError):
            len(outer)
        got = []
        for batch in outer:
            assert (
                isinstance(batch["tokens"], torch.Tensor)
                and batch["tokens"].shape == (ROWS, LENGTH)
                and len(batch.segments) > 0
            )
            got.append(place(batch))
            assert batch.state_dict() == loader.state_dict()
        assert got == ORDER

    def test_collated_batches_have_no_place(house):
        """A collation of two batches is no batch of Millrace, so reading its place raises."""
        house.start(*SHAPE)
        pairs = torch.utils.data.DataLoader(millrace.connect(house.path()), batch_size=2)
        for batch in pairs:
            assert batch["tokens"].shape == (2, ROWS, LENGTH)
            with pytest.raises(AttributeError, match="has no step"):
                batch.step

    @pytest.mark.parametrize("wrap", [lambda loader: loader, Wrapped], ids=["itself", "wrapped"])
    @pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
    @pytest.mark.parametrize("stay", [False, True], ids=["", "persistent"])
    def test_workers_are_refused(house, wrap, context, stay):
        """A forked worker refuses to read. For another kind of worker, the loader refuses to be pickled."""
        house.start(*SHAPE)
        data, seconds = wrap(millrace.connect(house.path())), []
        while not seconds or min(seconds) >= 1 and len(seconds) < 5:  # other programs may keep the processors busy
            outer = torch.utils.data.DataLoader(
                data, batch_size=None, num_workers=2, multiprocessing_context=context, persistent_workers=stay
            )
            began = time.monotonic()
            with pytest.raises((millrace.MisuseError, TypeError), match="num_workers=0"):
                next(iter(outer))
            seconds.append(time.monotonic() - began)
        assert min(seconds) < 1, seconds

    class Late(torch.utils.data.IterableDataset):
        """Connects when it is iterated: in the worker."""

        def __init__(self, path):
            self.path = path

        def __iter__(self):
            yield from millrace.connect(self.path)

    def test_connecting_in_a_worker_is_refused(house):
        house.start(*SHAPE)
        with pytest.raises(Exception, match="num_workers=0"):
            next(iter(torch.utils.data.DataLoader(Late(house.path()), batch_size=None, num_workers=2)))


    def test_distributed_checkpoint(house, tmp_path):
        """DCP takes `dcp_state()`: a new loader, which has no state yet, gets the saved one."""
        import torch.distributed.checkpoint as dcp

        house.start(*SHAPE)
        loader = millrace.connect(house.path())
        for saved_after in (ORDER[0], ORDER[3]):  # inside a step, and at a step's end
            while place(batch := next(loader)) != saved_after:
                pass
            dcp.save({"loader": loader.dcp_state()}, checkpoint_id=tmp_path / "checkpoint")
            again = millrace.connect(house.path())
            dcp.load({"loader": again.dcp_state()}, checkpoint_id=tmp_path / "checkpoint")
            assert again.state_dict() == batch.state_dict() == loader.state_dict()
            loader.close()
            loader = again
        with pytest.raises(Exception, match=r"loader\.dcp_state\(\)"):  # DCP may wrap it
            dcp.save({"loader": loader}, checkpoint_id=tmp_path / "other")


if installed("optree"):
    import optree

    def test_optree(house):
        house.start(*SHAPE)
        batch = next(millrace.connect(house.path(), tensors="numpy"))
        assert same(batch, optree.tree_map(lambda a: a.copy(), batch))
        assert same(batch, optree.tree_map(lambda a: a.copy(), (batch, 1 + batch["tokens"]))[0])


if installed("accelerate"):
    import accelerate
    from accelerate import data_loader as accelerated

    def test_accelerate_moves(house):
        house.start(*SHAPE)
        batch = next(millrace.connect(house.path(), tensors="torch"))
        from accelerate.utils import recursively_apply, send_to_device

        assert same(batch, send_to_device(batch, torch.device("cpu"), non_blocking=True))
        changed = recursively_apply(lambda t: t.clone(), batch)
        with pytest.raises(AttributeError, match=r"has no step_loss_tokens.*batch\.to\(device\)"):
            changed.step_loss_tokens

    def test_accelerator_leaves_the_loader(house):
        house.start(*SHAPE)
        loader = millrace.connect(house.path())
        assert accelerate.Accelerator(cpu=True).prepare(loader) is loader
        assert [place(b) for b in loader] == ORDER

    def test_a_state_behind_a_loader_that_looks_ahead(house):
        """Accelerate fetches one batch ahead: the loader's state is one batch late, the batch's state is not."""
        house.start(*SHAPE)
        loader = millrace.connect(house.path())
        keep = accelerate.utils.DataLoaderConfiguration(dispatch_batches=False)
        outer = accelerate.Accelerator(cpu=True, dataloader_config=keep).prepare(
            torch.utils.data.DataLoader(loader, batch_size=None)
        )
        states = []
        for batch in outer:
            states.append((batch.state_dict()["step"], batch.state_dict().get("microbatch", 0)))
        after = [*ORDER[1:], (STEPS, 0)]
        assert states == after

    @pytest.mark.parametrize("dispatch", [True, False])
    @pytest.mark.parametrize("wrap", [lambda loader: loader, Wrapped], ids=["itself", "wrapped"])
    def test_accelerate_on_two_ranks_is_refused(house, monkeypatch, dispatch, wrap):
        house.start(*SHAPE, "--ranks", "2")
        loader = millrace.connect(house.path())
        accelerate.Accelerator(cpu=True)
        outer = accelerated.prepare_data_loader(
            torch.utils.data.DataLoader(
                wrap(loader), batch_size=None if dispatch else 1,
                collate_fn=lambda b: b[0] if isinstance(b, list) else b,
            ),
            device=torch.device("cpu"), num_processes=2, process_index=0, put_on_device=True, dispatch_batches=dispatch,
        )  # fmt: skip
        monkeypatch.setitem(accelerate.PartialState._shared_state, "num_processes", 2)
        with pytest.raises(millrace.MisuseError, match="on every rank"):
            next(iter(outer))


if installed("accelerate") and installed("transformers"):

    @pytest.mark.parametrize("way", ["dispatch", "shard", "trainer", "right"])
    def test_wrong_ways_on_two_ranks(house, way):
        """Two processes with gloo. Each of them gets the refusal, so that none waits for the other."""
        house.start(*SHAPE, "--ranks", "2")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        ranks = [
            subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "wrong_way.py"), way, str(house.dir)],
                env={**os.environ, **group, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )
            for rank in range(2)
        ]  # fmt: skip
        want = {
            "dispatch": "Accelerate reads this loader on rank 0 alone.*iterate the loader itself on every rank",
            "shard": "Accelerate gives each rank every n-th batch.*iterate the loader itself on every rank",
            "trainer": "on rank 0 alone.*Hugging Face Trainer use millrace.hf.Trainer",
            "right": "none",
        }[way]
        try:
            for rank in ranks:
                out, error = rank.communicate(timeout=120)
                seconds, _, told = out.strip().partition(" ")
                assert re.search(want, told), error
                assert float(seconds) < (1 if os.getloadavg()[0] < os.cpu_count() else 5), "on a busy machine"
        finally:
            [rank.kill() for rank in ranks]


if installed("transformers"):
    import transformers

    class Model(torch.nn.Module):
        """Takes all tensors of a batch. Its loss means nothing."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, tokens, labels, position_ids, segment_ids, loss_mask):
            return {"loss": (self.weight * tokens.float().mean()).sum()}

    class Trainer(transformers.Trainer):
        def __init__(self, loader, **kw):
            self.loader, self.seen = loader, []
            super().__init__(**kw)

        def get_train_dataloader(self):
            return self.loader

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            self.seen.append(place(inputs))
            assert inputs.step_loss_tokens >= inputs.loss_tokens > 0
            return super().compute_loss(model, inputs, return_outputs)

    def arguments(tmp_path):
        return transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"), max_steps=STEPS, gradient_accumulation_steps=MICRO,
            per_device_train_batch_size=1, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True,
            remove_unused_columns=False,
        )  # fmt: skip

    def test_trainer_with_the_loader(house, tmp_path):
        """The way that the error message names."""
        house.start(*SHAPE)
        trainer = Trainer(millrace.connect(house.path()), model=Model(), args=arguments(tmp_path))
        trainer.train()
        assert trainer.seen == ORDER

    def test_trainer_with_a_dataset_on_one_rank(house, tmp_path):
        """The loader as `train_dataset`, on one rank: every batch comes once."""
        house.start(*SHAPE)
        seen = []

        class Obvious(transformers.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                seen.append(inputs["tokens"].clone())
                return super().compute_loss(model, inputs, return_outputs)

        loader = millrace.connect(house.path())
        Obvious(
            model=Model(),
            args=arguments(tmp_path),
            train_dataset=Wrapped(loader),
            data_collator=lambda batches: batches[0],
        ).train()
        loader.close()
        want = [b["tokens"].clone() for b in millrace.connect(house.path(), start="fresh")]
        assert len(seen) == len(want) and all(torch.equal(a, b) for a, b in zip(seen, want))


if installed("lightning"):
    import lightning
    from lightning.fabric.utilities.apply_func import move_data_to_device

    def test_lightning_moves(house):
        house.start(*SHAPE)
        batch = next(millrace.connect(house.path(), tensors="torch"))
        assert same(batch, move_data_to_device(batch, torch.device("cpu")))
        assert place(move_data_to_device(batch, torch.device("meta"))) == (0, 0)

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.seen = []

        def training_step(self, batch, index):
            return self.weight.sum()

        def validation_step(self, batch, index):
            self.seen.append(place(batch))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def lightning_trainer(at):
        return lightning.Trainer(
            max_steps=STEPS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=str(at),
        )  # fmt: skip

    @pytest.mark.parametrize("wrap", [lambda loader: loader, Wrapped], ids=["itself", "wrapped"])
    def test_lightning_without_the_data_module_is_refused(house, tmp_path, wrap):
        """The state in its checkpoints would be one batch late."""
        house.start(*SHAPE)
        batches = wrap(millrace.connect(house.path()))
        with pytest.raises(millrace.MisuseError, match=r"datamodule=millrace\.lightning\.DataModule\(loader\)"):
            lightning_trainer(tmp_path).fit(Lit(), batches)

    def test_lightning_validates(house, tmp_path):
        house.start(*SHAPE)
        model = Lit()
        lightning_trainer(tmp_path).validate(model, millrace.connect(house.path()), verbose=False)
        assert model.seen == ORDER



if installed("jax"):
    import jax
    import numpy as np

    @pytest.fixture
    def small_house(house):
        house.start("--steps", "20", "--microbatches", "1", "--rows", "2", "--length", "32", "--frames", "4")
        return house

    def test_jax_arrays_are_the_batches(small_house):
        want = [b.digest for b in millrace.connect(small_house.path(), tensors="numpy", start="fresh")]
        small_house.stop()
        small_house.start("--steps", "20", "--microbatches", "1", "--rows", "2", "--length", "32", "--frames", "4")
        with jax.enable_x64(True):
            loader = millrace.connect(small_house.path(), tensors="jax", start="fresh")
            got = []
            for batch in loader:
                assert all(isinstance(value, jax.Array) for value in batch.values())
                got.append(batch.digest)
        assert got == want and loader.stats()["copied_batches"] == 0

    def test_a_jax_array_keeps_its_frame_without_a_copy(small_house):
        loader = millrace.connect(small_house.path(), tensors="jax")
        batch = next(loader)
        segments = batch["segment_ids"]
        held = np.asarray(segments).copy()
        place = np.from_dlpack(segments).__array_interface__["data"][0]
        ring = loader._stream.conn.ring
        assert ring.address <= place < ring.address + len(ring.memory)
        del batch
        for _ in range(8):
            next(loader)
        assert loader.stats()["held_frames"] == 1 and np.array_equal(segments, held)
        total = jax.jit(lambda s: s.sum())(segments)
        del segments
        assert int(total) == held.sum() and loader.stats()["held_frames"] == 0

    def test_jax_copies_memory_that_is_read_only():
        """The ranks of a group map a ring that they can only read."""
        from millrace._arrays import jax_from_numpy

        array = np.arange(64, dtype=np.int32)
        array.flags.writeable = False
        assert np.array_equal(jax_from_numpy()(array), array)

    def test_jax_computes_from_a_dropped_array(small_house):
        """A computation that JAX has started keeps the frame until it has read it."""
        loader = millrace.connect(small_house.path(), tensors="jax")
        slow = jax.jit(lambda t: jax.lax.fori_loop(0, 2000, lambda i, x: (x * 31 + t) % 1009, t).sum())
        sums = [slow(next(loader)["segment_ids"]) for _ in range(20)]
        small_house.stop()
        small_house.start("--steps", "20", "--microbatches", "1", "--rows", "2", "--length", "32", "--frames", "4")
        again = millrace.connect(small_house.path(), tensors="numpy", start="fresh")
        assert [int(s) for s in sums] == [int(slow(next(again)["segment_ids"].copy())) for _ in range(20)]


@pytest.mark.parametrize("library", [name for name in ("numpy", "torch", "jax") if installed(name)])
def test_dlpack_keeps_the_frame(house, library):
    import numpy as np

    take = {
        "numpy": lambda: np.from_dlpack,
        "torch": lambda: torch.from_dlpack,
        "jax": lambda: jax.dlpack.from_dlpack,
    }[library]()
    house.start("--steps", "20", "--microbatches", "1", "--rows", "2", "--length", "32", "--frames", "4")
    loader = millrace.connect(house.path(), tensors="numpy")
    first = next(loader)
    view, copy = take(first["segment_ids"]), first["segment_ids"].copy()
    del first
    for _ in range(8):
        next(loader)
    assert loader.stats()["held_frames"] == 1 and np.array_equal(np.asarray(view), copy)
    del view
    assert loader.stats()["held_frames"] == 0
