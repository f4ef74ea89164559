"""A stand-in for Ray where it isn't installed: names that can be imported, and no cluster.

With it what asks nothing of a cluster is tested without Ray's 750 MB: what a replica does with its server, nodes and
models that are compared, arguments.
"""

import sys
import types

_MODULES = (
    ("ray", "ray.data", "ray.exceptions", "ray.experimental", "ray.experimental.internal_kv", "pyarrow")
    + ("ray.serve", "ray.serve.config", "ray.serve.exceptions")
)


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        base = Exception if name.endswith(("Error", "Exception")) else object
        setattr(self, name, type(name, (base,), {}))
        return getattr(self, name)


def stand_in():
    for name in _MODULES:
        module = sys.modules[name] = _Module(name)
        module.__path__ = []
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    sys.modules["ray"].is_initialized = lambda: False
