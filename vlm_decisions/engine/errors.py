"""Every refusal of the engine, by name. All are raised before any model computation."""


class EngineError(ValueError):
    """Base of all refusals of the engine."""


class CheckpointError(EngineError):
    """A checkpoint is missing, incomplete or does not fit its own configuration."""


class FamilyError(CheckpointError):
    """A checkpoint belongs to a model family that has no adapter."""


class ModeError(EngineError):
    """A mode of the running state that the model does not have."""


class FrameError(EngineError):
    """A frame is not a uint8 RGB image of a usable size."""


class GroupError(EngineError):
    """A vision group does not belong with the others: another grid, or from another model."""


class QueryError(EngineError):
    """No question, or one that cannot be asked."""


class ContextError(EngineError):
    """The state and the questions together exceed the model's context."""


class StateError(EngineError):
    """A state's arrays have another batch, length or shape than the model they are used with."""
