"""Anomaly mode: where a backward fails or gives NaN, it shows the line of the program whose derivative that is."""
from __future__ import annotations

import os
import sys
import traceback
import warnings

from autograd_gpu import devices as _device
from autograd_gpu.engine.grad_mode import everywhere, local, set_anomaly

_OURS = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep, "<op ")


def _calling():
    """(the innermost frame that is the user's, how many frames further out than the caller's it is)."""
    frame, depth = sys._getframe(1), 0
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
        depth += 1
    return frame, depth


def user_frames(limit=None) -> list[traceback.FrameSummary]:
    """Where the user's program is running, outermost first; of `limit` the innermost so many."""
    return [frame for frame in traceback.extract_stack(_calling()[0], limit) if not frame.filename.startswith(_OURS)]


def user_lines(limit=None) -> list[str]:
    """The user's lines that are running, as a traceback shows them; see user_frames."""
    return traceback.format_list(user_frames(limit))


def note(node) -> None:
    """Keep with a new node the user's line that made it; in anomaly mode all lines that led there, and the node that a backward ran."""
    if not everywhere.anomaly:
        frame, _ = _calling()
        node.metadata["line_"] = frame.f_code.co_filename, frame.f_lineno
        return
    node.metadata["traceback_"] = user_lines()
    at = local.state.at
    if at is not None:
        node.metadata["parent_"] = at


def explain(node) -> None:
    """Warn with the lines that made a node whose backward failed, then with those that made the node that led to it, and so on."""
    lines = node.metadata.get("traceback_")
    if lines is None:
        warn(f"Error detected in {node.name()}. No forward pass information available. Enable detect anomaly during forward pass for "
              "more information.")
        return
    warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{''.join(lines)}")
    while (node := node.metadata.get("parent_")) is not None:
        lines = node.metadata.get("traceback_", ["  unknown: anomaly mode was off\n"])
        warn(f"Previous calculation was induced by {node.name()}. Traceback of forward call that induced the previous calculation:\n"
              f"{''.join(lines)}")


def warn(message) -> None:
    """Warn at the user's line that is running."""
    warnings.warn(message, stacklevel=_calling()[1] + 1)


class explained:
    """A block that works on a node: an error in it is explained. The thread is at this node until the next one, or its backward's end."""

    __slots__ = ("node",)

    def __init__(self, node):
        self.node = local.state.at = node

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        if kind is not None and issubclass(kind, Exception):
            explain(self.node)


def check_nan(node, results) -> None:
    """Raises RuntimeError where a node gave NaN."""
    for i, g in enumerate(results if isinstance(results, tuple) else (results,)):
        array = getattr(g, "_array", g)
        if array is not None and array.dtype.kind in "fcV" and bool(_device.xp(array).isnan(array).any()):
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on, in all threads. Reference: torch.is_anomaly_enabled."""
    return everywhere.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode, while on, looks for NaN. Reference: torch.is_anomaly_check_nan_enabled."""
    return everywhere.check_nan


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Switch anomaly mode on or off, in all threads. Raises TypeError for what is no bool. Reference: torch.set_anomaly_enabled."""
    for name, value in (("enabled", enabled), ("check_nan", check_nan)):
        if not isinstance(value, bool):
            raise TypeError(f"set_anomaly_enabled(): argument '{name}' must be bool, not {type(value).__name__}")
    set_anomaly(enabled, check_nan)


class detect_anomaly:
    """Within the block a failing backward warns with the lines that made its node, and one that gives NaN fails; not so for infinity.

    What was recorded before the block has no lines to show. Slow, for debugging: entering warns of that. An error about a tensor
    that was modified in place names the line that wrote to it.
    Raises: RuntimeError from a backward that gives NaN, naming node and output, unless check_nan is False.
    Reference: torch.autograd.detect_anomaly.
    """

    def __init__(self, check_nan: bool = True):
        self.check_nan = check_nan
        self._previous = []
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
                      stacklevel=2)

    def __enter__(self):
        self._previous.append((everywhere.anomaly, everywhere.check_nan))
        set_anomaly_enabled(True, self.check_nan)

    def __exit__(self, *exc_info):
        set_anomaly(*self._previous.pop())


class set_detect_anomaly:
    """Switch anomaly mode on or off at once; as a context manager, until its end. See detect_anomaly.

    Raises: TypeError for what is no bool. Reference: torch.autograd.set_detect_anomaly.
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self._previous = everywhere.anomaly, everywhere.check_nan
        set_anomaly_enabled(mode, check_nan)

    def __enter__(self):
        pass

    def __exit__(self, *exc_info):
        set_anomaly(*self._previous)
