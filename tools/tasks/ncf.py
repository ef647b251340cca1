# SPDX-License-Identifier: GPL-2.0
"""Neural collaborative filtering (He et al., WWW'17): which packages does a package depend on, learnt
from apt's lists. Few names are in very many pairs, as in what people buy or watch, and a batch has
few rows of either embedding. The lists are those of a Debian release: sha256 says which.
"""
import hashlib
import shutil
import subprocess

import torch
import torch.distributed as dist

from tasks.task import EPSILON, SparseTask, TaskError

SEED = 20240207
WIDTH, HIDDEN = 64, 32
BATCH = 256             # pairs of a rank
NEGATIVES = 4           # a pair
CANDIDATES = 100        # with the one held out among them
BEST = 10
PAIRS_LEAST = 10000     # without lists apt knows installed packages alone
TESTED = 4096           # packages; all have a pair held out
MARGIN = .02            # of HR@10, which has a standard error of .007
_WANTED = ("Depends", "Pre-Depends", "Recommends")
_READ = tuple(f"{field}: " for field in ("Package", *_WANTED))


def available():
    """Lines of what apt knows of all packages."""
    if not shutil.which("apt-cache"):
        raise TaskError("there is no apt-cache here: the task ncf learns from Debian's lists of "
                        "packages")
    with subprocess.Popen(["apt-cache", "dumpavail"], stdout=subprocess.PIPE, text=True) as p:
        yield from p.stdout
    if p.returncode:
        raise TaskError(f"apt-cache dumpavail ended with {p.returncode}")


def pairs_of(lines):
    """(names of packages, [(package, what it depends on or recommends)]), both in order; of
    alternatives the first one.
    """
    packages, pairs = set(), set()
    for line in lines:
        if not line.startswith(_READ):  # nine lines of ten, which need not be split
            continue
        field, _, value = line.partition(": ")
        if field == "Package":
            name = value.strip()
            packages.add(name)
        elif field in _WANTED:
            for wanted in value.split(","):
                first = wanted.partition("|")[0].split()
                if first:
                    pairs.add((name, first[0].partition(":")[0]))
    return sorted(packages), sorted(pairs)


class Scores(torch.nn.Module):
    """How likely pairs are, as logits."""

    def __init__(self, users, items, width, sparse):
        super().__init__()
        self.users = torch.nn.Embedding(users, width, sparse=sparse)
        self.items = torch.nn.Embedding(items, width, sparse=sparse)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(3 * width, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1))
        for embedding in (self.users, self.items):
            torch.nn.init.normal_(embedding.weight, std=.1)

    def forward(self, users, items):
        user, item = self.users(users), self.items(items)
        return self.layers(torch.cat([user, item, user * item], -1)).squeeze(-1)


class Packages(SparseTask):
    """lines: as those of available(); width: of the embeddings"""

    QUALITY = f"HR@{BEST}: held-out dependency among the best {BEST} of {CANDIDATES}"
    STEPS = 120

    def __init__(self, lines=None, width=WIDTH):
        packages, pairs = pairs_of(available() if lines is None else lines)
        if lines is None and len(pairs) < PAIRS_LEAST:
            raise TaskError(f"apt's lists have {len(pairs)} dependencies only: apt-get update, as "
                            f"root, fetches the lists")
        number = {name: i for i, name in enumerate(packages)}
        items = sorted({item for _, item in pairs})
        number_of_item = {name: i for i, name in enumerate(items)}
        self.rows = {"users.weight": (len(packages), width), "items.weight": (len(items), width)}
        self.sha256 = hashlib.sha256("".join(f"{a} {b}\n" for a, b in pairs).encode()).hexdigest()
        self.data = (f"{len(packages):,} packages, {len(items):,} names they depend on, "
                     f"{len(pairs):,} pairs, of apt's lists")
        self._split(torch.tensor([(number[a], number_of_item[b]) for a, b in pairs]))

    def _split(self, pairs):
        """Holds one pair of each package back that has several, and draws its rivals."""
        draw = torch.Generator().manual_seed(SEED)
        shuffled = pairs[torch.randperm(len(pairs), generator=draw)]
        order = torch.sort(shuffled[:, 0], stable=True).indices
        users = shuffled[order, 0]
        begins = torch.cat([torch.tensor([True]), users[1:] != users[:-1]])
        several = torch.cat([users[1:] == users[:-1], torch.tensor([False])])
        back = torch.zeros(len(pairs), dtype=torch.bool)
        back[order[begins & several]] = True
        self.pairs, self.test = shuffled[~back], shuffled[back][:TESTED]
        self.rivals = torch.randint(self.rows["items.weight"][0],
                                    (len(self.test), CANDIDATES - 1), generator=draw)

    def model(self, sparse=False):
        torch.manual_seed(self.seeded(SEED))
        (users, width), (items, _) = self.rows["users.weight"], self.rows["items.weight"]
        return Scores(users, items, width, sparse)

    def optimizer(self, model):
        return torch.optim.Adagrad(model.parameters(), lr=.05, eps=EPSILON)

    def batches(self, rank, world):
        shuffle = torch.Generator().manual_seed(self.seeded(SEED + 1))  # the same on all ranks
        draw = torch.Generator().manual_seed(self.seeded(SEED + 2 + rank))
        labels = torch.zeros(BATCH, 1 + NEGATIVES)
        labels[:, 0] = 1
        items = self.rows["items.weight"][0]
        while True:
            order = torch.randperm(len(self.pairs), generator=shuffle)
            for at in range(rank * BATCH, len(order) - (world - rank) * BATCH + 1, world * BATCH):
                users, good = self.pairs[order[at:at + BATCH]].T
                others = torch.randint(items, (BATCH, NEGATIVES), generator=draw)
                yield (users[:, None].expand(-1, 1 + NEGATIVES),
                       torch.cat([good[:, None], others], 1), labels)

    def loss(self, model, batch):
        users, items, labels = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(model(users, items), labels)

    def touched(self, batch):
        users, items, _ = batch
        return {"users.weight": users.unique().numel(), "items.weight": items.unique().numel()}

    def quality(self, model, rank, world):
        hits = torch.zeros(1)
        with torch.no_grad():
            for pairs, rivals in zip(self.test[rank::world].split(512),
                                     self.rivals[rank::world].split(512)):
                users, good = pairs.T
                scores = model(users[:, None].expand(-1, CANDIDATES),
                               torch.cat([good[:, None], rivals], 1))
                better = (scores[:, 1:] >= scores[:, :1]).sum(1)
                hits += (better < BEST).sum()
        dist.all_reduce(hits)
        return hits.item() / len(self.test)

    @staticmethod
    def shown(quality):
        return f"{100 * quality:.2f} %"

    @staticmethod
    def agree(one, other):
        return abs(one - other) <= MARGIN
