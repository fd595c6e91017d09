"""The trainer's side of Millrace: connect to a sidecar and iterate over the batches of one rank."""

from ._batch import Batch
from ._errors import MisuseError, RunError, StartError
from ._launch import Run, launch
from ._loader import DataLoader, connect
from ._segments import Segment, content_digest
from ._version import VERSION

__all__ = [
    "Batch",
    "DataLoader",
    "MisuseError",
    "Run",
    "RunError",
    "Segment",
    "StartError",
    "connect",
    "content_digest",
    "launch",
]
__version__ = VERSION

# Tracebacks and reprs name the classes as users import them.
for _public in (Batch, DataLoader, MisuseError, Run, RunError, Segment, StartError):
    _public.__module__ = __name__
del _public
