# SPDX-License-Identifier: GPL-2.0
"""A small language model with dense gradients: the next word of the text of lm.py among all words,
of which the frequent ones alone have numbers of their own.
"""
import torch

from tasks.lm import SEED, Text
from tasks.task import Task

MOST = 1000             # words
WORDS, HIDDEN = 64, 64
ROWS, LENGTH = 8, 20    # tokens of a rank's batch


class Recurrent(torch.nn.Module):
    """Logits of all words for each next one."""

    def __init__(self, words):
        super().__init__()
        self.words = torch.nn.Embedding(words, WORDS)
        self.lstm = torch.nn.LSTM(WORDS, HIDDEN, batch_first=True)
        self.output = torch.nn.Linear(HIDDEN, words, bias=False)

    def hidden(self, tokens):
        return self.lstm(self.words(tokens))[0].reshape(-1, HIDDEN)

    def forward(self, tokens):
        return self.output(self.hidden(tokens))


class NextWord(Text, Task):
    """A seed begins with other lines of the text."""

    def __init__(self, texts=None, most=MOST):
        super().__init__(texts, most)

    def model(self, sparse=False):
        torch.manual_seed(self.seeded(SEED))
        return Recurrent(self.words)

    def optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=.005)

    def batches(self, rank, world):
        draw = torch.Generator().manual_seed(self.seeded(SEED + 1))     # the same on all ranks
        while True:
            at = torch.randint(len(self.train) - LENGTH, (world * ROWS,), generator=draw)
            lines = torch.stack([self.train[i:i + LENGTH + 1]
                                 for i in at[rank * ROWS:(rank + 1) * ROWS].tolist()])
            yield lines[:, :-1], lines[:, 1:]

    def loss(self, model, batch):
        tokens, after = batch
        return torch.nn.functional.cross_entropy(model(tokens), after.reshape(-1))
