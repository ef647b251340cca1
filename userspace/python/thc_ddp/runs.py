# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""Which scheme a parameter's gradient goes by, and a bucket cut into runs of
parameters of one scheme: each run is an all-reduce of its own.
"""
import errno
import fnmatch
import itertools

from thc_ddp.client import ThcError, schemes


class Run:
    """Parameters of a bucket that lie next to each other, and go by one scheme: its name, None
    for the job's, or "group".
    """

    def __init__(self, scheme, parameters, buffer):
        self.scheme = scheme
        self._parameters, self._buffer = parameters, buffer

    def parameters(self):
        return self._parameters

    def buffer(self):
        return self._buffer


def _names(model):
    """{id(parameter): name} without the prefix that DDP gives."""
    return {id(p): name.removeprefix("module.") for name, p in model.named_parameters()}


class Schemes:
    """patterns: {pattern of parameters' names: a scheme of the library, "job" for the job's, or
    "group" for the process group}, the first that fits counts; other parameters go by the job's
    """

    def __init__(self, patterns=None):
        self.patterns = dict(patterns or {})
        self._of = {}           # id(parameter) -> choice
        self._parameters = None  # keeps the ids valid
        choices = ("job", *schemes(), "group") if self.patterns else ()
        for pattern, choice in self.patterns.items():
            if choice not in choices:
                raise ThcError(f"schemes={{{pattern!r}: {choice!r}}}: use one of "
                               f"{', '.join(choices)}", errno.EINVAL)

    def bind(self, model):
        """The names are those of model's parameters; each pattern must fit one."""
        of, names, used = {}, _names(model), set()
        parameters = list(model.parameters())
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

    def runs(self, bucket):
        """The runs of a bucket, in order; a bucket that is not dense is one."""
        if self.patterns and self._parameters is None:
            raise ThcError("schemes: whose parameters the names are of is not known: call "
                           "state.bind(model) on all ranks", errno.EINVAL)
        parameters, buffer = bucket.parameters(), bucket.buffer()
        if not self.patterns or buffer.is_sparse:
            return [Run(self._choice(parameters[0]) if parameters else None, parameters, buffer)]
        runs, at = [], 0
        for choice, group in itertools.groupby(parameters, self._choice):
            group = list(group)
            end = at + sum(p.numel() for p in group)
            runs.append(Run(choice, group, buffer[at:end]))
            at = end
        return runs
