"""Intaglio: a tensor compiler whose writes are lazy and whose views stay true."""

from intaglio.core.config import Context as Context
from intaglio.core.config import config as config
from intaglio.core.config import getenv as getenv
from intaglio.core.dtypes import DType as DType
from intaglio.core.dtypes import dtypes as dtypes
from intaglio.core.trace import GlobalCounters as GlobalCounters
from intaglio.io.safetensors import safe_load as safe_load
from intaglio.io.safetensors import safe_save as safe_save
from intaglio.tensor.gradients import no_grad as no_grad
from intaglio.tensor.tensor import Tensor as Tensor

__version__ = "0.1.0"
