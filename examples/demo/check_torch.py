"""Checks that PyTorch computes the same as NumPy. pytest does not collect it; `make test-adapters` names it, if PyTorch
is there."""

from __future__ import annotations

import numpy as np

import model_numpy
import model_torch
from test_demo import SHAPE, batch


def test_torch_and_numpy_agree() -> None:
    results = []
    for kind in (model_numpy, model_torch):
        weights = SHAPE.first_weights()
        gradient = np.zeros_like(weights)
        model = kind.Model(SHAPE, weights, gradient)
        losses = [model.accumulate(batch()) for _ in range(2)]  # the second call adds to the gradient of the first
        results.append((losses, gradient))
    (numpy_losses, numpy_gradient), (torch_losses, torch_gradient) = results
    np.testing.assert_allclose(torch_losses, numpy_losses, rtol=1e-5)
    np.testing.assert_allclose(torch_gradient, numpy_gradient, rtol=1e-3, atol=1e-4)


def test_torch_sees_the_optimizer_in_place() -> None:
    weights = SHAPE.first_weights()
    model = model_torch.Model(SHAPE, weights, np.zeros_like(weights))
    before, _ = model.accumulate(batch())
    weights *= np.float32(0.5)
    after, _ = model.accumulate(batch())
    assert before != after


def test_padding_alone_is_no_loss() -> None:
    weights = SHAPE.first_weights()
    b = batch()
    b["loss_mask"][:] = 0
    assert model_torch.Model(SHAPE, weights, np.zeros_like(weights)).accumulate(b) == (0.0, 0)
