"""millrace.lightning.DataModule: the losses of a bare loop, the state in checkpoints, and the end of the run.

The tests run where Lightning is installed: `make test-adapters`. examples/trainers has the test on several ranks."""

from __future__ import annotations

import importlib.util
import warnings

import pytest

import millrace

STEPS, MICRO, ROWS, LENGTH = 6, 3, 2, 32
SHAPE = ("--steps", str(STEPS), "--microbatches", str(MICRO), "--rows", str(ROWS), "--length", str(LENGTH))
SLOTS = [(step, m) for step in range(STEPS) for m in range(MICRO)]
VOCABULARY = 64

if importlib.util.find_spec("lightning"):
    import lightning
    import torch
    import torch.nn.functional as F
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint

    import millrace.lightning

    torch.set_num_threads(1)

    def loss_sum(weights, batch):
        labels = torch.where(batch["labels"] < 0, batch["labels"], batch["labels"] % VOCABULARY)
        logits = weights[batch["tokens"] % VOCABULARY]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")

    class Module(lightning.LightningModule):
        def __init__(self, fail_at=None):
            super().__init__()
            torch.manual_seed(0)
            self.weights = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, dtype=torch.float64))
            self.seen, self.validated, self.fail_at = [], [], fail_at

        def training_step(self, batch, index):
            if (batch.step, batch.microbatch) == self.fail_at:
                raise ZeroDivisionError
            self.seen.append((batch.step, batch.microbatch))
            return loss_sum(self.weights, batch) * self.trainer.datamodule.loss_factor(batch)

        def validation_step(self, batch, index):
            self.validated.append((batch.step, batch.microbatch))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.5)

    def fit(at, module, data, checkpoint=None, callbacks=(), **more):
        settings = {"max_steps": STEPS, "max_epochs": -1, "enable_checkpointing": bool(callbacks)}
        trainer = lightning.Trainer(
            accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=str(at), callbacks=list(callbacks), **{**settings, **more},
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=False)
            finally:
                data.loader.close()
        return trainer

    def weights_by_hand(house):
        weights = Module().weights
        with millrace.connect(house.path(), tensors="torch", start="fresh") as loader:
            for batch in loader:
                (loss_sum(weights, batch) / batch.step_loss_tokens).backward()
                if batch.microbatch == batch.num_microbatches - 1:
                    with torch.no_grad():
                        weights -= 0.5 * weights.grad
                        weights.grad = None
        return weights

    def close(weights, other):
        return torch.allclose(weights, other, rtol=1e-12, atol=1e-12)

    def test_the_weights_are_those_of_a_bare_loop(house, tmp_path):
        house.start(*SHAPE)
        want, module = weights_by_hand(house), Module()
        loader = millrace.connect(house.path(), start="fresh")
        trainer = fit(tmp_path, module, millrace.lightning.DataModule(loader))
        assert module.seen == SLOTS and trainer.global_step == STEPS and close(module.weights, want)
        house.until("ended", 2)

    def test_steps_of_different_numbers_of_microbatches(house, tmp_path):
        house.start("--steps", "4", "--microbatches", "2", "--rows", "2", "--length", "16", "--longer", "2")
        want, module = weights_by_hand(house), Module()
        loader = millrace.connect(house.path(), start="fresh")
        trainer = fit(tmp_path, module, millrace.lightning.DataModule(loader))
        assert [sum(step == s for step, _ in module.seen) for s in range(4)] == [2, 2, 4, 4]
        assert trainer.global_step == 4 and close(module.weights, want)

    @pytest.mark.parametrize("limits", [{}, {"max_steps": -1, "max_epochs": 7}, {"max_steps": 10**9}])
    def test_the_training_ends_with_the_run(house, tmp_path, limits):
        house.start(*SHAPE)
        module = Module()
        trainer = fit(tmp_path, module, millrace.lightning.DataModule(house.path()), **limits)
        assert module.seen == SLOTS and trainer.global_step == STEPS

    def state_of(checkpoint):
        return torch.load(checkpoint, weights_only=True)["DataModule"]

    def test_a_checkpoint_has_the_state_of_the_last_trained_step(house, tmp_path):
        house.start(*SHAPE)
        keep = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=2, save_top_k=-1)
        first = Module()
        fit(tmp_path, first, millrace.lightning.DataModule(house.path()), callbacks=[keep], max_steps=4)
        for step in (2, 4):
            state = state_of(tmp_path / f"step={step}.ckpt")
            assert state["step"] == step and "microbatch" not in state
        assert house.until("saved", 2)["Slot"]["Step"] == 3
        again = Module()
        trainer = fit(
            tmp_path, again, millrace.lightning.DataModule(house.path()), checkpoint=tmp_path / "step=2.ckpt"
        )
        assert again.seen == SLOTS[2 * MICRO :] and trainer.global_step == STEPS
        assert close(again.weights, weights_by_hand(house))

    @pytest.mark.parametrize("microbatch", range(MICRO))
    def test_a_checkpoint_inside_a_step_resumes_at_its_beginning(house, tmp_path, microbatch):
        """Lightning saves no gradients."""
        house.start(*SHAPE)

        class Saved(Callback):
            def on_train_batch_end(self, trainer, *args):
                if module.seen[-1] == (3, microbatch):
                    trainer.save_checkpoint(tmp_path / "inside.ckpt")

        module = Module(fail_at=(4, 1))
        with pytest.raises(ZeroDivisionError):
            fit(tmp_path, module, millrace.lightning.DataModule(house.path()), callbacks=[Saved()])
        begin = 4 if microbatch == MICRO - 1 else 3
        assert state_of(tmp_path / "inside.ckpt")["step"] == begin
        again = Module()
        fit(tmp_path, again, millrace.lightning.DataModule(house.path()), checkpoint=tmp_path / "inside.ckpt")
        assert again.seen == SLOTS[begin * MICRO :] and close(again.weights, weights_by_hand(house))

    def test_batches_that_lightning_drops_come_again(house, tmp_path):
        """Lightning fetches one batch more than an epoch has, and drops it."""
        house.start(*SHAPE)
        module = Module()
        fit(
            tmp_path, module, millrace.lightning.DataModule(house.path()), limit_train_batches=2 * MICRO, max_steps=-1,
            max_epochs=2,
        )  # fmt: skip
        assert module.seen == SLOTS[: 4 * MICRO]

    def test_an_epoch_that_ends_inside_a_step_is_refused(house, tmp_path):
        house.start(*SHAPE)
        with pytest.raises(millrace.MisuseError, match="limit_train_batches to a multiple"):
            fit(tmp_path, Module(), millrace.lightning.DataModule(house.path()), limit_train_batches=MICRO + 1)

    def test_manual_optimization(house, tmp_path):
        house.start(*SHAPE)

        class Manual(Module):
            automatic_optimization = False

            def training_step(self, batch, index):
                self.manual_backward(super().training_step(batch, index))
                if batch.microbatch == batch.num_microbatches - 1:
                    self.optimizers().step()
                    self.optimizers().zero_grad()

        module = Manual()
        loader = millrace.connect(house.path(), start="fresh")
        fit(tmp_path, module, millrace.lightning.DataModule(loader))
        assert module.seen == SLOTS and close(module.weights, weights_by_hand(house))

    def test_validation_over_batches(house, tmp_path):
        house.start(*SHAPE)
        with millrace.connect(house.path(), tensors="torch") as loader:
            some = [next(loader), next(loader)]
        module = Module()
        data = millrace.lightning.DataModule(millrace.connect(house.path(), start="fresh"), evaluation=some)
        fit(tmp_path, module, data, val_check_interval=2 * MICRO, num_sanity_val_steps=0, check_val_every_n_epoch=None)
        assert module.seen == SLOTS and module.validated == 3 * [(0, 0), (0, 1)]

    def test_each_validation_reads_a_stream_from_its_start(house, tmp_path):
        house.start(*SHAPE)
        (tmp_path / "second").mkdir()
        second = type(house)(house.binary, tmp_path / "second")
        second.start("--steps", "2", *SHAPE[2:])
        try:
            module, over = Module(), millrace.connect(second.path(), tensors="torch")
            data = millrace.lightning.DataModule(house.path(), evaluation=over)
            fit(tmp_path, module, data, val_check_interval=2 * MICRO, check_val_every_n_epoch=None)
            assert module.seen == SLOTS
            assert module.validated == SLOTS[:2] + 3 * SLOTS[: 2 * MICRO], "the first two are Lightning's sanity check"
            over.close()
        finally:
            second.stop()
            second.give_up()
