"""The trainer's side of Millrace: connect to a sidecar and loop over its batches."""

from ._batch import Batch, Segment, content_digest
from ._errors import RunError, StartError
from ._loader import DataLoader, connect

__all__ = ["Batch", "DataLoader", "RunError", "Segment", "StartError", "connect", "content_digest"]
__version__ = "0.1.0"
