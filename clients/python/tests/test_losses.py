"""The same small model, trained on the same batches by each view and each form of attention, has the same losses.

The reference runs the model on each segment alone. It runs where PyTorch is installed: `make test-adapters`."""

from __future__ import annotations

import importlib.util
from typing import Any, Dict, List

import numpy as np
import pytest

import millrace

STEPS, MICRO = 6, 2
SHAPE = ("--steps", str(STEPS), "--microbatches", str(MICRO), "--rows", "3", "--length", "160")
VARLEN = (*SHAPE, "--layout", "varlen")


def installed(name):
    return importlib.util.find_spec(name) is not None


if installed("torch"):
    import torch
    import torch.nn.functional as F
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.set_num_threads(1)
    VOCABULARY, WIDTH, HEADS = 512, 32, 2

    def batches(house, keys=None, layout=SHAPE, tensors="torch"):
        """Iterates over the run's batches. Tokens and labels are taken modulo the vocabulary, in place."""
        if house.process is None:
            house.start(*layout)
        with millrace.connect(house.path(), tensors=tensors, keys=keys, start="fresh") as loader:
            for batch in loader:
                tokens, labels = batch._get("tokens"), batch._get("labels")
                tokens %= VOCABULARY
                labels[labels != -100] %= VOCABULARY
                yield batch

    class Model(torch.nn.Module):
        """One layer of attention. `attend(q, k, v)` has tensors [rows, heads, length, width of a head]."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
            self.positions = torch.nn.Embedding(160, WIDTH)
            self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
            self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.double()

        def forward(self, tokens, positions, attend):
            x = self.tokens(tokens.long()) + self.positions(positions.long())
            q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
            return self.head(x + attend(q, k, v).transpose(1, 2).flatten(2))

    def loss_of(logits, labels):
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten().long(), ignore_index=-100, reduction="sum")

    def train(house, loss, model=None, **kw) -> List[float]:
        """Train, and return the loss of each step. `loss(model, batch)` is the sum over the labels of a microbatch."""
        model = Model() if model is None else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        losses: List[float] = []
        for batch in batches(house, **kw):
            if batch.microbatch == 0:
                losses.append(0.0)
                optimizer.zero_grad()
            part = loss(model, batch) / batch.step_loss_tokens
            part.backward()
            losses[-1] += part.item()
            if batch.microbatch == batch.num_microbatches - 1:
                optimizer.step()
        return losses

    def causal(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def alone(model, batch):
        """Each segment by itself: no mask of Millrace, and positions that are counted here."""
        total = torch.zeros((), dtype=torch.double)
        for s in batch.segments:
            row = slice(s.start, s.start + s.length)
            tokens, labels = batch["tokens"], batch["labels"]
            if tokens.ndim == 2:
                tokens, labels = tokens[s.row], labels[s.row]
            total = total + loss_of(model(tokens[None, row], torch.arange(s.length)[None], causal), labels[None, row])
        return total

    def by_mask(tokens, positions, labels):
        def loss(model, batch):
            mask = batch.attention_mask()
            attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            rows = (torch.atleast_2d(batch[name]) for name in (tokens, positions))
            return loss_of(model(*rows, attend), batch[labels])

        return loss

    def by_blocks(model, batch):
        """FlexAttention has no backward pass on a CPU. There, the gradient is that of the dense mask."""
        mask = batch.block_mask(block_size=32)
        dense = by_mask("input", "positions", "labels")(model, batch)
        with torch.no_grad():
            attend = lambda q, k, v: flex_attention(q, k, v, block_mask=mask)
            sparse = loss_of(model(batch["input"], batch["positions"], attend), batch["labels"])
        return dense + (sparse - dense).detach()

    def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal):
        """The interface of flash-attn, on any device: [tokens, heads, width of a head]."""
        assert causal and cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32 and type(max_seqlen_q) is int
        out = []
        for begin, end in zip(cu_seqlens_q.tolist(), cu_seqlens_q.tolist()[1:]):
            assert end - begin <= max_seqlen_q
            part = (t[begin:end].transpose(0, 1) for t in (q, k, v))
            out.append(F.scaled_dot_product_attention(*part, is_causal=True).transpose(0, 1))
        return torch.cat(out)

    def by_flash(tokens, positions, labels):
        def loss(model, batch):
            arguments = batch.flash_attention()

            def attend(q, k, v):
                flat = (t.transpose(1, 2).flatten(0, 1) for t in (q, k, v))
                return flash_attn_varlen_func(*flat, **arguments, causal=True)[None].transpose(1, 2)

            one_row = (batch[name].reshape(1, -1) for name in (tokens, positions))
            return loss_of(model(*one_row, attend), batch[labels])

        return loss

    def megatron(model, batch):
        """Megatron's loss: the loss of every token, labels that are valid everywhere, times the loss mask."""
        mask = batch.attention_mask()
        attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        logits = model(batch["tokens"], batch["position_ids"], attend)
        losses = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten().long(), reduction="none")
        return (losses * batch["loss_mask"].flatten()).sum()

    FORMS: Dict[str, Any] = {
        "sdpa": (by_mask("tokens", "position_ids", "labels"), None),
        "sdpa, hf": (by_mask("input_ids", "position_ids", "shift_labels"), "hf"),
        "flex, torchtitan": (by_blocks, "torchtitan"),
        "flash": (by_flash("tokens", "position_ids", "labels"), None),
        "megatron": (megatron, "megatron"),
    }

    @pytest.fixture
    def reference(house):
        return lambda layout: train(house, alone, layout=layout)

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("layout", [SHAPE, VARLEN], ids=["packed", "varlen"])
    def test_losses_of_a_torch_model(house, reference, form, layout):
        loss, keys = FORMS[form]
        want = reference(layout)
        got = train(house, loss, keys=keys)
        assert len(want) == STEPS and want[-1] < want[0]
        np.testing.assert_allclose(got, want, rtol=1e-9)

    def test_another_mask_has_another_loss(house, reference):
        """The comparison notices a token that sees the neighbouring document."""
        want = reference(SHAPE)
        leaky = lambda model, batch: loss_of(model(batch["tokens"], batch["position_ids"], causal), batch["labels"])
        assert abs(train(house, leaky)[-1] - want[-1]) > 1e-6

    @pytest.mark.parametrize("layout", [SHAPE, VARLEN], ids=["packed", "varlen"])
    @pytest.mark.parametrize("size", [16, 128])
    def test_block_masks(house, layout, size):
        """The block mask is that of torch's create_block_mask, block for block."""
        for batch in batches(house, layout=layout):
            ours, dense = batch.block_mask(size), batch.attention_mask()
            rows, _, length, _ = dense.shape
            theirs = create_block_mask(
                lambda b, h, q, k: dense[b, 0, q, k], rows, None, length, length, device="cpu", BLOCK_SIZE=size
            )
            assert ours.shape == theirs.shape and ours.BLOCK_SIZE == theirs.BLOCK_SIZE
            assert torch.equal(ours.to_dense(), theirs.to_dense())
            for kind in ("kv", "full_kv", "q", "full_q"):
                counts = getattr(ours, f"{kind}_num_blocks")
                assert torch.equal(counts, getattr(theirs, f"{kind}_num_blocks"))
                mine, other = getattr(ours, f"{kind}_indices"), getattr(theirs, f"{kind}_indices")
                for at in np.ndindex(*counts.shape):
                    assert torch.equal(mine[at][: counts[at]], other[at][: counts[at]])

    def test_moves_keep_the_view(house):
        for batch in batches(house, "hf"):
            moved = batch.to("cpu")
            assert list(moved) == list(batch) and torch.equal(moved["labels"], batch["labels"])
            assert moved.digest == batch.digest and torch.equal(moved.attention_mask(), batch.attention_mask())
            meta = batch.to("meta")
            assert meta["labels"].device.type == "meta" and meta.max_seqlen == 160


if installed("torch") and installed("transformers"):
    import transformers

    def llama():
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, attn_implementation="sdpa",
        )  # fmt: skip
        return transformers.LlamaForCausalLM(config).double()

    def llama_alone(model, batch):
        total = torch.zeros((), dtype=torch.double)
        for s in batch.segments:
            row = slice(s.start, s.start + s.length)
            tokens, labels = torch.atleast_2d(batch["tokens"]), torch.atleast_2d(batch["labels"])
            logits = model(input_ids=tokens[s.row : s.row + 1, row]).logits
            total = total + loss_of(logits.double(), labels[s.row, row])
        return total

    def llama_hf(model, batch):
        return model(**batch, num_items_in_batch=1, use_cache=False).loss

    def llama_mask(model, batch):
        """A mask given: the model then needs no `use_cache=False`."""
        return model(**batch, attention_mask=batch.attention_mask(), num_items_in_batch=1).loss

    def llama_shifts(model, batch):
        """The unshifted labels alone: the model shifts them, and the label of the last column is missing."""
        rest = torch.atleast_2d(batch["shift_labels"]).clone()
        rest[:, :-1] = -100
        tensors = {name: batch[name] for name in ("input_ids", "position_ids", "labels")}
        out = model(**tensors, num_items_in_batch=1, use_cache=False)
        return out.loss + loss_of(out.logits, rest)

    @pytest.mark.parametrize("layout", [SHAPE, VARLEN], ids=["packed", "varlen"])
    def test_losses_of_a_hugging_face_model(house, layout):
        want = train(house, llama_alone, llama(), layout=layout)
        for loss in (llama_hf, llama_mask, llama_shifts):
            np.testing.assert_allclose(train(house, loss, llama(), keys="hf"), want, rtol=2e-6, err_msg=loss.__name__)


if installed("torch") and installed("jax"):
    import jax
    import jax.numpy as jnp

    def jax_logits(weights, tokens, positions, seen):
        x = weights["tokens.weight"][tokens] + weights["positions.weight"][positions]
        rows, length, _ = x.shape
        parts = jnp.split(x @ weights["qkv.weight"].T, 3, axis=-1)
        q, k, v = (p.reshape(rows, length, HEADS, -1).swapaxes(1, 2) for p in parts)
        scores = q @ k.swapaxes(-1, -2) / jnp.sqrt(q.shape[-1])
        mixed = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)) @ v
        return (x + mixed.swapaxes(1, 2).reshape(rows, length, -1)) @ weights["head.weight"].T

    @jax.jit
    def maxtext(weights, data):
        """MaxText's loss: tokens attend within a segment, and a target counts if its segmentation is not 0."""
        ids = data["inputs_segmentation"]
        seen = jnp.tril(ids[:, None, :, None] == ids[:, None, None, :])
        logits = jax_logits(weights, data["inputs"], data["inputs_position"], seen)
        targets = jax.nn.one_hot(data["targets"], VOCABULARY)
        losses = -(jax.nn.log_softmax(logits) * targets).sum(-1)
        return (losses * (data["targets_segmentation"] != 0)).sum()

    def test_losses_of_a_jax_model(house, reference):
        want = reference(SHAPE)
        weights = {name: jnp.asarray(w.detach().numpy(), jnp.float32) for name, w in Model().state_dict().items()}
        step = jax.value_and_grad(maxtext)
        losses, sums = [], {}
        for batch in batches(house, "maxtext", tensors="numpy"):
            data = {name: jnp.asarray(array) for name, array in batch.items()}
            loss, grads = step(weights, data)
            share = {name: g / batch.step_loss_tokens for name, g in grads.items()}
            sums = share if batch.microbatch == 0 else {name: sums[name] + g for name, g in share.items()}
            losses.append(float(loss) / batch.step_loss_tokens + (losses.pop() if batch.microbatch else 0.0))
            if batch.microbatch == batch.num_microbatches - 1:
                weights = {name: w - 0.5 * sums[name] for name, w in weights.items()}
        np.testing.assert_allclose(losses, want, rtol=1e-5)

    @pytest.mark.parametrize("layout", [SHAPE, VARLEN], ids=["packed", "varlen"])
    @pytest.mark.parametrize("keys", ["hf", "megatron"])
    def test_views_of_jax_arrays(house, layout, keys):
        """Views and masks of JAX arrays are those of NumPy arrays."""
        house.start(*layout)
        with millrace.connect(house.path(), tensors="jax", keys=keys, start="fresh") as ours:
            got = [dict(batch) | {"mask": batch.attention_mask(), **batch.flash_attention()} for batch in ours]
        with millrace.connect(house.path(), tensors="numpy", keys=keys, start="fresh") as theirs:
            for arrays, batch in zip(got, theirs):
                for name in batch:
                    assert isinstance(arrays[name], jax.Array) and np.array_equal(arrays[name], batch[name])
                assert np.array_equal(arrays["mask"], batch.attention_mask())
                for name, value in batch.flash_attention().items():
                    assert np.array_equal(arrays[name], value) and type(arrays[name]) in (int, type(arrays["mask"]))


if installed("torch"):

    @pytest.mark.parametrize("layout", [SHAPE, VARLEN], ids=["packed", "varlen"])
    def test_views_of_copies_on_a_device(house, layout):
        """`keys=` names the copies: the names, the digests and the masks are those of the batches in the ring."""
        house.start(*layout)
        with millrace.connect(house.path(), tensors="torch", keys="hf", start="fresh") as loader:
            want = [(b.digest, {n: t.clone() for n, t in b.items()}, b.attention_mask(), b.max_seqlen) for b in loader]
        with millrace.connect(house.path(), device="cpu", prefetch=2, keys="hf", start="fresh") as loader:
            for (digest, tensors, mask, longest), batch in zip(want, loader):
                assert batch.digest == digest and list(batch) == list(tensors) and batch.max_seqlen == longest
                assert all(torch.equal(batch[name], tensor) for name, tensor in tensors.items())
                assert torch.equal(batch.attention_mask(), mask)
