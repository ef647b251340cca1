# SPDX-License-Identifier: GPL-2.0
"""What a task is: data that was read once, a model, batches for each rank, and how good the model
has become. training.py trains any task; the tasks are in the files beside this one.
"""


class Task:
    """QUALITY: what quality() says, for people; seeds make runs repeat each other."""

    QUALITY = ""

    def model(self, sparse=False):
        """A module, always with the same parameters. sparse: gradients of embeddings are rows."""
        raise NotImplementedError

    def optimizer(self, model):
        raise NotImplementedError

    def batches(self, rank, world):
        """Endless: what loss() takes, of this rank alone."""
        raise NotImplementedError

    def loss(self, model, batch):
        raise NotImplementedError

    def quality(self, model, rank, world):
        """A number, the same on all ranks; all of them call this."""
        raise NotImplementedError
