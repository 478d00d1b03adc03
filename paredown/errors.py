"""Every error a user can cause, under one root, so that a caller can catch them all."""

import signal


class ParedownError(Exception):
    """Something the user asked for cannot be done; the message names what would be right."""


class UnknownName(ParedownError, KeyError):
    """No catalogue entry has that name."""

    __str__ = Exception.__str__  # KeyError would print the message quoted


class BadSetting(ParedownError, ValueError):
    """A parameter has a value it cannot have."""


class BadPlan(BadSetting):
    """A plan that does not fit the model, the task or the format."""


class BadInput(ParedownError, ValueError):
    """Rows that cannot be read as text, pairs or labels."""


class CannotPromise(ParedownError):
    """No plan keeps the promise that was asked for, on the rows that were given; the message says what would do."""


class BadBundle(ParedownError):
    """A saved folder that is damaged, unsafe or not a bundle."""


class CannotWalk(ParedownError):
    """An encoder that cannot be run layer by layer, with the reason."""


class NonFiniteAnswer(ParedownError, ArithmeticError):
    """The model answered NaN or infinity; that is never turned into a label."""


class Interrupted(ParedownError):
    """The run was asked to stop by a signal; it was saved and can be resumed."""

    def __init__(self, message: str, number: int | None = None):
        super().__init__(message)
        self.signal = int(number or signal.SIGTERM)


class NonFiniteLoss(ParedownError, ArithmeticError):
    """A loss or gradient was NaN or infinite; the model has not been touched by it."""


class NonFiniteWeights(ParedownError, ArithmeticError):
    """Weights or an optimizer's memory hold NaN or infinity; they are not saved, and what was saved before is good."""


class OutOfMemory(ParedownError, MemoryError):
    """Not even one row fits."""


class ClusterFailed(ParedownError):
    """Ray cannot be reached, or did not come to an end; what was done before is intact."""


class CannotSave(ParedownError):
    """The disk is full or must not be written; the checkpoint before is intact."""
