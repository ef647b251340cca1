# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""Schemes by parameter. A bucket is cut into runs of neighbouring parameters that
have one scheme; each run is an all-reduce of its own.
"""
import errno
import fnmatch
import itertools
import math

import torch

from thc_ddp.client import ThcError, schemes


# Most values that one bit of an index stands for; a 32-bit word stands for 2048 values.
_GRAIN_MAX = 64


class Run:
    """Neighbouring parameters of a bucket that have one scheme. scheme: a name, None for the job's
    scheme, or "group" for the process group; grain: see ThcClient.start().
    """

    def __init__(self, scheme, parameters, buffer, grain=0):
        self.scheme, self.grain = scheme, grain
        self._parameters, self._buffer = parameters, buffer

    def parameters(self):
        return self._parameters

    def buffer(self):
        return self._buffer


def _names(model):
    """{id(parameter): name}, without DDP's prefix "module."."""
    return {id(p): name.removeprefix("module.") for name, p in model.named_parameters()}


def _embeddings(model):
    """The weights of embedding modules; most rows of their gradients are zero."""
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return [m.weight for m in model.modules() if isinstance(m, kinds)]


def _grain(weight):
    """The largest power of two that divides the length of a row, up to _GRAIN_MAX."""
    width = math.prod(weight.shape[1:])
    return min(width & -width, _GRAIN_MAX)


class Schemes:
    """patterns: {pattern: choice}, or "auto": embeddings by lhc. A pattern (fnmatch) matches names
    of parameters; the first match counts. A choice is one of client.schemes(), "job" for the job's
    scheme, or "group" for the process group. A parameter without a match goes by the job's scheme.
    """

    def __init__(self, patterns=None):
        if isinstance(patterns, str) and patterns != "auto":
            raise ThcError(f'schemes={patterns!r}: give "auto", or a scheme by pattern of names',
                           errno.EINVAL)
        self.given = patterns if patterns == "auto" else dict(patterns or {})
        self.patterns = {} if patterns == "auto" else self.given
        self._grains = {}       # id(weight of an embedding) -> grain
        self._of = {}           # id(parameter) -> choice
        self._parameters = None  # keeps the ids valid
        choices = ("job", *schemes(), "group") if self.patterns else ()
        for pattern, choice in self.patterns.items():
            if choice not in choices:
                raise ThcError(f"schemes={{{pattern!r}: {choice!r}}}: use one of "
                               f"{', '.join(choices)}", errno.EINVAL)

    def bind(self, model):
        """Matches the patterns with the names of model's parameters. ThcError: one has no match."""
        of, names, used = {}, _names(model), set()
        parameters, embeddings = list(model.parameters()), _embeddings(model)
        if self.given == "auto":
            # a parametrized weight is no parameter and has no name
            self.patterns = {names[id(weight)]: "lhc" for weight in embeddings
                             if id(weight) in names}
        self._grains = {id(weight): _grain(weight) for weight in embeddings}
        for parameter in parameters:
            for pattern, choice in self.patterns.items():
                if fnmatch.fnmatchcase(names[id(parameter)], pattern):
                    of[id(parameter)] = choice
                    used.add(pattern)
                    break
        for pattern in self.patterns:
            if pattern not in used:
                raise ThcError(f"schemes: no parameter is left for {pattern!r}; the model has "
                               f"{', '.join(names.values())}", errno.EINVAL)
        self._of, self._parameters = of, parameters

    def _choice(self, parameter):
        choice = self._of.get(id(parameter), "job")
        return None if choice == "job" else choice

    def _grain_of(self, choice, group):
        if choice != "lhc":
            return 0
        return min(self._grains.get(id(parameter), 1) for parameter in group)

    def runs(self, bucket):
        """The runs of a bucket, in order; a sparse bucket is one run."""
        if self.given and self._parameters is None:
            raise ThcError("schemes: whose parameters the names are of is not known: call "
                           "state.bind(model) on all ranks", errno.EINVAL)
        parameters, buffer = bucket.parameters(), bucket.buffer()
        if not self.patterns or buffer.is_sparse:
            return [Run(self._choice(parameters[0]) if parameters else None, parameters, buffer)]
        runs, at = [], 0
        for choice, group in itertools.groupby(parameters, self._choice):
            group = list(group)
            end = at + sum(p.numel() for p in group)
            runs.append(Run(choice, group, buffer[at:end], self._grain_of(choice, group)))
            at = end
        return runs
