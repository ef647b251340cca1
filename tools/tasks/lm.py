# SPDX-License-Identifier: GPL-2.0
"""A language model: the next word of WordNet's definitions and examples, the text of Debian's package
wordnet-base, which is the same since 2006. The embeddings of words that are read and of words to
choose from have gradients of few rows, the second one more, because each word stands among others
that are drawn at random (Jean et al., ACL'15).
"""
import collections
import hashlib
import math
import os
import re

import torch
import torch.distributed as dist

from tasks.task import EPSILON, SparseTask, TaskError

SEED = 20060601
FOLDER = "/usr/share/wordnet"
FILES = ("data.adj", "data.adv", "data.noun", "data.verb")
WORDS, HIDDEN = 64, 128
ROWS, LENGTH = 20, 35   # tokens of a rank's batch
NEGATIVES = 5           # a token
TEST_TOKENS = 1024
TEST_LENGTH = 128
COUNT_LEAST = 2         # of a word in the vocabulary
RARE, END = 0, 1        # tokens
MARGIN = .03            # of the perplexity
_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[.,;:!?()\"]")


def glosses(folder=FOLDER):
    """The definitions and examples, one text for each set of synonyms."""
    out = []
    for name in FILES:
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            raise TaskError(f"{path} is missing: apt-get install wordnet-base, whose text the task "
                            f"lm learns")
        with open(path, encoding="ascii") as f:
            # lines of the license begin with blanks
            out += [line.split(" | ", 1)[1].strip() for line in f if not line.startswith(" ")]
    return out


def vocabulary(texts, most=None):
    """Words by number, frequent ones first, behind RARE and END; most: so many at most."""
    counts = collections.Counter()
    for words in texts:
        counts.update(words)
    known = [word for word, count in counts.items() if count >= COUNT_LEAST]
    return ["<rare>", "<end>", *sorted(known, key=lambda word: (-counts[word], word))][:most]


class Text:
    """What a model reads, as numbers of words, and what is held out.

    texts: of glosses(); most: words that have numbers of their own
    """

    QUALITY = "perplexity of held-out text"

    def __init__(self, texts=None, most=None):
        raw = glosses() if texts is None else texts
        self.sha256 = hashlib.sha256("\n".join(raw).encode()).hexdigest()
        texts = [_TOKEN.findall(text.lower()) for text in raw]
        words = vocabulary(texts, most)
        number = {word: i for i, word in enumerate(words)}
        order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(SEED)).tolist()
        stream = [token for i in order
                  for token in (*(number.get(word, RARE) for word in texts[i]), END)]
        self.words, self.stream = len(words), torch.tensor(stream)
        held = min(TEST_TOKENS, len(stream) // 10) // TEST_LENGTH * TEST_LENGTH + 1
        self.train, self.test = self.stream[:-held], self.stream[-held:]
        self.data = (f"{len(texts):,} definitions and examples of WordNet, {len(stream):,} words "
                     f"and marks, {len(words):,} different ones")

    def quality(self, model, rank, world):
        loss = torch.zeros(1, dtype=torch.float64)
        before, after = self.test[:-1].view(-1, TEST_LENGTH), self.test[1:].view(-1, TEST_LENGTH)
        with torch.no_grad():
            for tokens, wanted in zip(before[rank::world], after[rank::world]):
                logits = model.hidden(tokens[None]) @ model.output.weight.T
                loss += torch.nn.functional.cross_entropy(logits, wanted, reduction="sum")
        dist.all_reduce(loss)
        return math.exp(loss.item() / before.numel())


class Words(torch.nn.Module):
    """Logits of candidates for each next word."""

    def __init__(self, words, sparse):
        super().__init__()
        self.words = torch.nn.Embedding(words, WORDS, sparse=sparse)
        self.lstm = torch.nn.LSTM(WORDS, HIDDEN, batch_first=True)
        self.output = torch.nn.Embedding(words, HIDDEN, sparse=sparse)
        for embedding in (self.words, self.output):
            torch.nn.init.normal_(embedding.weight, std=.1)

    def hidden(self, tokens):
        return self.lstm(self.words(tokens))[0].reshape(-1, HIDDEN)

    def forward(self, tokens, candidates):
        """candidates: some for each token"""
        return torch.bmm(self.output(candidates), self.hidden(tokens)[:, :, None]).squeeze(2)


class Definitions(Text, SparseTask):
    """Each next word among NEGATIVES others."""

    STEPS = 50

    def __init__(self, texts=None):
        super().__init__(texts)
        self.rows = {"words.weight": (self.words, WORDS), "output.weight": (self.words, HIDDEN)}

    def model(self, sparse=False):
        torch.manual_seed(self.seeded(SEED))
        return Words(self.words, sparse)

    def optimizer(self, model):
        return torch.optim.Adagrad(model.parameters(), lr=.05, eps=EPSILON)

    def batches(self, rank, world):
        draw = torch.Generator().manual_seed(self.seeded(SEED + 1 + rank))
        lines = self.train[:len(self.train) // (ROWS * world) * ROWS * world].view(ROWS * world, -1)
        own = lines[rank * ROWS:(rank + 1) * ROWS]
        while True:
            for at in range(0, own.shape[1] - LENGTH, LENGTH):
                after = own[:, at + 1:at + LENGTH + 1].reshape(-1, 1)
                others = torch.randint(self.words, (len(after), NEGATIVES), generator=draw)
                yield own[:, at:at + LENGTH], torch.cat([after, others], 1)

    def loss(self, model, batch):
        tokens, candidates = batch
        # of uniform draws the share is the same for all: it changes no loss
        first = torch.zeros(len(candidates), dtype=torch.int64)
        return torch.nn.functional.cross_entropy(model(tokens, candidates), first)

    def touched(self, batch):
        tokens, candidates = batch
        return {"words.weight": tokens.unique().numel(),
                "output.weight": candidates.unique().numel()}

    @staticmethod
    def shown(quality):
        return f"{quality:.1f}"

    @staticmethod
    def agree(one, other):
        return abs(math.log(one / other)) <= MARGIN
