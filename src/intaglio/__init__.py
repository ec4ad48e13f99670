"""Intaglio: a tensor compiler whose writes are lazy and whose views stay true."""

from intaglio.core.config import Context as Context
from intaglio.core.config import config as config
from intaglio.core.config import getenv as getenv
from intaglio.core.dtypes import DType as DType
from intaglio.core.dtypes import dtypes as dtypes
from intaglio.core.errors import CompileError as CompileError
from intaglio.core.errors import ConfigError as ConfigError
from intaglio.core.errors import DeviceError as DeviceError
from intaglio.core.errors import DTypeError as DTypeError
from intaglio.core.errors import FileFormatError as FileFormatError
from intaglio.core.errors import FileMissingError as FileMissingError
from intaglio.core.errors import GradError as GradError
from intaglio.core.errors import IndexRangeError as IndexRangeError
from intaglio.core.errors import IntaglioError as IntaglioError
from intaglio.core.errors import InternalError as InternalError
from intaglio.core.errors import OverlapError as OverlapError
from intaglio.core.errors import ReadOnlyError as ReadOnlyError
from intaglio.core.errors import ShapeError as ShapeError
from intaglio.core.errors import ValueRangeError as ValueRangeError
from intaglio.core.trace import GlobalCounters as GlobalCounters
from intaglio.engine.devices import empty_cache as empty_cache
from intaglio.io.safetensors import safe_load as safe_load
from intaglio.io.safetensors import safe_save as safe_save
from intaglio.tensor.gradients import no_grad as no_grad
from intaglio.tensor.tensor import Tensor as Tensor

__version__ = "0.1.0"
