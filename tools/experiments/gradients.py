# SPDX-License-Identifier: GPL-2.0
"""Gradients for the experiments. A set of gradients is a list [worker][layer] of
arrays; equal seeds give equal numbers.
"""
import functools

import numpy as np


def _drawn(draw, count, workers, equal):
    own = [draw(count) for _ in range(1 if equal else workers)]
    return [[own[0 if equal else k]] for k in range(workers)]


def normals(count, workers, seed, equal=True):
    rng = np.random.default_rng([seed, 1])
    return _drawn(lambda n: rng.standard_normal(n, dtype=np.float32), count, workers, equal)


def lognormals(count, workers, seed, equal=True):
    """+-exp(a) with a normal."""
    rng = np.random.default_rng([seed, 2])

    def draw(n):
        return (np.exp(rng.standard_normal(n)) *
                rng.choice([-1., 1.], n)).astype(np.float32)

    return _drawn(draw, count, workers, equal)


def _trained(model, optimizer, losses, steps):
    """{step: gradients} of a model that trains by the exact mean of the workers' gradients, as in
    DDP. losses: a function per worker, which returns the loss of its next batch."""
    import torch

    found = {}
    for step in range(max(steps) + 1):
        by_worker = []
        for loss in losses:
            optimizer.zero_grad()
            loss().backward()
            by_worker.append([p.grad.clone() for p in model.parameters()])
        if step in steps:
            found[step] = [[layer.flatten().numpy() for layer in own] for own in by_worker]
        for p, *own in zip(model.parameters(), *by_worker):
            p.grad = torch.stack(own).mean(0)
        optimizer.step()
    return found


def digits(workers, steps, hidden=512):
    """{step: gradients} of the demo's perceptron on its digits, each worker's own images."""
    import torch
    from tasks.digits import GLOBAL_BATCH, SEED, digits as images, perceptron

    torch.set_num_threads(1)
    model = perceptron(hidden)
    loss_of = torch.nn.CrossEntropyLoss()
    shuffle = torch.Generator().manual_seed(SEED)

    def loss(x, y):
        pick = torch.randperm(len(y), generator=shuffle)[:GLOBAL_BATCH // workers]
        return loss_of(model(x[pick]), y[pick])

    losses = [functools.partial(loss, *images(rank, workers)[:2]) for rank in range(workers)]
    return _trained(model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9), losses, steps)


def trained(task, workers, steps):
    """{step: gradients} of a task's model, each worker's own batches."""
    import torch

    torch.set_num_threads(1)
    model = task.model()

    def loss(batches):
        return task.loss(model, next(batches))

    losses = [functools.partial(loss, task.batches(rank, workers)) for rank in range(workers)]
    return _trained(model, task.optimizer(model), losses, steps)


def joined(gradients):
    """One array with a row per worker, the worker's layers joined."""
    return np.stack([np.concatenate(layers) for layers in gradients])


def nmse(mean, gradients):
    """||mean - exact mean||^2 / ||exact mean||^2, in double precision."""
    exact = np.mean(gradients, axis=0, dtype=np.float64)
    return float(np.square(mean - exact).sum() / np.square(exact).sum())
