# SPDX-License-Identifier: GPL-2.0
"""What a task is: data that was read once, a model, batches for each rank, and how good the model
has become. training.py trains any task; the tasks are in the files beside this one.
"""

# Of Adagrad, whose first step is as long for a gradient that is rounding alone as for any other:
# sums that are rounded otherwise would train other models.
EPSILON = 1e-6


class TaskError(RuntimeError):
    """Why a task's data is not there, and what to do about it, in a sentence."""


class Task:
    """QUALITY: what quality() says, for people. Runs of one seed repeat each other: it draws the
    model's first parameters and the batches, not what is held out.
    """

    QUALITY = ""
    seed = 0

    def seeded(self, number):
        """A generator's seed; number: that of seed 0."""
        return number + 10000 * self.seed

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


class SparseTask(Task):
    """A task whose embeddings have gradients of few rows.

    STEPS: as many as a demo has by default; data: where it is from and how much, in a sentence;
    sha256: of it; rows: {name of an embedding's weight: (rows, width)}
    """

    STEPS = 0
    data = sha256 = ""
    rows = {}

    def touched(self, batch):
        """{name of an embedding's weight: rows of its gradient by this batch}"""
        raise NotImplementedError

    @staticmethod
    def shown(quality):
        raise NotImplementedError

    @staticmethod
    def agree(one, other):
        """Are two qualities the same but for what rounding moves?"""
        raise NotImplementedError
