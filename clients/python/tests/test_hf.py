"""millrace.hf.Trainer: the losses and gradients of a bare loop, its checkpoints, its end, and its refusals.

The tests run where transformers is installed: `make test-adapters`. examples/trainers has the test on several ranks."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time

import pytest

import millrace

from conftest import AT_ONCE

STEPS, MICRO, ROWS, LENGTH = 6, 3, 2, 32
SHAPE = ("--steps", str(STEPS), "--microbatches", str(MICRO), "--rows", str(ROWS), "--length", str(LENGTH))
VOCABULARY = 64

if importlib.util.find_spec("transformers"):
    import torch
    import torch.nn.functional as F
    import transformers

    import millrace.hf
    from millrace._hf_inputs import model_inputs

    torch.set_num_threads(1)
    TINY = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 2 * LENGTH}

    def llama(**more):
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, **HEADS, **more))

    def gpt2(**more):
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=2 * LENGTH, resid_pdrop=0, embd_pdrop=0,
            attn_pdrop=0, **more,
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config)

    def arguments(at, **more):
        settings = {
            "output_dir": str(at / "out"), "max_steps": STEPS, "use_cpu": True, "report_to": [], "disable_tqdm": True,
            "optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "max_grad_norm": 0.0,
            "save_strategy": "no", "logging_steps": 1, "log_level": "error",
        }  # fmt: skip
        return transformers.TrainingArguments(**{**settings, **more})

    def small(batch):
        """Takes tokens and labels modulo the vocabulary's size, in place. Returns the batch."""
        tokens, labels = batch._get("tokens"), batch._get("labels")
        tokens %= VOCABULARY
        labels[labels != -100] %= VOCABULARY
        return batch

    class Trainer(millrace.hf.Trainer):
        """Notes each microbatch that is trained on."""

        seen = ()

        def _convert(self, batch):
            return super()._convert(small(batch))

        def compute_loss(self, model, inputs, *args, **named):
            if self.is_in_train and self.microbatch is not None:
                self.seen = (*self.seen, (self.microbatch.step, self.microbatch.microbatch))
            return super().compute_loss(model, inputs, *args, **named)

    def connect(house, **more):
        return millrace.connect(house.path(), keys="hf", **more)

    def slots(first=0, last=STEPS):
        return tuple((step, m) for step in range(first, last) for m in range(MICRO))

    def trained_by_hand(loader, model):
        """A bare loop: the summed loss of all microbatches, divided by the labels of the step."""
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        losses = [0.0] * STEPS
        for batch in loader:
            given = small(batch)
            alone = (given["segment_ids"][:, :, None] == given["segment_ids"][:, None, :]).tril()[:, None]
            logits = model(
                input_ids=given["tokens"], position_ids=given["position_ids"], attention_mask=alone, use_cache=False
            ).logits
            loss = F.cross_entropy(logits.flatten(0, 1), given["labels"].flatten(), reduction="sum")
            (loss / batch.step_loss_tokens).backward()
            losses[batch.step] += loss.item() / batch.step_loss_tokens
            if batch.microbatch == batch.num_microbatches - 1:
                optimizer.step()
                optimizer.zero_grad()
        return losses

    def logged(trainer):
        return [line["loss"] for line in trainer.state.log_history if "loss" in line]

    @pytest.mark.parametrize("make", [llama, gpt2])
    def test_the_losses_and_weights_are_those_of_a_bare_loop(house, tmp_path, make):
        house.start(*SHAPE)
        want = make()
        losses = trained_by_hand(millrace.connect(house.path()), want)
        trainer = Trainer(make(), arguments(tmp_path), loader=connect(house, start="fresh"))
        trainer.train()
        assert trainer.seen == slots()
        assert logged(trainer) == pytest.approx(losses, rel=1e-5)
        for name, weight in want.named_parameters():
            got = dict(trainer.model.named_parameters())[name]
            assert torch.allclose(got, weight, atol=1e-6, rtol=1e-4), name
            assert not torch.equal(got, dict(make().named_parameters())[name]) or not weight.requires_grad

    def test_steps_of_different_numbers_of_microbatches(house, tmp_path):
        house.start("--steps", "4", "--microbatches", "2", "--rows", "2", "--length", "16", "--longer", "2")
        want = llama()
        losses = trained_by_hand(millrace.connect(house.path()), want)
        trainer = Trainer(llama(), arguments(tmp_path), loader=connect(house, start="fresh"))
        trainer.train()
        counts = [sum(step == s for step, _ in trainer.seen) for s in range(4)]
        assert counts[0] == 2 and counts[3] == 4, counts
        assert logged(trainer) == pytest.approx(losses[:4], rel=1e-5)

    @pytest.mark.parametrize("attention", ["sdpa", "eager"])
    @pytest.mark.parametrize("layout", ["packed", "varlen"])
    @pytest.mark.parametrize("make", [llama, gpt2])
    def test_a_token_does_not_see_another_document(house, make, layout, attention):
        house.start(*SHAPE[:-1], "64", "--layout", layout)
        batch = small(next(connect(house, tensors="torch")))
        model = make(attn_implementation=attention, use_cache=False).eval()
        inputs = model_inputs(batch, model)
        tokens, starts = inputs["input_ids"], inputs["position_ids"] == 0
        segment = starts.cumsum(1)
        assert segment.max() >= 2 and (segment == 1).sum() > 1, "the rows have too few documents"

        def logits(ids):
            with torch.no_grad():
                return model(**{**inputs, "input_ids": ids}).logits

        first, before = segment == 1, logits(tokens)
        after = logits(torch.where(first, (tokens + 1) % VOCABULARY, tokens))
        assert torch.allclose(before[~first], after[~first], atol=1e-6)
        assert (before[first] - after[first]).abs().max() > 1e-3
        later = tokens.clone()
        later[:, 1] = (later[:, 1] + 1) % VOCABULARY
        assert torch.allclose(logits(later)[:, 0], before[:, 0], atol=1e-6), "a token sees the next one"

    def test_flash_attention_gets_the_bounds_of_all_rows(house):
        house.start(*SHAPE)
        batch = next(connect(house, tensors="torch"))
        model = llama()
        assert "cu_seq_lens_q" not in model_inputs(batch, model)
        model.config._attn_implementation_internal = "flash_attention_2"  # the package itself needs a GPU
        inputs = model_inputs(batch, model)
        bounds, flat = inputs["cu_seq_lens_q"], inputs["position_ids"].flatten()
        assert bounds.dtype == torch.int32 and bounds[0] == 0 and bounds[-1] == flat.numel()
        assert set(bounds[:-1].tolist()) <= set((flat == 0).nonzero().flatten().tolist())
        assert len(bounds) - 1 >= ROWS and inputs["max_length_q"] >= int(bounds.diff().max())

    def saved(directory):
        return json.loads((directory / "millrace.json").read_text())

    def test_a_checkpoint_has_the_state_of_the_last_trained_step(house, tmp_path):
        house.start(*SHAPE)
        made = arguments(tmp_path, save_strategy="steps", save_steps=2, max_steps=4)
        trainer = Trainer(llama(), made, loader=connect(house))
        trainer.train()
        for at in (2, 4):
            state = saved(tmp_path / "out" / f"checkpoint-{at}")
            assert state["step"] == at and "microbatch" not in state
            assert house.until("saved", at // 2)["Slot"]["Step"] == at - 1
        trainer.loader.close()
        # A trainer that was killed while it saved.
        shutil.copytree(tmp_path / "out" / "checkpoint-4", tmp_path / "out" / "checkpoint-5")
        (tmp_path / "out" / "checkpoint-5" / "trainer_state.json").unlink()
        made = arguments(tmp_path, save_strategy="steps", save_steps=2)
        again = Trainer(llama(), made, loader=connect(house))
        again.train(resume_from_checkpoint=True)
        assert again.seen == slots(4) and again.state.global_step == STEPS
        assert saved(tmp_path / "out" / f"checkpoint-{STEPS}")["step"] == STEPS
        again.loader.close()
        # Nothing is left to train.
        done = Trainer(llama(), made, loader=connect(house))
        done.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{STEPS}"))
        assert done.seen == () and done.state.global_step == STEPS

    def test_a_checkpoint_of_another_trainer_is_refused(house, tmp_path):
        house.start(*SHAPE)
        (tmp_path / "out" / "checkpoint-3").mkdir(parents=True)
        trainer = Trainer(llama(), arguments(tmp_path), loader=connect(house))
        with pytest.raises(millrace.StartError, match="checkpoint-3: it has no millrace.json"):
            trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-3"))
        with pytest.raises(ValueError, match="no complete checkpoint"):
            trainer.train(resume_from_checkpoint=True)

    def test_a_run_that_ends_before_max_steps(house, tmp_path):
        house.start(*SHAPE)
        made = arguments(tmp_path, max_steps=10**9, save_strategy="steps", save_steps=4, logging_steps=4)
        trainer = Trainer(llama(), made, loader=connect(house))
        trainer.train()
        assert trainer.seen == slots() and trainer.state.global_step == STEPS
        assert saved(tmp_path / "out" / f"checkpoint-{STEPS}")["step"] == STEPS
        assert len(logged(trainer)) == 2

    def test_the_last_step_is_committed_if_max_steps_is_the_end_of_the_run(house, tmp_path):
        house.start(*SHAPE)
        loader = connect(house)
        Trainer(llama(), arguments(tmp_path), loader=loader).train()
        house.until("ended")

    def test_evaluation(house, tmp_path):
        house.start(*SHAPE)
        with connect(house, tensors="torch") as loader:
            batches = [model_inputs(small(next(loader)), llama()) for _ in range(2)]

        class Batches:
            def __iter__(self):
                return iter(batches)

        made = arguments(tmp_path, eval_strategy="steps", eval_steps=3, max_steps=3, learning_rate=0.0)
        evaluated = Trainer(
            llama(), made, loader=connect(house, start="fresh"), eval_dataset={"few": Batches()}
        )
        evaluated.train()
        got = [line["eval_few_loss"] for line in evaluated.state.log_history if "eval_few_loss" in line]
        with torch.no_grad():
            model = llama(use_cache=False)
            want = [model(**i, num_items_in_batch=int((i["shift_labels"] >= 0).sum())).loss.item() for i in batches]
        assert got == [pytest.approx(sum(want) / 2, rel=1e-5)]
        assert evaluated.seen == slots(0, 3)

    def test_each_evaluation_reads_a_stream_from_its_start(house, tmp_path):
        house.start(*SHAPE)
        (tmp_path / "second").mkdir()
        second = type(house)(house.binary, tmp_path / "second")
        second.start("--steps", "2", *SHAPE[2:])
        try:
            with connect(second) as loader:
                want = [model_inputs(small(batch), llama()) for batch in loader]
            made = arguments(tmp_path, eval_strategy="steps", eval_steps=2, learning_rate=0.0)
            loader, over = connect(second), []

            class Evaluated(Trainer):
                def prediction_step(self, model, inputs, *args, **named):
                    over.append(inputs)
                    return super().prediction_step(model, inputs, *args, **named)

            trainer = Evaluated(llama(), made, loader=connect(house), eval_dataset=loader)
            trainer.train()
            losses = [line["eval_loss"] for line in trainer.state.log_history if "eval_loss" in line]
            assert trainer.seen == slots() and len(losses) == 3 and len(set(losses)) == 1
            assert len(over) == 3 * len(want)
            assert all(torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(over, 3 * want))
            assert trainer.predict(loader).predictions.shape == (2 * MICRO * ROWS, LENGTH, VOCABULARY)
            loader.close()
        finally:
            second.stop()
            second.give_up()

    WRONG = {
        "dataloader_num_workers": {"dataloader_num_workers": 1},
        "dispatch_batches": {"accelerator_config": {"dispatch_batches": True}},
        "split_batches": {"accelerator_config": {"split_batches": True}},
        "average_tokens_across_devices": {"average_tokens_across_devices": False},
        "label_smoothing_factor": {"label_smoothing_factor": 0.1},
        "use_cache": {"use_cache": True},
        "auto_find_batch_size": {"auto_find_batch_size": True},
        "max_steps": {"max_steps": -1},
    }

    @pytest.mark.parametrize("name", WRONG)
    def test_wrong_arguments_are_refused(house, tmp_path, name):
        house.start(*SHAPE)
        model, made = llama(), arguments(tmp_path, **WRONG[name])
        began = time.monotonic()
        with pytest.raises(millrace.MisuseError, match=f"{name}.*: (leave|set|smooth)"):
            millrace.hf.Trainer(model, made, loader=connect(house))
        assert time.monotonic() - began < AT_ONCE

    ACCUMULATION = {
        "the argument": {"gradient_accumulation_steps": MICRO},
        "accelerate's": {"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": MICRO}}},
    }

    @pytest.mark.parametrize("name", ACCUMULATION)
    def test_the_number_of_the_plan_is_accepted(house, tmp_path, name):
        """One of its steps is one step of the run, with the losses of a Trainer that has said no number."""
        house.start(*SHAPE)
        plain = Trainer(llama(), arguments(tmp_path), loader=connect(house, start="fresh"))
        plain.train()
        plain.loader.close()
        trainer = Trainer(llama(), arguments(tmp_path, **ACCUMULATION[name]), loader=connect(house, start="fresh"))
        trainer.train()
        assert trainer.seen == slots() and trainer.state.global_step == STEPS
        assert logged(trainer) == logged(plain)

    @pytest.mark.parametrize("number", [2, MICRO + 1])
    def test_another_number_is_refused(house, tmp_path, number):
        house.start(*SHAPE)
        made = arguments(tmp_path, gradient_accumulation_steps=number)
        trainer = Trainer(llama(), made, loader=connect(house))
        with pytest.raises(millrace.MisuseError, match=f"gradient_accumulation_steps={number}.* {MICRO} microbatches"):
            trainer.train()
        assert trainer.seen == ()

    def test_steps_that_grow_refuse_one_number(house, tmp_path):
        house.start("--steps", "4", "--microbatches", "2", "--rows", "2", "--length", "16", "--longer", "2")
        trainer = Trainer(llama(), arguments(tmp_path, gradient_accumulation_steps=2), loader=connect(house))
        with pytest.raises(millrace.MisuseError, match="step 2 .*4 microbatches: leave it at 1"):
            trainer.train()

    class Wrapped(torch.utils.data.IterableDataset):
        def __init__(self, loader):
            self.loader = loader

        def __iter__(self):
            return iter(self.loader)

    def test_a_loader_with_other_names_is_refused(house, tmp_path):
        house.start(*SHAPE)
        trainer = millrace.hf.Trainer(llama(), arguments(tmp_path), loader=millrace.connect(house.path()))
        with pytest.raises(millrace.MisuseError, match='keys="hf"'):
            trainer.train()

    def test_a_dataset_around_the_loader_is_refused(house, tmp_path):
        house.start(*SHAPE)
        loader, made = connect(house), arguments(tmp_path)
        with pytest.raises(millrace.MisuseError, match="leave train_dataset out"):
            millrace.hf.Trainer(llama(), made, train_dataset=Wrapped(loader), loader=loader)
        with pytest.raises(TypeError, match="without a dataset"):
            millrace.hf.Trainer(llama(), made, loader=Wrapped(loader))

    def test_a_model_with_a_loss_per_microbatch_is_refused(house, tmp_path):
        house.start(*SHAPE)

        class Plain(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Embedding(VOCABULARY, VOCABULARY)

            def forward(self, input_ids):
                return {"logits": self.embed(input_ids)}

        loader = connect(house)
        with pytest.raises(millrace.MisuseError, match="compute_loss_func"):
            Trainer(Plain(), arguments(tmp_path), loader=loader)

        def loss(outputs, labels, num_items_in_batch):
            flat = outputs["logits"][:, :-1].flatten(0, 1), labels[:, 1:].flatten()
            return F.cross_entropy(*flat, reduction="sum") / num_items_in_batch

        trainer = Trainer(Plain(), arguments(tmp_path, max_steps=2), loader=loader, compute_loss_func=loss)
        trainer.train()
        assert trainer.seen == slots(0, 2) and logged(trainer)[1] < logged(trainer)[0]

    def test_a_trainer_class_of_ones_own(house, tmp_path):
        house.start(*SHAPE)
        steps = []

        class Mine(transformers.Trainer):
            def training_step(self, model, inputs, num_items_in_batch=None):
                steps.append((type(inputs), int(num_items_in_batch), self.microbatch.step_loss_tokens))
                inputs["input_ids"] %= VOCABULARY
                inputs["shift_labels"] %= VOCABULARY
                return super().training_step(model, inputs, num_items_in_batch)

        class Both(millrace.hf.TrainerMixin, Mine):
            pass

        Both(llama(), arguments(tmp_path, max_steps=2), loader=connect(house)).train()
        assert len(steps) == 2 * MICRO and all(kind is dict and a == b for kind, a, b in steps)
