# SPDX-License-Identifier: GPL-2.0
"""Scikit-learn's digits, by a perceptron, the demo's task with dense gradients, or by convolutions."""
import functools
import importlib.util
import os

import numpy as np
import torch

from tasks.task import Task

TRAIN_IMAGES = 1400
GLOBAL_BATCH = 80
SEED = 20240416


@functools.cache
def load():
    """(64 values from 0 to 16 of each image, its digit). They are read from scikit-learn's file, for
    importing scikit-learn takes as long as half of torch; where the file is not, it is imported.
    """
    folders = importlib.util.find_spec("sklearn").submodule_search_locations
    path = os.path.join(folders[0], "datasets/data/digits.csv.gz")
    if not os.path.exists(path):
        from sklearn.datasets import load_digits
        return load_digits(return_X_y=True)
    rows = np.loadtxt(path, delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(np.int64)


@functools.cache
def digits(rank, world):
    """This rank's training images, and the test images: the same split always."""
    values, target = load()
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(SEED))
    images = torch.tensor(values, dtype=torch.float32)[order] / 16
    labels = torch.tensor(target)[order]
    return (images[rank:TRAIN_IMAGES:world], labels[rank:TRAIN_IMAGES:world],
            images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:])


def perceptron(hidden, seed=SEED):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(64, hidden), torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))


class Digits(Task):
    """hidden: width of the layers"""

    QUALITY = "test accuracy"

    def __init__(self, hidden):
        self.hidden = hidden
        self.loss_of = torch.nn.CrossEntropyLoss()

    @staticmethod
    def batch(world):
        return max(1, GLOBAL_BATCH // world)

    def steps(self, world, epochs):
        """Of that many passes over the training images."""
        return epochs * (TRAIN_IMAGES // world // self.batch(world))

    def model(self, sparse=False):
        return perceptron(self.hidden, self.seeded(SEED))

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def batches(self, rank, world):
        images, labels, _, _ = digits(rank, world)
        shuffle, batch = torch.Generator().manual_seed(self.seeded(SEED + rank)), self.batch(world)
        while True:
            order = torch.randperm(len(labels), generator=shuffle)
            for i in range(self.steps(world, 1)):
                pick = order[i * batch:(i + 1) * batch]
                yield images[pick], labels[pick]

    def loss(self, model, batch):
        images, labels = batch
        return self.loss_of(model(images), labels)

    def quality(self, model, rank, world):
        _, _, images, labels = digits(rank, world)
        with torch.no_grad():
            return (model(images).argmax(1) == labels).float().mean().item()


class Convolutions(Digits):
    """hidden: channels of the second layer; the first one has half as many"""

    def model(self, sparse=False):
        torch.manual_seed(self.seeded(SEED))
        return torch.nn.Sequential(
            torch.nn.Unflatten(1, (1, 8, 8)),
            torch.nn.Conv2d(1, self.hidden // 2, 3, padding=1), torch.nn.ReLU(),
            torch.nn.Conv2d(self.hidden // 2, self.hidden, 3, padding=1), torch.nn.ReLU(),
            torch.nn.MaxPool2d(2), torch.nn.Flatten(),
            torch.nn.Linear(16 * self.hidden, 2 * self.hidden), torch.nn.ReLU(),
            torch.nn.Linear(2 * self.hidden, 10))
